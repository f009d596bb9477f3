package inventory

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/audit"
	"github.com/holdfast/holdfast/internal/isolation"
	"github.com/holdfast/holdfast/internal/reservationrows"
	"github.com/holdfast/holdfast/reservations"
)

var (
	// ErrCartEmpty says that a cart holds nothing.
	ErrCartEmpty = errors.New("inventory: the cart holds nothing")
	// ErrHoldExpired says that a cart lost a hold to expiry and has neither removed the variant nor added it again.
	ErrHoldExpired = errors.New("inventory: a hold of the cart has expired")
	// ErrIsolation means that a cart was read in a transaction at REPEATABLE READ or SERIALIZABLE: its snapshot may be older
	// than the cart's latest holds. Postgres has aborted the transaction.
	ErrIsolation = isolation.ErrLevel
)

// CheckoutTx commits everything a cart holds, all or nothing: stock and reserved go down together by what was held. It
// locks the stocks of the cart's variants in order, then its reservations.
//
// The transaction must be READ COMMITTED, else ErrIsolation.
//
// Errors: ErrHoldExpired while the cart has lost something to expiry, swept or not; ErrCartEmpty.
func CheckoutTx(ctx context.Context, tx pgx.Tx, tenantID uuid.UUID, cartID string, origin audit.Origin) ([]reservations.Reservation, error) {
	c := Call{Action: CheckoutCart, TenantID: tenantID, CartID: cartID, Origin: origin}
	return applyTx(ctx, tx, c, isolation.Queue)
}

// ReleaseCartTx releases what a cart holds of one variant, or (variantID "") everything, and dismisses what it lost of
// it to expiry. It returns what it released. A hold that is past its deadline is not released: its expiry is recorded.
// Nothing held is no error. It locks the stocks of the variants in order, then the reservations.
//
// The transaction must be READ COMMITTED, else ErrIsolation.
//
// Errors: *InvalidError for a reason that is none of reservations.ReleaseReasons.
func ReleaseCartTx(ctx context.Context, tx pgx.Tx, tenantID uuid.UUID, cartID, variantID string, reason reservations.ReleaseReason, origin audit.Origin) ([]reservations.Reservation, error) {
	c := Call{Action: ReleaseCart, TenantID: tenantID, CartID: cartID, VariantID: variantID, Reason: reason, Origin: origin}
	return applyTx(ctx, tx, c, isolation.Queue)
}

// ExtendCartTx moves the deadlines of everything a cart holds by the given time, all or nothing. It locks the
// reservations alone. It is right at every isolation level; above READ COMMITTED it leaves out what the cart has got since
// the transaction's first statement, and which lasts its full time yet.
//
// Errors: *InvalidError for a time that is not positive; ErrCartEmpty; ErrHoldExpired when one of them is past its deadline; reservations.ErrLifetimeExceeded.
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

// endTx ends holds whose stocks and rows are locked, and moves the counters with them. The rows come first: one that has
// ended meanwhile is reservationrows.ErrShifted, not a fault of the counters.
func endTx(ctx context.Context, tx pgx.Tx, held []reservations.Reservation, ending reservationrows.Ending) error {
	moves := make(map[Ref]move)
	for i := range held {
		ref := Ref{held[i].TenantID, held[i].ResourceKey}
		moves[ref] = moves[ref].ended(&held[i], ending.To)
	}
	b := &pgx.Batch{}
	reservationrows.QueueEnd(b, ending, held)
	queueMoves(b, moves)
	if err := tx.SendBatch(ctx, b).Close(); err != nil {
		return fmt.Errorf("end %d holds as %s: %w", len(held), ending.To, err)
	}
	return nil
}

// splitDue tells holds that are past their deadline from the others.
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
