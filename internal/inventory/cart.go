package inventory

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/audit"
	"github.com/holdfast/holdfast/internal/pg"
	"github.com/holdfast/holdfast/internal/reservationrows"
	"github.com/holdfast/holdfast/reservations"
)

var (
	// ErrCartEmpty means that a cart holds nothing.
	ErrCartEmpty = errors.New("inventory: the cart holds nothing")
	// ErrHoldExpired means that a hold of the cart has expired, and its variant
	// was neither removed nor added again since.
	ErrHoldExpired = errors.New("inventory: a hold of the cart has expired")
	// ErrIsolation means that a cart was read in a transaction at REPEATABLE
	// READ or SERIALIZABLE: its snapshot may be older than the cart's latest
	// holds. Postgres has aborted the transaction.
	ErrIsolation = pg.ErrIsolation
)

// CheckoutTx commits everything a cart holds, all or nothing: stock and
// reserved both fall by what was held.
//
// It locks the stocks of the cart's variants in order, then its reservations.
//
// The transaction must be READ COMMITTED, else ErrIsolation.
//
// Errors: ErrHoldExpired, whether or not a sweep has recorded the expiry;
// ErrCartEmpty.
func CheckoutTx(ctx context.Context, tx pgx.Tx, tenantID uuid.UUID, cartID string, origin audit.Origin) ([]reservations.Reservation, error) {
	c := Call{Action: CheckoutCart, TenantID: tenantID, CartID: cartID, Origin: origin}
	return applyTx(ctx, tx, c, pg.QueueIsolation)
}

// ReleaseCartTx releases what a cart holds of one variant, or (variantID "")
// everything, and returns what it released. It also acknowledges the expired
// holds, so that they no longer cause ErrHoldExpired. It does not release a
// hold that is past its deadline, but records the expiry. A cart that holds
// nothing is not an error.
//
// It locks the stocks of the variants in order, then the reservations.
//
// The transaction must be READ COMMITTED, else ErrIsolation.
//
// Errors: *InvalidError for a reason that is not in
// reservations.ReleaseReasons.
func ReleaseCartTx(ctx context.Context, tx pgx.Tx, tenantID uuid.UUID, cartID, variantID string, reason reservations.ReleaseReason, origin audit.Origin) ([]reservations.Reservation, error) {
	c := Call{Action: ReleaseCart, TenantID: tenantID, CartID: cartID, VariantID: variantID, Reason: reason, Origin: origin}
	return applyTx(ctx, tx, c, pg.QueueIsolation)
}

// ExtendCartTx moves the deadlines of everything a cart holds by the given
// time, all or nothing. It locks only the reservations.
//
// It is correct at every isolation level. Above READ COMMITTED it leaves out
// holds that were made after the transaction's first statement; those have
// their full time ahead.
//
// Errors: *InvalidError for a time that is not positive; ErrCartEmpty;
// ErrHoldExpired when one of them is past its deadline;
// reservations.ErrLifetimeExceeded.
func ExtendCartTx(ctx context.Context, tx pgx.Tx, tenantID uuid.UUID, cartID string, by, lifetimeMax time.Duration, origin audit.Origin) ([]reservations.Reservation, error) {
	if err := validateBy(by); err != nil {
		return nil, err
	}
	extended, err := reservationrows.ExtendHolderTx(ctx, tx, tenantID, Kind, cartID, by, lifetimeMax, origin)
	var conflict *reservations.ConflictError
	switch {
	case errors.As(err, &conflict):
		return nil, fmt.Errorf("extend cart %s: %w", cartID, errors.Join(ErrHoldExpired, err))
	case err != nil:
		return nil, fmt.Errorf("extend cart %s: %w", cartID, err)
	case len(extended) == 0:
		return nil, ErrCartEmpty
	}
	return extended, nil
}

// endTx ends holds whose stocks and rows are locked, and changes the counters
// accordingly. It writes the rows first: a row that has ended meanwhile is
// reservationrows.ErrChanged, not an error of the counters.
func endTx(ctx context.Context, tx pgx.Tx, held []reservations.Reservation, ending reservationrows.Ending) error {
	deltas := make(map[Ref]counterDelta)
	for i := range held {
		ref := Ref{held[i].TenantID, held[i].ResourceKey}
		deltas[ref] = deltas[ref].ended(&held[i], ending.To)
	}
	b := &pgx.Batch{}
	reservationrows.QueueEnd(b, ending, held)
	queueDeltas(b, deltas)
	if err := tx.SendBatch(ctx, b).Close(); err != nil {
		return fmt.Errorf("end %d holds as %s: %w", len(held), ending.To, err)
	}
	return nil
}

// splitDue separates the holds that are past their deadline from the others.
func splitDue(held []reservations.Reservation, now time.Time) (live, due []reservations.Reservation) {
	for _, r := range held {
		if r.Due(now) {
			due = append(due, r)
		} else {
			live = append(live, r)
		}
	}
	return live, due
}
