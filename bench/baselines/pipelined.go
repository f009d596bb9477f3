package baselines

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/internal/pg"
)

// Pipelined is the transaction in one round trip, with the stock's row locked
// last, so that it is locked for little more than the commit. The CHECK rejects
// a hold of more units than there are, which rolls everything back. A small
// pool helps a hot row: each of many sessions that wait for a lock costs a
// context switch.
type Pipelined struct{ DB *pgxpool.Pool }

// Hold holds the units. Errors: ErrSoldOut.
func (p *Pipelined) Hold(ctx context.Context, r Request) error {
	b := &pgx.Batch{} // sent as one implicit transaction
	b.Queue(holdInsert, r.TenantID, r.HoldID, r.VariantID, r.CartID, r.Quantity, ttl)
	b.Queue(auditInsert, r.TenantID, r.HoldID, r.after())
	b.Queue(plainUpdate, r.TenantID, r.VariantID, r.Quantity)
	err := p.DB.SendBatch(ctx, b).Close()
	if pg.Constraint(err) == "stocks_no_oversell" {
		return ErrSoldOut
	}
	return err
}
