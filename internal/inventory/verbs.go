package inventory

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

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
// reservationrows.ReleaseReasons; ErrPartOfKit if the cart holds units of the
// variant for a kit.
func ReleaseCartTx(ctx context.Context, tx pgx.Tx, tenantID uuid.UUID, cartID, variantID string, reason reservations.ReleaseReason, origin audit.Origin) ([]reservations.Reservation, error) {
	c := Call{Action: ReleaseCart, TenantID: tenantID, CartID: cartID, VariantID: variantID, Reason: reason, Origin: origin}
	return applyTx(ctx, tx, c, pg.QueueIsolation)
}

// ReleaseKitTx is ReleaseCartTx for what a cart holds of one kit.
//
// The transaction must be READ COMMITTED, else ErrIsolation.
func ReleaseKitTx(ctx context.Context, tx pgx.Tx, tenantID uuid.UUID, cartID, kitID string, reason reservations.ReleaseReason, origin audit.Origin) ([]reservations.Reservation, error) {
	c := Call{Action: ReleaseCart, TenantID: tenantID, CartID: cartID, KitID: kitID, Reason: reason, Origin: origin}
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

// Commit ends one hold as committed: it takes the hold's units from stock and
// from reserved.
//
// Errors: reservations.ErrNotFound, *reservations.ConflictError for one that
// has ended or is past its deadline.
func Commit(ctx context.Context, db *pgxpool.Pool, tenantID, reservationID uuid.UUID, origin audit.Origin) (r reservations.Reservation, err error) {
	err = pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		r, err = CommitTx(ctx, tx, tenantID, reservationID, origin)
		return err
	})
	return r, err
}

// CommitTx is Commit in the caller's transaction. It locks the stock, then the
// reservation. It is correct at every isolation level.
func CommitTx(ctx context.Context, tx pgx.Tx, tenantID, reservationID uuid.UUID, origin audit.Origin) (reservations.Reservation, error) {
	return applyOneTx(ctx, tx, Call{Action: CommitHold, TenantID: tenantID, ReservationID: reservationID, Origin: origin})
}

// Release ends one hold as released and gives its units back. A hold that is
// past its deadline is not released: Release records its expiry, if no sweep
// has done so, and returns a *reservations.ConflictError with Actual Expired.
//
// Errors: *InvalidError for a reason that is not in
// reservationrows.ReleaseReasons; reservations.ErrNotFound,
// *reservations.ConflictError for one that has ended or is past its deadline;
// ErrPartOfKit for a part of a kit.
func Release(ctx context.Context, db *pgxpool.Pool, tenantID, reservationID uuid.UUID, reason reservations.ReleaseReason, origin audit.Origin) (r reservations.Reservation, err error) {
	var conflict *reservations.ConflictError
	err = pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		r, conflict, err = ReleaseTx(ctx, tx, tenantID, reservationID, reason, origin)
		return err
	})
	if err == nil && conflict != nil {
		err = conflict
	}
	return r, err
}

// ReleaseTx is Release in the caller's transaction. It locks the stock, then
// the reservation. It is correct at every isolation level.
//
// The conflict is an outcome, not an error: the expiry of a hold that is past
// its deadline is written too, so the caller commits. The reservation is then
// the zero value. A caller that rolls back leaves the expiry to the next sweep.
func ReleaseTx(ctx context.Context, tx pgx.Tx, tenantID, reservationID uuid.UUID, reason reservations.ReleaseReason, origin audit.Origin) (r reservations.Reservation, conflict *reservations.ConflictError, err error) {
	r, err = applyOneTx(ctx, tx, Call{Action: ReleaseHold, TenantID: tenantID, ReservationID: reservationID, Reason: reason, Origin: origin})
	if conflict, ok := errors.AsType[*reservations.ConflictError](err); ok {
		return reservations.Reservation{}, conflict, nil
	}
	return r, nil, err
}

