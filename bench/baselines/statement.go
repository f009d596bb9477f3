package baselines

import (
	"context"

	"github.com/jackc/pgx/v5/pgxpool"
)

const oneStatement = `
WITH stock AS (
    UPDATE baseline.stocks
    SET reserved = reserved + $5
    WHERE tenant_id = $1 AND variant_id = $3 AND stock - reserved >= $5
    RETURNING tenant_id
), hold AS (
    INSERT INTO baseline.holds (tenant_id, hold_id, variant_id, cart_id, quantity, expires_at)
    SELECT tenant_id, $2, $3, $4, $5, now() + $6::interval
    FROM stock
    RETURNING tenant_id, hold_id
)
INSERT INTO baseline.audit (tenant_id, hold_id, action, after)
SELECT tenant_id, hold_id, 'hold.held', $7::jsonb
FROM hold`

// Statement does everything in one statement, which is its own transaction.
type Statement struct{ DB *pgxpool.Pool }

// Hold holds the units. Errors: ErrSoldOut.
func (s *Statement) Hold(ctx context.Context, r Request) error {
	tag, err := s.DB.Exec(ctx, oneStatement, r.TenantID, r.HoldID, r.VariantID, r.CartID, r.Quantity, ttl, r.after())
	if err == nil && tag.RowsAffected() == 0 {
		return ErrSoldOut
	}
	return err
}
