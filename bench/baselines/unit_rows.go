package baselines

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5/pgxpool"
)

const takeUnit = `
WITH free AS MATERIALIZED (
    SELECT unit_id
    FROM baseline.units
    WHERE tenant_id = $1 AND variant_id = $3 AND hold_id IS NULL
    ORDER BY unit_id
    LIMIT 1
    FOR UPDATE SKIP LOCKED
), taken AS (
    UPDATE baseline.units u
    SET hold_id = $2, cart_id = $4, held_at = now(), expires_at = now() + $5::interval
    FROM free
    WHERE u.tenant_id = $1 AND u.variant_id = $3 AND u.unit_id = free.unit_id
    RETURNING u.tenant_id, u.hold_id
)
INSERT INTO baseline.audit (tenant_id, hold_id, action, after)
SELECT tenant_id, hold_id, 'hold.held', $6::jsonb
FROM taken`

// UnitRows has a row for each unit. A taken unit's row is the hold. Each buyer
// takes a row that no other transaction has locked, so buyers of one variant do
// not wait for each other. The price is a row per unit, and it slows down as
// taken rows pile up before the free ones. The limit is a literal: with a
// parameter the planner does not know how few rows it selects, and Postgres
// plans each execution.
type UnitRows struct{ DB *pgxpool.Pool }

var errOneUnit = errors.New("baselines: a row per unit is written for requests of one unit")

// Hold holds one unit. Errors: ErrSoldOut, also when other transactions have
// the last units locked.
func (u *UnitRows) Hold(ctx context.Context, r Request) error {
	if r.Quantity != 1 {
		return errOneUnit
	}
	tag, err := u.DB.Exec(ctx, takeUnit, r.TenantID, r.HoldID, r.VariantID, r.CartID, ttl, r.after())
	if err == nil && tag.RowsAffected() == 0 {
		return ErrSoldOut
	}
	return err
}
