package reservations

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/audit"
)

const extendSQL = `
UPDATE reservations r
SET expires_at = longer.expires_at
FROM unnest($1::uuid[], $2::uuid[], $3::timestamptz[]) AS longer (tenant_id, reservation_id, expires_at)
WHERE r.tenant_id = longer.tenant_id AND r.reservation_id = longer.reservation_id AND r.status = 'held'`

// ExtendTx moves the deadlines of the named reservations by the given time, all or none, and returns them. It locks the
// reservations alone, in (tenant, id) order. A deadline can't pass lifetimeMax after the first hold.
//
// Errors: ErrNotFound, ErrLifetimeExceeded, *ConflictError for one that has ended or is past its deadline.
func ExtendTx(ctx context.Context, tx pgx.Tx, refs []Ref, by, lifetimeMax time.Duration, origin audit.Origin) ([]Reservation, error) {
	locked, now, err := LockTx(ctx, tx, refs)
	if err != nil {
		return nil, err
	}
	if len(locked) != len(refs) {
		return nil, ErrNotFound
	}
	deadlines := make([]time.Time, len(locked))
	entries := make([]audit.Entry, len(locked))
	for i := range locked {
		r := &locked[i]
		if err := r.mustBeLive(now); err != nil {
			return nil, err
		}
		deadlines[i] = r.ExpiresAt.Add(by)
		if deadlines[i].After(r.FirstHeldAt.Add(lifetimeMax)) {
			return nil, fmt.Errorf("extend reservation %s: %w", r.ReservationID, ErrLifetimeExceeded)
		}
		before := r.state()
		r.ExpiresAt = deadlines[i]
		entries[i] = audit.Entry{
			TenantID: r.TenantID, TargetID: r.ReservationID, Action: "reservation.extended",
			Origin: origin, Before: before, After: r.state(),
		}
	}
	tenants, ids := split(refsOf(locked))
	b := &pgx.Batch{}
	b.Queue(extendSQL, tenants, ids, deadlines).Exec(exactly(len(locked), "extend"))
	audit.Queue(b, entries)
	return locked, tx.SendBatch(ctx, b).Close()
}

// mustBeLive returns a *ConflictError unless the reservation is held and before its deadline.
func (r *Reservation) mustBeLive(now time.Time) error {
	switch {
	case r.Due(now):
		return &ConflictError{ID: r.ReservationID, Expected: Held, Actual: Expired}
	case r.Status != Held:
		return &ConflictError{ID: r.ReservationID, Expected: Held, Actual: r.Status}
	default:
		return nil
	}
}

// MustBeLive returns a *ConflictError unless every reservation is held and before its deadline at now, a reading of the
// database's clock taken after they were locked.
func MustBeLive(locked []Reservation, now time.Time) error {
	for i := range locked {
		if err := locked[i].mustBeLive(now); err != nil {
			return err
		}
	}
	return nil
}

func refsOf(rs []Reservation) []Ref {
	refs := make([]Ref, len(rs))
	for i := range rs {
		refs[i] = rs[i].Ref()
	}
	return refs
}
