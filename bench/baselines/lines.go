package baselines

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Lines holds all lines of a cart or none, in one transaction with one statement
// for each, in the order in which they are given.
type Lines struct{ DB *pgxpool.Pool }

// Hold holds the units of each line. The callers give the variants in one order,
// so that they do not deadlock. Errors: ErrSoldOut.
func (l *Lines) Hold(ctx context.Context, lines []Request) error {
	return pgx.BeginFunc(ctx, l.DB, func(tx pgx.Tx) error {
		for i := range lines {
			r := &lines[i]
			tag, err := tx.Exec(ctx, oneStatement, r.TenantID, r.HoldID, r.VariantID, r.CartID, r.Quantity, ttl, r.after())
			if err != nil {
				return err
			}
			if tag.RowsAffected() == 0 {
				return ErrSoldOut
			}
		}
		return nil
	})
}
