package reservationrows

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/internal/pg"
)

const lockSQL = `
SELECT ` + columns + `
FROM reservations r
JOIN unnest($1::uuid[], $2::uuid[]) AS wanted (tenant_id, reservation_id) USING (tenant_id, reservation_id)
ORDER BY r.tenant_id, r.reservation_id
FOR NO KEY UPDATE OF r`

// LockTx locks the named reservations in (tenant, id) order, returns them as
// they are under the lock, and then reads the database's clock: a deadline
// compared with that reading can't have been moved since. Names that don't
// exist are left out.
//
// The caller has locked their resources, unless its verb changes no counter.
func LockTx(ctx context.Context, tx pgx.Tx, refs []Ref) ([]Reservation, time.Time, error) {
	tenants, ids := split(refs)
	return lock(ctx, tx, lockSQL, tenants, ids)
}

const tryLockSQL = lockSQL + `
SKIP LOCKED`

// TryLockTx is LockTx without waiting: it leaves out reservations that another
// transaction has locked.
func TryLockTx(ctx context.Context, tx pgx.Tx, refs []Ref) ([]Reservation, time.Time, error) {
	tenants, ids := split(refs)
	return lock(ctx, tx, tryLockSQL, tenants, ids)
}

// HolderKey names the reservations of one holder on one resource key.
type HolderKey struct {
	TenantID              uuid.UUID
	HolderID, ResourceKey string
}

// HolderKeyOf returns the holder and the resource key of a reservation.
func HolderKeyOf(r *Reservation) HolderKey { return HolderKey{r.TenantID, r.HolderID, r.ResourceKey} }

// tryLockNamedSQL reads the pairs by holder. It then locks each row that it
// found by primary key. A row that it cannot lock is returned
// as it was read.
const tryLockNamedSQL = `
WITH found AS MATERIALIZED (
    SELECT r.*
    FROM unnest($2::uuid[], $3::uuid[]) AS named (tenant_id, reservation_id)
    JOIN reservations r USING (tenant_id, reservation_id)
    UNION ALL
    SELECT r.*
    FROM reservations r
    JOIN unnest($4::uuid[], $5::text[], $6::text[]) AS pair (tenant_id, holder_id, resource_key)
      ON same_holder(r.tenant_id, r.holder_id, pair.tenant_id, pair.holder_id) AND same_key(r.resource_key, pair.resource_key)
    WHERE r.resource_kind = $1 AND r.ended_at IS NULL
), locked AS MATERIALIZED (
    SELECT own.*
    FROM found
    CROSS JOIN LATERAL (
        SELECT r.*
        FROM reservations r
        WHERE r.tenant_id = found.tenant_id AND r.reservation_id = found.reservation_id
        FOR NO KEY UPDATE SKIP LOCKED
    ) AS own
)
SELECT ` + columns + `, true AS locked
FROM locked r
UNION ALL
SELECT ` + columns + `, false
FROM found r
WHERE (r.tenant_id, r.reservation_id) NOT IN (SELECT tenant_id, reservation_id FROM locked)
ORDER BY 1, 2`

// QueueTryLock is QueueLock without waiting: done also gets the reservations
// that another transaction has locked, as they were read. No reservation may be
// both named and of a pair.
func QueueTryLock(b *pgx.Batch, kind string, refs []Ref, pairs []HolderKey, done func(locked, others []Reservation)) {
	tenants, ids := split(refs)
	keyTenants, holders, keys := splitHolderKeys(pairs)
	b.Queue(tryLockNamedSQL, kind, tenants, ids, keyTenants, holders, keys).Query(func(rows pgx.Rows) error {
		var locked, others []Reservation
		_, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (r Reservation, err error) {
			var own bool
			if r, err = scan(row, &own); own {
				locked = append(locked, r)
			} else {
				others = append(others, r)
			}
			return r, err
		})
		if err == nil {
			done(locked, others)
		}
		return err
	})
}

func lock(ctx context.Context, tx pgx.Tx, sql string, args ...any) ([]Reservation, time.Time, error) {
	b := &pgx.Batch{}
	locked := pg.Collect(b, toReservation, sql, args...)
	now, err := sendLock(ctx, tx, b)
	return *locked, now, err
}

// sendLock sends the batch, and reads the clock under its locks.
func sendLock(ctx context.Context, tx pgx.Tx, b *pgx.Batch) (now time.Time, err error) {
	pg.QueueClock(b, &now)
	if err := tx.SendBatch(ctx, b).Close(); err != nil {
		return time.Time{}, fmt.Errorf("lock reservations: %w", err)
	}
	return now, nil
}

func split(refs []Ref) (tenants, ids [][16]byte) {
	tenants, ids = make([][16]byte, len(refs)), make([][16]byte, len(refs))
	for i, r := range refs {
		tenants[i], ids[i] = r.TenantID, r.ReservationID
	}
	return tenants, ids
}
