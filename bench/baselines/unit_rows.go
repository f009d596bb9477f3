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

// UnitRows has a row for each unit, which is the hold once it is taken, and takes one that nobody has locked, so that buyers
// of one variant don't wait for each other. It pays with a row a unit, and slows down as the taken ones pile up before the
// free ones. The limit is a literal: with a parameter Postgres can't tell how few rows it is about, and plans each time.
type UnitRows struct{ DB *pgxpool.Pool }

var errOneUnit = errors.New("baselines: a row per unit is written for requests of one unit")

// Hold holds one unit. Errors: ErrSoldOut, also when others have the last ones locked.
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
