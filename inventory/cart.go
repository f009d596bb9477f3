package inventory

import (
	"context"
	"errors"
	"fmt"
	"slices"
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
	held, now, err := lockCartTx(ctx, tx, tenantID, cartID, "")
	if err != nil {
		return nil, fmt.Errorf("check out cart %s: %w", cartID, err)
	}
	lost, err := reservationrows.LostTx(ctx, tx, tenantID, Kind, cartID, now)
	if err != nil {
		return nil, fmt.Errorf("check out cart %s: %w", cartID, err)
	}
	if lost != "" {
		return nil, fmt.Errorf("check out cart %s: variant %s: %w", cartID, lost, ErrHoldExpired)
	}
	live, _ := splitDue(held, now)
	if len(live) == 0 {
		return nil, ErrCartEmpty
	}
	return live, endTx(ctx, tx, live, reservationrows.Ending{To: reservations.Committed, At: now, Origin: origin})
}

// ReleaseCartTx releases what a cart holds of one variant, or (variantID "") everything, and dismisses what it lost of
// it to expiry. It returns what it released. A hold that is past its deadline is not released: its expiry is recorded.
// Nothing held is no error. It locks the stocks of the variants in order, then the reservations.
//
// The transaction must be READ COMMITTED, else ErrIsolation.
//
// Errors: *InvalidError for a reason that is none of reservations.ReleaseReasons.
func ReleaseCartTx(ctx context.Context, tx pgx.Tx, tenantID uuid.UUID, cartID, variantID string, reason reservations.ReleaseReason, origin audit.Origin) ([]reservations.Reservation, error) {
	if err := ValidateReason(reason); err != nil {
		return nil, err
	}
	held, now, err := lockCartTx(ctx, tx, tenantID, cartID, variantID)
	if err != nil {
		return nil, fmt.Errorf("release cart %s: %w", cartID, err)
	}
	live, due := splitDue(held, now)
	if err := endTx(ctx, tx, due, expiry(now)); err != nil {
		return nil, fmt.Errorf("release cart %s: %w", cartID, err)
	}
	if err := reservationrows.DismissTx(ctx, tx, tenantID, Kind, cartID, variantID); err != nil {
		return nil, err
	}
	return live, endTx(ctx, tx, live, reservationrows.Ending{To: reservations.Released, Reason: reason, At: now, Origin: origin})
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

// lockCartTx reads which variants a cart's holds need, locks their stocks, then the reservations, and returns those still
// held, due or not, with the database's clock read after the last lock. variantID "" is all of them. A hold that is made
// on another variant while the stocks are being locked comes too late: it is not part of what the caller saw.
func lockCartTx(ctx context.Context, tx pgx.Tx, tenantID uuid.UUID, cartID, variantID string) ([]reservations.Reservation, time.Time, error) {
	held, err := reservationrows.HeldByHolder(ctx, tx, tenantID, Kind, cartID)
	if err != nil {
		return nil, time.Time{}, err
	}
	var variants []Ref
	var lines []reservationrows.Line
	for i := range held {
		ref := Ref{tenantID, held[i].ResourceKey}
		if (variantID == "" || variantID == ref.VariantID) && !slices.Contains(variants, ref) {
			variants = append(variants, ref)
			lines = append(lines, reservationrows.Line{TenantID: tenantID, HolderID: cartID, ResourceKey: ref.VariantID})
		}
	}
	if _, _, err := lockTx(ctx, tx, variants, isolation.Queue); err != nil {
		return nil, time.Time{}, err
	}
	return reservationrows.LockLinesTx(ctx, tx, Kind, lines)
}

// endTx ends holds whose stocks and rows are locked, and moves the counters with them. The rows come first: one that has
// ended meanwhile is reservationrows.ErrShifted, not a fault of the counters.
func endTx(ctx context.Context, tx pgx.Tx, held []reservations.Reservation, ending reservationrows.Ending) error {
	moves := make(map[Ref]move)
	for i := range held {
		ref := Ref{held[i].TenantID, held[i].ResourceKey}
		m := moves[ref]
		m.reserved -= held[i].Quantity
		if ending.To == reservations.Committed {
			m.stock -= held[i].Quantity
		}
		moves[ref] = m
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
