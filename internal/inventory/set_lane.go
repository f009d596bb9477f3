package inventory

import (
	"context"
	"errors"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/audit"
	"github.com/holdfast/holdfast/internal/lanes"
)

// SetInLane is Set for a patch that may have a wish for a lane: it also moves the
// variant to that lane. It returns the stock and the variant's lane; the zero
// Variant is in the normal lane. It returns the errors of Set, and then the
// variant is not moved either.
func SetInLane(
	ctx context.Context, db *pgxpool.Pool, waker lanes.Waker,
	tenantID uuid.UUID, variantID string, patch StockPatch, origin audit.Origin,
) (stock Stock, in lanes.Variant, err error) {
	err = pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		stock, in, err = SetInLaneTx(ctx, tx, waker, tenantID, variantID, patch, origin)
		return err
	})
	return stock, in, err
}

// SetInLaneTx is SetInLane in the caller's transaction. For a patch with a wish
// for a lane the transaction must be READ COMMITTED, else lanes.ErrIsolation.
// After an error of this package the transaction is still usable and nothing
// has changed.
//
// It locks the variant's slot, unless the variant is in the lane of its wish,
// and then its stock. Call it before anything that locks requests, stocks or
// reservations.
func SetInLaneTx(
	ctx context.Context, tx pgx.Tx, waker lanes.Waker,
	tenantID uuid.UUID, variantID string, patch StockPatch, origin audit.Origin,
) (stock Stock, in lanes.Variant, err error) {
	set := func(tx pgx.Tx) (err error) {
		stock, err = SetTx(ctx, tx, tenantID, variantID, patch, origin)
		if err != nil {
			return err
		}
		found, err := lanes.Lookup(ctx, tx, tenantID, []string{variantID})
		in = found[variantID]
		return err
	}
	if patch.Lane == nil {
		err = set(tx)
		return stock, in, err
	}
	if err := patch.Validate(); err != nil {
		return stock, in, err
	}
	wish := []lanes.Placement{{VariantID: variantID, Wish: *patch.Lane}}
	err = pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error {
		if err := lanes.PlaceTx(ctx, tx, waker, tenantID, wish); err != nil {
			return err
		}
		if err := set(tx); err != nil {
			return err
		}
		if !in.IsPlaced(*patch.Lane) {
			return errLaneChanged
		}
		return nil
	})
	if !errors.Is(err, errLaneChanged) {
		return stock, in, err
	}
	err = pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error {
		if err := lanes.ForcePlaceTx(ctx, tx, waker, tenantID, wish); err != nil {
			return err
		}
		return set(tx)
	})
	return stock, in, err
}

// errLaneChanged means that another transaction moved the variant after its
// lane was read and before its stock was locked. The savepoint is rolled back
// then, which releases the stock's lock: slots are locked before stocks.
var errLaneChanged = errors.New("another transaction changed the lane of the variant")
