package baselines

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

const (
	guardedUpdate = `
UPDATE baseline.stocks
SET reserved = reserved + $3
WHERE tenant_id = $1 AND variant_id = $2 AND stock - reserved >= $3`
	holdInsert = `
INSERT INTO baseline.holds (tenant_id, hold_id, variant_id, cart_id, quantity, expires_at)
VALUES ($1, $2, $3, $4, $5, now() + $6::interval)`
	auditInsert = `
INSERT INTO baseline.audit (tenant_id, hold_id, action, after)
VALUES ($1, $2, 'hold.held', $3)`
)

// Transaction is a transaction per request: BEGIN, the hold, its audit row, the
// guarded update, COMMIT. The update is last because other transactions wait
// for its lock: with the update first the rate is a quarter lower. The pool's
// size is the number of connections.
type Transaction struct{ DB *pgxpool.Pool }

// Hold holds the units. Errors: ErrSoldOut.
func (t *Transaction) Hold(ctx context.Context, r Request) error {
	return pgx.BeginFunc(ctx, t.DB, func(tx pgx.Tx) error { return HoldTx(ctx, tx, r) })
}

// HoldTx is Hold in the caller's transaction.
func HoldTx(ctx context.Context, tx pgx.Tx, r Request) error {
	if err := insertTx(ctx, tx, r); err != nil {
		return err
	}
	return guardTx(ctx, tx, r, r.Quantity)
}

// guardTx reserves that many more units. Errors: ErrSoldOut.
func guardTx(ctx context.Context, tx pgx.Tx, r Request, more int64) error {
	tag, err := tx.Exec(ctx, guardedUpdate, r.TenantID, r.VariantID, more)
	if err != nil {
		return err
	}
	if tag.RowsAffected() == 0 {
		return ErrSoldOut
	}
	return nil
}

func insertTx(ctx context.Context, tx pgx.Tx, r Request) error {
	if _, err := tx.Exec(ctx, holdInsert, r.TenantID, r.HoldID, r.VariantID, r.CartID, r.Quantity, r.lasts()); err != nil {
		return err
	}
	_, err := tx.Exec(ctx, auditInsert, r.TenantID, r.HoldID, r.after())
	return err
}
