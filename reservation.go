package holdfast

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/audit"
	"github.com/holdfast/holdfast/internal/carts"
	"github.com/holdfast/holdfast/internal/inventory"
	"github.com/holdfast/holdfast/reservations"
)

// The verbs of this file need only the id of a reservation, and no cart.

func one(a carts.Applied) Reservation { return a.Reservations[0] }

func (t *Tenant) commit(id uuid.UUID, opts *CallOpts) *call[Reservation] {
	return holdCall(t, opts, "Commit", inventory.Call{Action: inventory.CommitHold, ReservationID: id}, one)
}

// Commit commits a hold: stock and reserved both fall by its units.
//
// Errors: ErrNotFound, *ConflictError, ErrCheckoutInProgress, *RefusedError,
// ErrKeyReused, ErrOutcomeUnknown.
func (t *Tenant) Commit(ctx context.Context, id uuid.UUID, opts *CallOpts) (Reservation, error) {
	return t.commit(id, opts).grouped(ctx)
}

// CommitTx is Commit in the caller's transaction. It locks the stock, then the
// reservation.
func (t *Tenant) CommitTx(ctx context.Context, tx pgx.Tx, id uuid.UUID, opts *CallOpts) (Reservation, error) {
	return t.commit(id, opts).inTx(ctx, tx)
}

// Part is some of the units of a reservation: a quantity, or the named units of
// a block.
type Part = inventory.Part

// CommittedPart is the result of CommitPart.
type CommittedPart struct {
	// Committed is a reservation of its own, with its PartOf; or the hold, if all
	// of it was committed.
	Committed Reservation
	// Rest is what is still held; nil if nothing is.
	Rest *Reservation
}

func (t *Tenant) commitPart(id uuid.UUID, part Part, opts *CallOpts) *call[CommittedPart] {
	return &call[CommittedPart]{
		tenant: t, opts: opts, verb: "CommitPart", args: []any{id, part},
		do: func(ctx context.Context, tx pgx.Tx) (c CommittedPart, _, err error) {
			c.Committed, c.Rest, err = inventory.CommitPartTx(ctx, tx, t.TenantID, id, part, opts.origin())
			return c, nil, err
		},
	}
}

// CommitPart commits some of the units of a hold. The rest stays held, with its
// id and deadline.
//
// Errors: *InvalidError for units that are not of the hold, ErrPartOfKit, and as
// Commit.
func (t *Tenant) CommitPart(ctx context.Context, id uuid.UUID, part Part, opts *CallOpts) (CommittedPart, error) {
	return t.commitPart(id, part, opts).run(ctx)
}

// CommitPartTx is CommitPart in the caller's transaction. It locks the stock,
// then the reservation.
func (t *Tenant) CommitPartTx(ctx context.Context, tx pgx.Tx, id uuid.UUID, part Part, opts *CallOpts) (CommittedPart, error) {
	return t.commitPart(id, part, opts).inTx(ctx, tx)
}

func (t *Tenant) returnPart(id uuid.UUID, part Part, opts *CallOpts) *call[Reservation] {
	return &call[Reservation]{
		tenant: t, opts: opts, verb: "Return", args: []any{id, part, opts.origin().Reason},
		do: func(ctx context.Context, tx pgx.Tx) (r Reservation, _, err error) {
			r, err = inventory.ReturnTx(ctx, tx, t.TenantID, id, part, opts.origin())
			return r, nil, err
		},
	}
}

// Return brings units of a committed reservation back, for the Reason of opts:
// they are for sale again.
//
// Errors: *InvalidError, ErrNotFound, *ConflictError for a reservation that is
// not committed, ErrReturnExceeds, ErrUnknownVariant if the stock was deleted,
// ErrKeyReused, ErrOutcomeUnknown.
func (t *Tenant) Return(ctx context.Context, id uuid.UUID, part Part, opts *CallOpts) (Reservation, error) {
	return t.returnPart(id, part, opts).run(ctx)
}

// ReturnTx is Return in the caller's transaction. It locks the stock, then the
// reservation.
func (t *Tenant) ReturnTx(ctx context.Context, tx pgx.Tx, id uuid.UUID, part Part, opts *CallOpts) (Reservation, error) {
	return t.returnPart(id, part, opts).inTx(ctx, tx)
}

func (t *Tenant) release(id uuid.UUID, reason ReleaseReason, opts *CallOpts) *call[Reservation] {
	return holdCall(t, opts, "Release", inventory.Call{Action: inventory.ReleaseHold, ReservationID: id, Reason: reason}, one)
}

// Release gives the units of a hold back.
//
// Errors: *InvalidError for the reason, and as Commit.
func (t *Tenant) Release(ctx context.Context, id uuid.UUID, reason ReleaseReason, opts *CallOpts) (Reservation, error) {
	return t.release(id, reason, opts).grouped(ctx)
}

// ReleaseTx is Release in the caller's transaction. It locks the stock, then the
// reservation. If the *ConflictError means that the hold is expired, the
// transaction has recorded that, and may be committed or rolled back.
func (t *Tenant) ReleaseTx(ctx context.Context, tx pgx.Tx, id uuid.UUID, reason ReleaseReason, opts *CallOpts) (Reservation, error) {
	return t.release(id, reason, opts).inTx(ctx, tx)
}

func (t *Tenant) extendHold(id uuid.UUID, by time.Duration, opts *CallOpts) *call[Reservation] {
	return holdCall(t, opts, "ExtendHold", inventory.Call{Action: inventory.ExtendHold, ReservationID: id, By: by}, one)
}

// ExtendHold moves the deadline of a hold.
//
// Errors: *InvalidError, ErrLifetimeExceeded, and as Commit.
func (t *Tenant) ExtendHold(ctx context.Context, id uuid.UUID, by time.Duration, opts *CallOpts) (Reservation, error) {
	return t.extendHold(id, by, opts).grouped(ctx)
}

// ExtendHoldTx is ExtendHold in the caller's transaction. It locks the
// reservation.
func (t *Tenant) ExtendHoldTx(ctx context.Context, tx pgx.Tx, id uuid.UUID, by time.Duration, opts *CallOpts) (Reservation, error) {
	return t.extendHold(id, by, opts).inTx(ctx, tx)
}

// Reservation returns a reservation of a variant as it is now.
//
// Errors: ErrNotFound.
func (t *Tenant) Reservation(ctx context.Context, id uuid.UUID) (Reservation, error) {
	r, err := reservations.Get(ctx, t.client.db, t.TenantID, id)
	if err == nil && (r.ResourceKind != inventory.Kind || r.IsSetAside()) {
		return Reservation{}, ErrNotFound
	}
	return r, vocabulary(err)
}

// History returns the record of a reservation, a request or a checkout, by its
// id, oldest first, at most the newest 1,000 rows.
func (t *Tenant) History(ctx context.Context, id uuid.UUID) ([]audit.Record, error) {
	return audit.History(ctx, t.client.db, t.TenantID, id)
}
