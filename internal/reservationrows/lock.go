package reservationrows

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

const lockSQL = `
SELECT ` + columns + `
FROM reservations r
JOIN unnest($1::uuid[], $2::uuid[]) AS wanted (tenant_id, reservation_id) USING (tenant_id, reservation_id)
ORDER BY r.tenant_id, r.reservation_id
FOR NO KEY UPDATE OF r`

const clockSQL = `SELECT clock_timestamp()`

// LockTx locks the named reservations in (tenant, id) order, returns them as they are under the lock, and then reads the
// database's clock: a deadline compared with that reading can't have been moved since. Names that don't exist are left
// out. The caller holds the locks of their resources, unless its verb moves no counter.
func LockTx(ctx context.Context, tx pgx.Tx, refs []Ref) ([]Reservation, time.Time, error) {
	tenants, ids := split(refs)
	return lock(ctx, tx, lockSQL, tenants, ids)
}

// Clock reads the database's clock.
func Clock(ctx context.Context, tx pgx.Tx) (now time.Time, err error) {
	if err := tx.QueryRow(ctx, clockSQL).Scan(&now); err != nil {
		return now, fmt.Errorf("read the clock: %w", err)
	}
	return now, nil
}

// lockDueSQL passes by what another transaction has locked, so that a sweep waits for no lock, and a transaction that has
// one of these rows and wants another cannot wait for the sweep in a circle. See dueSQL.
const lockDueSQL = `
SELECT ` + columns + `
FROM reservations r
WHERE r.ended_at IS NULL AND r.status = 'held' AND r.expires_at <= (SELECT clock_timestamp()) AND r.resource_kind = $1
ORDER BY r.expires_at
LIMIT $2
FOR NO KEY UPDATE SKIP LOCKED`

// LockDueTx is LockTx for up to limit reservations of a kind that are past their deadline, of every tenant, the longest
// due first. It waits for no lock: a reservation that another transaction has locked is left out.
func LockDueTx(ctx context.Context, tx pgx.Tx, kind string, limit int) ([]Reservation, time.Time, error) {
	return lock(ctx, tx, lockDueSQL, kind, limit)
}

// lockDueOfKeysSQL reads each resource's own range of reservations_held_idx, from a deadline on. See lockDueSQL.
const lockDueOfKeysSQL = `
SELECT ` + columns + `
FROM unnest($2::uuid[], $3::text[], $4::bigint[], $5::timestamptz[]) AS wanted (tenant_id, resource_key, most, since)
CROSS JOIN LATERAL (
    SELECT held.*
    FROM reservations held
    WHERE held.tenant_id = wanted.tenant_id AND held.resource_kind = $1 AND held.resource_key = wanted.resource_key
      AND held.status = 'held' AND held.expires_at >= wanted.since AND held.expires_at <= (SELECT clock_timestamp())
    ORDER BY held.expires_at
    LIMIT wanted.most
    FOR NO KEY UPDATE SKIP LOCKED
) AS r`

// DueOfOne asks for the reservations of one resource that are past their deadline: at most Most, which were due at Since
// or later. The zero Since is any time.
type DueOfOne struct {
	Resource
	Most  int
	Since time.Time
}

// QueueLockDueOfKeys adds to b a statement that locks due reservations of a kind, of each resource the longest due first,
// and gives them to locked. It waits for no lock: a reservation that another transaction has locked is left out.
func QueueLockDueOfKeys(b *pgx.Batch, kind string, wanted []DueOfOne, locked func([]Reservation)) {
	tenants, keys := make([][16]byte, len(wanted)), make([]string, len(wanted))
	most, since := make([]int64, len(wanted)), make([]time.Time, len(wanted))
	for i, w := range wanted {
		tenants[i], keys[i], most[i], since[i] = w.TenantID, w.ResourceKey, int64(w.Most), w.Since
	}
	b.Queue(lockDueOfKeysSQL, kind, tenants, keys, most, since).Query(func(rows pgx.Rows) error {
		due, err := pgx.CollectRows(rows, toReservation)
		if err == nil {
			locked(due)
		}
		return err
	})
}

// lockLinesSQL looks holders up; see heldByHolderSQL.
const lockLinesSQL = `
SELECT ` + columns + `
FROM reservations r
JOIN unnest($2::uuid[], $3::text[], $4::text[]) AS line (tenant_id, holder_id, resource_key)
  USING (tenant_id, holder_id, resource_key)
WHERE r.resource_kind = $1 AND r.ended_at IS NULL
ORDER BY r.tenant_id, r.reservation_id
FOR NO KEY UPDATE OF r`

// Line names the reservations of one holder on one resource.
type Line struct {
	TenantID              uuid.UUID
	HolderID, ResourceKey string
}

// LockLinesTx is LockTx for all held reservations of the lines, which must be distinct. The caller holds the locks of
// their resources, so that no hold can join a line meanwhile.
func LockLinesTx(ctx context.Context, tx pgx.Tx, kind string, lines []Line) ([]Reservation, time.Time, error) {
	tenants, holders, keys := splitLines(lines)
	return lock(ctx, tx, lockLinesSQL, kind, tenants, holders, keys)
}

func lock(ctx context.Context, tx pgx.Tx, sql string, args ...any) (locked []Reservation, now time.Time, err error) {
	b := &pgx.Batch{}
	b.Queue(sql, args...).Query(func(rows pgx.Rows) error {
		locked, err = pgx.CollectRows(rows, toReservation)
		return err
	})
	b.Queue(clockSQL).QueryRow(func(row pgx.Row) error { return row.Scan(&now) })
	if err := tx.SendBatch(ctx, b).Close(); err != nil {
		return nil, time.Time{}, fmt.Errorf("lock reservations: %w", err)
	}
	return locked, now, nil
}

func split(refs []Ref) (tenants, ids [][16]byte) {
	tenants, ids = make([][16]byte, len(refs)), make([][16]byte, len(refs))
	for i, r := range refs {
		tenants[i], ids[i] = r.TenantID, r.ReservationID
	}
	return tenants, ids
}
