package baselines

import (
	"context"

	"github.com/jackc/pgx/v5/pgxpool"
)

const takeUnits = `
WITH free AS MATERIALIZED (
    SELECT unit_id
    FROM baseline.units
    WHERE tenant_id = $1 AND variant_id = $3 AND hold_id IS NULL
    ORDER BY unit_id
    LIMIT $5
    FOR UPDATE SKIP LOCKED
), enough AS MATERIALIZED (
    SELECT FROM free HAVING count(*) = $5
), taken AS (
    UPDATE baseline.units u
    SET hold_id = $2
    FROM enough
    WHERE u.tenant_id = $1 AND u.variant_id = $3 AND u.unit_id = ANY (ARRAY(SELECT unit_id FROM free))
    RETURNING u.unit_id
), hold AS (
    INSERT INTO baseline.holds (tenant_id, hold_id, variant_id, cart_id, quantity, expires_at)
    SELECT $1, $2, $3, $4, count(*), now() + $6::interval
    FROM taken
    HAVING count(*) > 0
    RETURNING tenant_id, hold_id
)
INSERT INTO baseline.audit (tenant_id, hold_id, action, after)
SELECT tenant_id, hold_id, 'hold.held', $7::jsonb
FROM hold`

// UnitRows has a row for each unit and takes some that nobody has locked, so that buyers of one variant don't wait for each
// other. It pays with a row a unit, and slows down as the taken ones pile up before the free ones.
type UnitRows struct{ DB *pgxpool.Pool }

// Hold holds the units. Errors: ErrSoldOut, also when others have the last ones locked.
func (u *UnitRows) Hold(ctx context.Context, r Request) error {
	tag, err := u.DB.Exec(ctx, takeUnits, r.TenantID, r.HoldID, r.VariantID, r.CartID, r.Quantity, ttl, r.after())
	if err == nil && tag.RowsAffected() == 0 {
		return ErrSoldOut
	}
	return err
}