// ReleaseIncompleteTx gives back the units of holds whose request has another
// line that came up short. They were read without a lock. Those that have ended
// since are left out, and the expiry of those past their deadline is recorded.
// It locks the stocks and then the holds, as CommitTx does, and is correct at
// every isolation level.
func ReleaseIncompleteTx(ctx context.Context, tx pgx.Tx, held []reservations.Reservation, origin audit.Origin) error {
	if len(held) == 0 {
		return nil
	}
	var lock holdLock
	for i := range held {
		lock.refs = append(lock.refs, held[i].Ref())
		if ref := (Ref{held[i].TenantID, held[i].ResourceKey}); !slices.Contains(lock.variants, ref) {
			lock.variants = append(lock.variants, ref)
		}
	}
	if err := lock.lockTx(ctx, tx); err != nil {
		return err
	}
	live, due := splitDue(slices.DeleteFunc(lock.held, func(r reservations.Reservation) bool { return r.Status != reservations.Held }), lock.now)
	var e endings
	var err error
	e.setAside, err = setAsidesOfTx(ctx, tx, lock.held, lock.now)
	if err != nil {
		return err
	}
	e.count(live, reservations.Released)
	e.add(live, reservationrows.Ending{To: reservations.Released, Reason: reservationrows.Incomplete, At: lock.now, Origin: origin})
	e.count(due, reservations.Expired)
	e.add(due, expiry(lock.now))
	b := &pgx.Batch{}
	b.Queue(releaseSQL)
	e.queueRows(b)
	queueDeltas(b, e.deltas)
	audit.Queue(b, e.entries)
	e.queueBack(b)
	if err := tx.SendBatch(ctx, b).Close(); err != nil {
		return fmt.Errorf("release %d holds of an incomplete request: %w", len(live), err)
	}
	return nil
}

// Extend moves the deadline of one hold by the given time, at most to
// lifetimeMax after it was first held.
//
// Errors: *InvalidError for a time that is not positive;
// reservations.ErrNotFound, reservations.ErrLifetimeExceeded,
// *reservations.ConflictError for one that has ended or is past its deadline.
func Extend(ctx context.Context, db *pgxpool.Pool, tenantID, reservationID uuid.UUID, by, lifetimeMax time.Duration, origin audit.Origin) (r reservations.Reservation, err error) {
	err = pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		r, err = ExtendTx(ctx, tx, tenantID, reservationID, by, lifetimeMax, origin)
		return err
	})
	return r, err
}

// ExtendTx is Extend in the caller's transaction. It locks only the
// reservation. It is correct at every isolation level.
func ExtendTx(ctx context.Context, tx pgx.Tx, tenantID, reservationID uuid.UUID, by, lifetimeMax time.Duration, origin audit.Origin) (reservations.Reservation, error) {
	if err := validateBy(by); err != nil {
		return reservations.Reservation{}, err
	}
	if _, err := getHold(ctx, tx, tenantID, reservationID); err != nil {
		return reservations.Reservation{}, err
	}
	extended, err := reservationrows.ExtendTx(ctx, tx, []reservationrows.Ref{{TenantID: tenantID, ReservationID: reservationID}}, by, lifetimeMax, origin)
	if err != nil {
		return reservations.Reservation{}, err
	}
	return extended[0], nil
}

// ValidateReason returns an *InvalidError for a reason that is not in
// reservationrows.ReleaseReasons. The column has no CHECK for it.
func ValidateReason(reason reservations.ReleaseReason) error {
	if !slices.Contains(reservationrows.ReleaseReasons, reason) {
		return &InvalidError{Field: "reason", Message: fmt.Sprintf("must be one of %v", reservationrows.ReleaseReasons)}
	}
	return nil
}

// validateBy refuses an extension that is not positive. A deadline must not
// move back to before the clock reading of a decision that counted the hold as
// live.
func validateBy(by time.Duration) error {
	if by <= 0 {
		return &InvalidError{Field: "seconds", Message: "must be at least 1"}
	}
	return nil
}

// applyOneTx is applyTx for a call on one hold.
func applyOneTx(ctx context.Context, tx pgx.Tx, c Call) (reservations.Reservation, error) {
	ended, err := applyTx(ctx, tx, c)
	if err != nil {
		return reservations.Reservation{}, err
	}
	return ended[0], nil
}

// getHold reads a reservation of a variant. A reservation of another kind is
// ErrNotFound.
func getHold(ctx context.Context, tx pgx.Tx, tenantID, reservationID uuid.UUID) (reservations.Reservation, error) {
	r, err := reservations.Get(ctx, tx, tenantID, reservationID)
	if err == nil && (r.ResourceKind != Kind || r.IsSetAside()) {
		err = reservations.ErrNotFound
	}
	return r, err
}
