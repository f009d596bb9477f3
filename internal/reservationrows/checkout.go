package reservationrows

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/audit"
)

const lockToCheckoutSQL = `
UPDATE reservations r
SET checkout_id = $3, expires_at = $4
FROM unnest($1::uuid[], $2::uuid[]) AS locked (tenant_id, reservation_id)
WHERE r.tenant_id = locked.tenant_id AND r.reservation_id = locked.reservation_id
  AND r.status = 'held' AND r.checkout_id IS NULL`

// QueueLockToCheckout adds to b what locks reservations to a checkout and sets
// their deadlines, and their audit rows (reservation.extended). It updates the
// given values too. The caller has locked the reservations and found them held
// and in no checkout; otherwise it fails the batch with ErrChanged.
//
// From then on [MustBeLive] refuses them with ErrCheckoutInProgress. They still
// expire at the deadline.
func QueueLockToCheckout(b *pgx.Batch, locked []Reservation, checkoutID uuid.UUID, deadline time.Time, origin audit.Origin) {
	entries, kinds := make([]audit.Entry, len(locked)), make([]string, len(locked))
	for i := range locked {
		kinds[i] = locked[i].ResourceKind
		entries[i] = locked[i].change(EventExtended, origin, func(r *Reservation) { r.CheckoutID, r.ExpiresAt = checkoutID, deadline })
	}
	tenants, ids := split(Refs(locked))
	b.Queue(lockToCheckoutSQL, tenants, ids, checkoutID, deadline).Exec(exactly(len(locked), "lock to a checkout"))
	queueLowerMarks(b, kinds, []time.Time{deadline})
	audit.Queue(b, entries)
}

// keepSQL skips due reservations, and locks no resource; see lockLiveSQL.
const keepSQL = `
SELECT ` + columns + `
FROM reservations r
WHERE r.tenant_id = $1 AND r.checkout_id = $2 AND r.ended_at IS NULL AND r.expires_at > clock_timestamp()
ORDER BY r.reservation_id
FOR NO KEY UPDATE`

// KeepCheckoutTx moves the deadlines of all reservations of a checkout that are
// held and live to the given time after now, unless they are later already, and
// returns these reservations. It locks only the reservations, and waits for no
// resource: no deadline becomes earlier than what the marks allow.
func KeepCheckoutTx(ctx context.Context, tx pgx.Tx, tenantID, checkoutID uuid.UUID, longer time.Duration, origin audit.Origin) ([]Reservation, error) {
	locked, now, err := lock(ctx, tx, keepSQL, tenantID, checkoutID)
	if err != nil {
		return nil, err
	}
	kept := locked[:0]
	var moved []Reservation
	var entries []audit.Entry
	for _, r := range locked {
		if r.Due(now) { // while it waited for a lock
			continue
		}
		if deadline := now.Add(longer); deadline.After(r.ExpiresAt) {
			entries = append(entries, r.change(EventExtended, origin, func(r *Reservation) { r.ExpiresAt = deadline }))
			moved = append(moved, r)
		}
		kept = append(kept, r)
	}
	if len(moved) == 0 {
		return kept, nil
	}
	b := &pgx.Batch{}
	QueueDeadlines(b, moved)
	audit.Queue(b, entries)
	if err := tx.SendBatch(ctx, b).Close(); err != nil {
		return nil, fmt.Errorf("keep the reservations of checkout %s: %w", checkoutID, err)
	}
	return kept, nil
}

const ofCheckoutSQL = `
SELECT ` + columns + clockColumn + `
FROM reservations r
WHERE r.tenant_id = $1 AND r.checkout_id = $2
ORDER BY r.reservation_id
LIMIT $3`

// OfCheckout returns all reservations that were locked to a checkout, in any
// status, each as [Get] returns it. It locks nothing.
func OfCheckout(ctx context.Context, db audit.Querier, tenantID, checkoutID uuid.UUID) ([]Reservation, error) {
	return collect(ctx, db, toShown, "checkout "+checkoutID.String(), ofCheckoutSQL, tenantID, checkoutID, HeldMax)
}
