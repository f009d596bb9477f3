package reservationrows

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/audit"
)

const extendSQL = `
UPDATE reservations r
SET expires_at = longer.expires_at
FROM unnest($1::uuid[], $2::uuid[], $3::timestamptz[]) AS longer (tenant_id, reservation_id, expires_at)
WHERE r.tenant_id = longer.tenant_id AND r.reservation_id = longer.reservation_id AND r.status = 'held'`

// ExtendTx moves the deadlines of the named reservations by the given time, all
// or none, and returns them. A deadline can't pass lifetimeMax after the first
// hold.
//
// It locks only the reservations, in (tenant, id) order.
//
// Errors: ErrNotFound, ErrLifetimeExceeded, *ConflictError for one that has
// ended or is past its deadline.
func ExtendTx(ctx context.Context, tx pgx.Tx, refs []Ref, by, lifetimeMax time.Duration, origin audit.Origin) ([]Reservation, error) {
	locked, now, err := LockTx(ctx, tx, refs)
	if err != nil {
		return nil, err
	}
	if len(locked) != len(refs) {
		return nil, ErrNotFound
	}
	return ExtendLockedTx(ctx, tx, locked, now, by, lifetimeMax, origin)
}

// lockLiveSQL skips due reservations. Another transaction may have locked one
// reservation of the holder and wait to expire these. An extension does not
// lock the resource, which would prevent a deadlock of the two.
const lockLiveSQL = `
SELECT ` + columns + `
FROM reservations r
WHERE same_holder(r.tenant_id, r.holder_id, $1, $2) AND r.resource_kind = $3 AND r.ended_at IS NULL AND r.expires_at > clock_timestamp()
ORDER BY r.reservation_id
LIMIT $4
FOR NO KEY UPDATE`

// extendTries is how often ExtendHolderTx reads and locks the holder's
// reservations, because new ones may be made while it waits for locks.
const extendTries = 3

// errNewHolds means that new holds were made for the holder while its
// reservations were being locked.
var errNewHolds = errors.New("the holder has new holds")

// ExtendHolderTx is ExtendTx for everything of a kind that is held for one
// holder. It returns no rows if nothing is held. A hold that is made during the
// last try may be left out, because it has its full time left.
//
// Errors: ErrLifetimeExceeded, *ConflictError for one that is past its
// deadline.
func ExtendHolderTx(ctx context.Context, tx pgx.Tx, tenantID uuid.UUID, kind, holderID string, by, lifetimeMax time.Duration, origin audit.Origin) (locked []Reservation, err error) {
	var now time.Time
	for try := 1; ; try++ {
		// in a savepoint, because a second try must not lock a new hold while
		// it has locks on holds with higher ids
		err = pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) (err error) {
			locked, now, err = lock(ctx, tx, lockLiveSQL, tenantID, holderID, kind, HeldMax)
			if err != nil {
				return err
			}
			complete, err := hasAll(ctx, tx, tenantID, kind, holderID, locked, now)
			if err == nil && !complete && try < extendTries {
				err = errNewHolds
			}
			return err
		})
		if err == nil {
			return ExtendLockedTx(ctx, tx, locked, now, by, lifetimeMax, origin)
		}
		if !errors.Is(err, errNewHolds) {
			return nil, err
		}
	}
}

// hasAll reports whether the locked reservations are all those held for the
// holder. It returns a *ConflictError if one of them is due.
func hasAll(ctx context.Context, tx pgx.Tx, tenantID uuid.UUID, kind, holderID string, locked []Reservation, now time.Time) (bool, error) {
	held, err := HeldByHolder(ctx, tx, tenantID, kind, holderID)
	if err != nil {
		return false, err
	}
	ours := make(map[uuid.UUID]bool, len(locked))
	for i := range locked {
		ours[locked[i].ReservationID] = true
	}
	all := true
	for i := range held {
		if held[i].Due(now) {
			return false, held[i].mustBeLive(now)
		}
		all = all && ours[held[i].ReservationID]
	}
	return all, nil
}

// ExtendLockedTx is ExtendTx for reservations that LockTx has locked; now is
// the reading that it returned.
func ExtendLockedTx(ctx context.Context, tx pgx.Tx, locked []Reservation, now time.Time, by, lifetimeMax time.Duration, origin audit.Origin) ([]Reservation, error) {
	entries, err := Extend(locked, now, by, lifetimeMax, origin)
	if err != nil {
		return nil, err
	}
	b := &pgx.Batch{}
	QueueDeadlines(b, locked)
	audit.Queue(b, entries)
	return locked, tx.SendBatch(ctx, b).Close()
}

// Extend moves the deadlines of the values, all or none, and returns the audit
// entries. now is a reading of the database's clock, taken after they were
// locked. Errors: see ExtendTx.
func Extend(locked []Reservation, now time.Time, by, lifetimeMax time.Duration, origin audit.Origin) ([]audit.Entry, error) {
	if err := MustBeLive(locked, now); err != nil {
		return nil, err
	}
	for i := range locked {
		r := &locked[i]
		if r.ExpiresAt.Add(by).After(r.FirstHeldAt.Add(lifetimeMax)) {
			return nil, fmt.Errorf("%w: extend %s", ErrLifetimeExceeded, r.ReservationID)
		}
	}
	entries := make([]audit.Entry, len(locked))
	for i := range locked {
		entries[i] = locked[i].change(EventExtended, origin, func(r *Reservation) { r.ExpiresAt = r.ExpiresAt.Add(by) })
	}
	return entries, nil
}

// QueueDeadlines adds to b a statement that writes the deadlines of held
// reservations, which the caller has locked. A reservation that is no longer
// held fails the batch with ErrChanged.
func QueueDeadlines(b *pgx.Batch, extended []Reservation) {
	deadlines := make([]time.Time, len(extended))
	for i := range extended {
		deadlines[i] = extended[i].ExpiresAt
	}
	tenants, ids := split(Refs(extended))
	b.Queue(extendSQL, tenants, ids, deadlines).Exec(exactly(len(extended), "extend"))
}

// mustBeLive returns a *ConflictError unless the reservation is held and before
// its deadline, and ErrCheckoutInProgress if it is locked to a checkout.
func (r *Reservation) mustBeLive(now time.Time) error {
	switch {
	case r.Due(now):
		return &ConflictError{ID: r.ReservationID, Expected: Held, Actual: Expired}
	case r.Status != Held:
		return &ConflictError{ID: r.ReservationID, Expected: Held, Actual: r.Status}
	case r.InCheckout():
		return ErrCheckoutInProgress
	default:
		return nil
	}
}

// MustBeLive returns a *ConflictError unless every reservation is held and
// before its deadline at now, a reading of the database's clock taken after
// they were locked. It returns ErrCheckoutInProgress for one that is locked to
// a checkout.
func MustBeLive(locked []Reservation, now time.Time) error {
	for i := range locked {
		if err := locked[i].mustBeLive(now); err != nil {
			return err
		}
	}
	return nil
}

// Refs returns the names of the reservations.
func Refs(rs []Reservation) []Ref {
	refs := make([]Ref, len(rs))
	for i := range rs {
		refs[i] = rs[i].Ref()
	}
	return refs
}
