package reservationrows

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/audit"
	"github.com/holdfast/holdfast/internal/pg"
)

// dueFrom is the mark of the kind $1 (see MoveMark), or NULL.
const dueFrom = `(SELECT m.due_from FROM reservation_marks m WHERE m.resource_kind = $1)`

// dueRange are the deadlines from $3, or from the mark of the kind, up to now.
// The sub-selects make each bound one value, which bounds the index scan; a
// reading of the clock per row would scan all deadlines.
const dueRange = `next.quantity >= 1 AND next.expires_at >= (SELECT greatest($3::timestamptz, ` + dueFrom + `)) AND next.expires_at <= (SELECT clock_timestamp())`

// dueSQL reads at most $7 reservations, those that have ended included. The
// excluded resources are hashed once and compared with each row. Tenants that
// move to another cell, or from one, are left to their move.
const dueSQL = `
SELECT ` + columns + `, r.version
FROM (
    SELECT next.*, next.xmin AS version
    FROM reservations next
    WHERE ` + dueRange + `
    ORDER BY next.expires_at
    LIMIT $7
) r
WHERE r.status = 'held' AND r.resource_kind = $1
  AND (r.tenant_id, r.resource_key) NOT IN (SELECT e.tenant_id, e.resource_key FROM unnest($4::uuid[], $5::text[]) AS e (tenant_id, resource_key))
  AND r.tenant_id <> ALL ($6::uuid[])
  AND r.tenant_id NOT IN (SELECT s.tenant_id FROM tenant_state s WHERE s.state <> 'active')
ORDER BY r.expires_at
LIMIT $2`

// beyondSQL returns the deadline at which dueSQL stopped reading, no row if it
// has read the whole range.
const beyondSQL = `
SELECT next.expires_at
FROM reservations next
WHERE $1 <> '' AND ` + dueRange + `
ORDER BY next.expires_at
OFFSET $2
LIMIT 1`

// Resource names a resource of a kind.
type Resource struct {
	TenantID    uuid.UUID
	ResourceKey string
}

// DueQuery selects the reservations past their deadline that are read next.
type DueQuery struct {
	Kind string
	// From is the earliest deadline, zero for the mark of the kind. A caller
	// that continues at the last deadline it read does not read again what it
	// excluded before.
	From time.Time
	// Except are resources whose reservations are excluded.
	Except []Resource
	// ExceptTenants are tenants whose reservations are all excluded.
	ExceptTenants []uuid.UUID
}

// scanMax is how many reservations one statement reads at most to find those
// that are due.
const scanMax = 20_000

// Due returns up to limit reservations that are held and past their deadline,
// the longest due first, without locking, and their versions. From the mark or
// from From on, it reads all reservations in the order of their deadlines, in
// bounded statements.
func Due(ctx context.Context, db pg.Batcher, query DueQuery, limit int) (due []Reservation, versions Versions, err error) {
	tenants, keys := make([][16]byte, len(query.Except)), make([]string, len(query.Except))
	for i, e := range query.Except {
		tenants[i], keys[i] = e.TenantID, e.ResourceKey
	}
	all := make([][16]byte, len(query.ExceptTenants))
	for i, id := range query.ExceptTenants {
		all[i] = id
	}
	type seen struct {
		Reservation
		version uint32
	}
	toSeen := func(row pgx.CollectableRow) (s seen, err error) {
		s.Reservation, err = scan(row, &s.version)
		return s, err
	}
	versions = make(Versions)
	for from, scan := query.From, scanMax; ; {
		// The statement may read again what was found at the deadline from.
		again := 0
		for i := range due {
			if due[i].ExpiresAt.Equal(from) {
				again++
			}
		}
		wanted := limit - len(due) + again
		read, err := pg.ReadInOrder(ctx, db, toSeen, dueSQL, query.Kind, wanted, from, tenants, keys, all, scan)
		if err != nil {
			return nil, nil, fmt.Errorf("read due %s: %w", query.Kind, err)
		}
		for _, r := range read {
			if _, again := versions[r.Ref()]; !again && len(due) < limit {
				versions[r.Ref()] = r.version
				due = append(due, r.Reservation)
			}
		}
		if len(due) == limit || len(read) == wanted {
			return due, versions, nil
		}
		beyond, err := pg.ReadInOrder(ctx, db, pgx.RowTo[time.Time], beyondSQL, query.Kind, scan, from)
		if err != nil {
			return nil, nil, fmt.Errorf("read due %s: %w", query.Kind, err)
		}
		if len(beyond) == 0 {
			return due, versions, nil
		}
		if !beyond[0].After(from) { // so many have one deadline
			scan *= 2
		}
		from = beyond[0]
	}
}

// LockDueTx locks up to limit reservations of Due, in (tenant, id) order, and
// then reads the database's clock; see LockTx. It waits for no lock: it leaves
// out a reservation that another transaction has locked. found are those that
// it read before it locked.
func LockDueTx(ctx context.Context, tx pgx.Tx, query DueQuery, limit int) (found, locked []Reservation, now time.Time, err error) {
	found, _, err = Due(ctx, tx, query, limit)
	if err != nil {
		return nil, nil, time.Time{}, err
	}
	locked, now, err = TryLockTx(ctx, tx, Refs(found))
	return found, locked, now, err
}

