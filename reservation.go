package holdfast

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/audit"
	"github.com/holdfast/holdfast/internal/inventory"
	"github.com/holdfast/holdfast/reservations"
)

type (
	// Actor is who makes a call: audit.User, audit.Job, audit.System.
	Actor = audit.Actor
	// Record is one row of the record: what happened, when, to what, by whom.
	Record = audit.Record
	// ReleaseReason is why a reservation was released.
	ReleaseReason = reservations.ReleaseReason
)

// The verbs of this file need only the id of a reservation, and no cart.

// one makes a call of a verb on one reservation.
func (t *Tenant) one(ctx context.Context, c *call[Reservation], verb *inventory.Call) (Reservation, error) {
	return c.synchronous(ctx, verb, func(changed []Reservation) Reservation { return changed[0] })
}

func (t *Tenant) commit(id uuid.UUID, opts *CallOpts) *call[Reservation] {
	return &call[Reservation]{t, opts, "Commit", []any{id}, func(ctx context.Context, tx pgx.Tx) (r Reservation, _, err error) {
		r, err = inventory.CommitTx(ctx, tx, t.TenantID, id, opts.origin())
		return r, nil, err
	}}
}

// Commit commits a hold: stock and reserved both fall by its units.
//
// Errors: ErrNotFound, *ConflictError, ErrCheckoutInProgress, *RefusedError,
// ErrKeyReused, ErrOutcomeUnknown.
func (t *Tenant) Commit(ctx context.Context, id uuid.UUID, opts *CallOpts) (Reservation, error) {
	return t.one(ctx, t.commit(id, opts), &inventory.Call{Action: inventory.CommitHold, ReservationID: id})
}

// CommitTx is Commit in the caller's transaction. It locks the stock, then the
// reservation.
func (t *Tenant) CommitTx(ctx context.Context, tx pgx.Tx, id uuid.UUID, opts *CallOpts) (Reservation, error) {
	return t.commit(id, opts).inTx(ctx, tx)
}

func (t *Tenant) release(id uuid.UUID, reason ReleaseReason, opts *CallOpts) *call[Reservation] {
	return &call[Reservation]{t, opts, "Release", []any{id, reason}, func(ctx context.Context, tx pgx.Tx) (Reservation, error, error) {
		r, conflict, err := inventory.ReleaseTx(ctx, tx, t.TenantID, id, reason, opts.origin())
		if conflict != nil {
			return r, conflict, err
		}
		return r, nil, err
	}}
}

// Release gives the units of a hold back, for one of the reasons of package
// reservations.
//
// Errors: *InvalidError for the reason, and as Commit.
func (t *Tenant) Release(ctx context.Context, id uuid.UUID, reason ReleaseReason, opts *CallOpts) (Reservation, error) {
	return t.one(ctx, t.release(id, reason, opts), &inventory.Call{Action: inventory.ReleaseHold, ReservationID: id, Reason: reason})
}

// ReleaseTx is Release in the caller's transaction. It locks the stock, then the
// reservation. If the *ConflictError means that the hold is expired, the
// transaction has recorded that, and may be committed or rolled back.
func (t *Tenant) ReleaseTx(ctx context.Context, tx pgx.Tx, id uuid.UUID, reason ReleaseReason, opts *CallOpts) (Reservation, error) {
	return t.release(id, reason, opts).inTx(ctx, tx)
}

func (t *Tenant) extendHold(id uuid.UUID, by time.Duration, opts *CallOpts) *call[Reservation] {
	return &call[Reservation]{t, opts, "ExtendHold", []any{id, by}, func(ctx context.Context, tx pgx.Tx) (r Reservation, _, err error) {
		r, err = inventory.ExtendTx(ctx, tx, t.TenantID, id, by, t.client.lifetimeMax(), opts.origin())
		return r, nil, err
	}}
}

// ExtendHold moves the deadline of a hold.
//
// Errors: *InvalidError, ErrLifetimeExceeded, and as Commit.
func (t *Tenant) ExtendHold(ctx context.Context, id uuid.UUID, by time.Duration, opts *CallOpts) (Reservation, error) {
	return t.one(ctx, t.extendHold(id, by, opts), &inventory.Call{
		Action: inventory.ExtendHold, ReservationID: id, By: by, LifetimeMax: t.client.lifetimeMax(),
	})
}

// ExtendHoldTx is ExtendHold in the caller's transaction. It locks the
// reservation.
func (t *Tenant) ExtendHoldTx(ctx context.Context, tx pgx.Tx, id uuid.UUID, by time.Duration, opts *CallOpts) (Reservation, error) {
	return t.extendHold(id, by, opts).inTx(ctx, tx)
}

// Reservation returns a reservation as it is now.
//
// Errors: ErrNotFound.
func (t *Tenant) Reservation(ctx context.Context, id uuid.UUID) (Reservation, error) {
	r, err := reservations.Get(ctx, t.client.db, t.TenantID, id)
	return r, vocabulary(err)
}

// History returns the record of a reservation, a request or a checkout, by its
// id, oldest first, at most the newest 1,000 rows.
func (t *Tenant) History(ctx context.Context, id uuid.UUID) ([]Record, error) {
	return audit.History(ctx, t.client.db, t.TenantID, id)
}
