package baselines

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

const (
	lockedSelect = `
SELECT stock - reserved
FROM baseline.stocks
WHERE tenant_id = $1 AND variant_id = $2
FOR UPDATE`
	plainUpdate = `
UPDATE baseline.stocks
SET reserved = reserved + $3
WHERE tenant_id = $1 AND variant_id = $2`
)

// SelectForUpdate locks and reads the row, checks it in Go, and then writes:
// what most object mappers do.
type SelectForUpdate struct{ DB *pgxpool.Pool }

// Hold holds the units. Errors: ErrSoldOut.
func (s *SelectForUpdate) Hold(ctx context.Context, r Request) error {
	return pgx.BeginFunc(ctx, s.DB, func(tx pgx.Tx) error {
		var available int64
		if err := tx.QueryRow(ctx, lockedSelect, r.TenantID, r.VariantID).Scan(&available); err != nil {
			return err
		}
		if available < r.Quantity {
			return ErrSoldOut
		}
		if _, err := tx.Exec(ctx, plainUpdate, r.TenantID, r.VariantID, r.Quantity); err != nil {
			return err
		}
		return insertTx(ctx, tx, r)
	})
}