// OldestDue returns how long the oldest due reservation of a kind is past its
// deadline, 0 if none is due.
func OldestDue(ctx context.Context, db pg.Batcher, kind string) (time.Duration, error) {
	due, _, err := Due(ctx, db, DueQuery{Kind: kind}, 1)
	if err != nil || len(due) == 0 {
		return 0, err
	}
	var now time.Time
	b := &pgx.Batch{}
	pg.QueueClock(b, &now)
	err = db.SendBatch(ctx, b).Close()
	return max(now.Sub(due[0].ExpiresAt), 0), err
}

// keptBehind is how far behind the mark of its kind a kernel counts and searches
// the reservations of a key. The mark may pass a hold after the clock was set
// back (see MoveMark), and then only a sweep must miss it.
const keptBehind = `interval '1 day'`

// MarkOf is a SQL expression of the deadline from which a kernel counts the
// reservations of a key. which is the condition that selects the mark m;
// without a mark, all are counted.
func MarkOf(which string) string {
	return `(SELECT coalesce((SELECT m.due_from - ` + keptBehind + ` FROM reservation_marks m WHERE ` + which + `), '-infinity'))`
}

// dueOfWindowSQL waits for no lock. See dueRange.
var dueOfWindowSQL = `
SELECT ` + columns + `
FROM reservations r
WHERE r.resource_kind = $1 AND r.tenant_id = $2 AND r.resource_key = $3 AND r.quantity > 0 AND r.status = 'held'
  AND r.expires_at >= ` + MarkOf("m.resource_kind = $1") + ` AND r.expires_at <= (SELECT clock_timestamp())
  AND ($4 OR coalesce(r.resource_window, '') = $5)
ORDER BY r.expires_at
LIMIT $6`

// DueOfWindow is Due for one window of a resource, or for all its windows.
func DueOfWindow(ctx context.Context, db audit.Querier, tenantID uuid.UUID, kind, key string, allWindows bool, window string, limit int) ([]Reservation, error) {
	return collect(ctx, db, toReservation, "due "+key, dueOfWindowSQL, kind, tenantID, key, allWindows, window, limit)
}

// nextDueSQL reads at most $4 reservations of all tenants, in the order of their
// deadlines, and selects those that are held and of one tenant.
const nextDueSQL = `
SELECT ` + columns + `
FROM (
    SELECT next.*
    FROM reservations next
    WHERE next.quantity >= 1 AND next.expires_at > (SELECT clock_timestamp())
    ORDER BY next.expires_at
    LIMIT $4
) r
WHERE r.tenant_id = $1 AND r.resource_kind = $2 AND r.status = 'held' AND ` + notSetAside + `
ORDER BY r.expires_at
LIMIT $3`

// nextDueOfTenantSQL reads the tenant's $4 newest reservations, by the primary
// key.
const nextDueOfTenantSQL = `
SELECT ` + columns + `
FROM (
    SELECT newest.*
    FROM reservations newest
    WHERE newest.tenant_id = $1
    ORDER BY newest.reservation_id DESC
    LIMIT $4
) r
WHERE r.resource_kind = $2 AND r.status = 'held' AND r.expires_at > (SELECT clock_timestamp()) AND ` + notSetAside + `
ORDER BY r.expires_at
LIMIT $3`

// nextDueScan is how many reservations NextDue reads at most, of all tenants and
// then of the tenant.
const nextDueScan = 5000

// NextDue returns up to limit holds of a kind that are not due yet, those with
// the earliest deadlines first.
//
// No index has the holds of one tenant in the order of their deadlines. If the
// next 5,000 deadlines of all tenants have fewer than limit holds of the tenant,
// NextDue reads the tenant's own newest 5,000 reservations. So of a tenant with
// more, few of them among the next of all tenants, it may not return those with
// the earliest deadlines.
func NextDue(ctx context.Context, db audit.Querier, tenantID uuid.UUID, kind string, limit int) ([]Reservation, error) {
	next, err := collect(ctx, db, toReservation, "next due "+kind, nextDueSQL, tenantID, kind, limit, nextDueScan)
	if err != nil || len(next) == limit {
		return next, err
	}
	own, err := collect(ctx, db, toReservation, "next due "+kind, nextDueOfTenantSQL, tenantID, kind, limit, nextDueScan)
	if err != nil {
		return nil, err
	}
	for _, r := range own {
		if !slices.ContainsFunc(next, func(n Reservation) bool { return n.ReservationID == r.ReservationID }) {
			next = append(next, r)
		}
	}
	slices.SortFunc(next, func(a, b Reservation) int { return a.ExpiresAt.Compare(b.ExpiresAt) })
	return next[:min(limit, len(next))], nil
}
