package inventory

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/audit"
	"github.com/holdfast/holdfast/internal/pg"
	"github.com/holdfast/holdfast/internal/telemetry"
)

// Adjust adds delta units, which may be negative, to a variant's stock and
// returns the stock after that. It is not idempotent: each call adjusts once,
// and writes one audit row with action "stock.adjusted" and the origin's
// reason.
//
// Errors: [*InvalidError] for a delta of 0 or beyond ±MaxStock, for a result
// above MaxStock, and for a result below 0 on a variant that is not tracked or
// allows backorder (only checkouts may do that); [ErrUnknownVariant];
// [ErrBelowReserved] if a tracked variant without backorder would have fewer
// units than are reserved.
//
// It locks the stock row. Other transactions see the change after the commit.
func Adjust(ctx context.Context, pool *pgxpool.Pool, tenantID uuid.UUID, variantID string, delta int64, origin audit.Origin) (stock Stock, err error) {
	err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		stock, err = AdjustTx(ctx, tx, tenantID, variantID, delta, origin)
		return err
	})
	return stock, err
}

// adjustSQL checks every bound, whatever was read before.
const adjustSQL = `
UPDATE inventory_stocks AS s
SET stock = s.stock + $3, updated_at = clock_timestamp()
WHERE s.tenant_id = $1
  AND s.variant_id = $2
  AND s.stock + $3 <= $4
  AND ($3 > 0 OR s.stock + $3 >= 0)
  AND (s.stock + $3 >= s.reserved OR s.backorder OR NOT s.tracked)`

// AdjustTx is [Adjust] in the caller's transaction. After an error of this
// package the transaction is still usable and nothing has changed. It is
// correct at every isolation level.
func AdjustTx(ctx context.Context, tx pgx.Tx, tenantID uuid.UUID, variantID string, delta int64, origin audit.Origin) (_ Stock, err error) {
	ctx, done := telemetry.Verb(ctx, "inventory.adjust")
	defer func() { done(outcome(err)) }()
	if err := ValidateID("variant_id", variantID); err != nil {
		return Stock{}, err
	}
	if delta == 0 {
		return Stock{}, &InvalidError{Field: "delta", Message: "must not be 0"}
	}
	if delta < -MaxStock || delta > MaxStock {
		return Stock{}, &InvalidError{Field: "delta", Message: fmt.Sprintf("must be between %d and %d", -MaxStock, MaxStock)}
	}
	locked, _, err := lockTx(ctx, tx, []Ref{{tenantID, variantID}})
	if err != nil {
		return Stock{}, fmt.Errorf("adjust stock %s: %w", variantID, err)
	}
	row := locked[Ref{tenantID, variantID}]
	if row == nil {
		return Stock{}, fmt.Errorf("adjust stock %s: %w", variantID, ErrUnknownVariant)
	}
	if err := refuseDelta(*row, delta); err != nil {
		return Stock{}, fmt.Errorf("adjust stock %s: %w", variantID, err)
	}
	after, err := addTx(ctx, tx, tenantID, variantID, delta)
	if err != nil {
		return Stock{}, fmt.Errorf("adjust stock %s: %w", variantID, err)
	}
	before := after
	before.Stock -= delta
	e, err := entry("stock.adjusted", &before, after, origin)
	if err != nil {
		return Stock{}, err
	}
	if err := audit.WriteTx(ctx, tx, []audit.Entry{e}); err != nil {
		return Stock{}, fmt.Errorf("adjust stock %s: %w", variantID, err)
	}
	return after, nil
}

// refuseDelta returns the error for the bound of adjustSQL that the delta would
// break.
func refuseDelta(row counter, delta int64) error {
	if row.NamedUnits {
		return &InvalidError{Field: "variant_id", Message: "names a block: its units have their own identity, import them instead"}
	}
	free := row.Backorder || !row.Tracked
	switch after := row.Stock + delta; {
	case after > MaxStock:
		return &InvalidError{Field: "delta", Message: "would take the stock above " + strconv.Itoa(MaxStock)}
	case after < row.Reserved && !free:
		return ErrBelowReserved
	case after < 0 && delta < 0:
		return &InvalidError{Field: "delta", Message: "would take the stock below 0"}
	}
	return nil
}

// addTx adds delta, under the lock that the caller has, and reads the stock
// back.
func addTx(ctx context.Context, tx pgx.Tx, tenantID uuid.UUID, variantID string, delta int64) (Stock, error) {
	var changed int64
	b := &pgx.Batch{}
	b.Queue(adjustSQL, tenantID, variantID, delta, int64(MaxStock)).Exec(func(tag pgconn.CommandTag) error {
		changed = tag.RowsAffected()
		return nil
	})
	stock := pg.CollectOne(b, pgx.RowToStructByName[Stock], getSQL, tenantID, variantID)
	if err := tx.SendBatch(ctx, b).Close(); err != nil {
		return Stock{}, translated(err)
	}
	if changed != 1 {
		return Stock{}, errors.New("the guard refused what the locked row allows")
	}
	return *stock, nil
}
