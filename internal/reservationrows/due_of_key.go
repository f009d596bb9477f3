package reservationrows

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/audit"
	"github.com/holdfast/holdfast/internal/pg"
)

// DueOfKeys reads the reservations of single resources that are held and past
// their deadline. It reads each resource's own range of
// reservations_resource_idx, from the resource's mark on.
type DueOfKeys struct{ kind, lockSQL, lockSomeSQL, readSQL, sumSQL, leaveSQL string }

// someMax is how many reservations of a resource QueueLockSome reads at most.
const someMax = 5000

// NewDueOfKeys returns what reads the due reservations of a kind. mark is a SQL
// expression of the mark of the resource (wanted.tenant_id,
// wanted.resource_key): no reservation of it with an earlier deadline is held.
//
// which is a further condition of a reservation r, empty for none, in which @now
// is the time that deadlines are compared with.
func NewDueOfKeys(kind, mark, which string) DueOfKeys {
	ofResource := func(alias string) string {
		return strings.ReplaceAll(`r.tenant_id = wanted.tenant_id AND r.resource_kind = $1 AND r.resource_key = wanted.resource_key
      AND r.quantity > 0 AND r.expires_at >= (SELECT `, "r.", alias+".") + mark + `)`
	}
	due := func(now string) string {
		if which == "" {
			return ofResource("r") + ` AND r.status = 'held'`
		}
		return ofResource("r") + ` AND r.status = 'held' AND ` + strings.ReplaceAll(which, "@now", now)
	}
	read := func(until string) string {
		return `
SELECT ` + columns + `
FROM unnest($2::uuid[], $3::text[], $4::bigint[]) AS wanted (tenant_id, resource_key, most)
CROSS JOIN LATERAL (
    SELECT r.*
    FROM reservations r
    WHERE ` + due(`coalesce($5, clock_timestamp())`) + `
      AND r.expires_at <= (SELECT ` + until + `)
    ORDER BY r.expires_at
    LIMIT wanted.most
    `
	}
	const (
		// The clock and the row of the mark are read under the locks that the
		// transaction has.
		now  = `coalesce($5, clock_timestamp())`
		lock = `FOR NO KEY UPDATE SKIP LOCKED
) AS r`
	)
	return DueOfKeys{
		kind:    kind,
		lockSQL: read(now) + lock,
		lockSomeSQL: read(`least(`+now+`, (
        SELECT next.expires_at
        FROM reservations next
        WHERE `+ofResource("next")+` AND next.expires_at <= (SELECT `+now+`)
        ORDER BY next.expires_at
        OFFSET `+strconv.Itoa(someMax)+`
        LIMIT 1))`) + lock,
		readSQL: read(now) + `) AS r`,
		leaveSQL: `
UPDATE reservations r
SET allotment_id = r.allotment_id || E'\x1f'
FROM (VALUES ($2::uuid, $3::text)) AS wanted (tenant_id, resource_key)
WHERE ` + ofResource("r") + ` AND r.status = 'held' AND r.allotment_id = $4 AND ` + notSetAside,
		// Each resource is read individually. With a plain join, on a table that
		// grew since it was last analysed, the planner may read all holds once
		// for each resource.
		sumSQL: `
SELECT wanted.tenant_id, wanted.resource_key, due.quantity
FROM unnest($2::uuid[], $3::text[]) AS wanted (tenant_id, resource_key)
CROSS JOIN LATERAL (
    SELECT sum(r.quantity)::bigint AS quantity
    FROM reservations r
    WHERE ` + due(`$4`) + ` AND r.expires_at <= $4
) AS due
WHERE due.quantity IS NOT NULL`,
	}
}

// DueLimit selects at most Limit reservations of one resource that are past
// their deadline.
type DueLimit struct {
	Resource
	Limit int
}

func splitLimits(wanted []DueLimit) (tenants [][16]byte, keys []string, most []int64) {
	tenants, keys, most = make([][16]byte, len(wanted)), make([]string, len(wanted)), make([]int64, len(wanted))
	for i, w := range wanted {
		tenants[i], keys[i], most[i] = w.TenantID, w.ResourceKey, int64(w.Limit)
	}
	return tenants, keys, most
}

// QueueLock adds to b a statement that locks due reservations, of each resource
// the longest due first, and returns them once the batch is sent. Due means past
// the deadline at now, a reading of the database's clock, or at the present
// reading if now is zero. The statement waits for no lock: a reservation that
// another transaction has locked is left out.
func (d DueOfKeys) QueueLock(b *pgx.Batch, wanted []DueLimit, now time.Time) *[]Reservation {
	return d.queueLock(b, d.lockSQL, wanted, now)
}

// QueueLockSome is QueueLock for what is due now, and reads at most 5,000
// reservations of each resource from its mark on. A due reservation that cannot
// be ended keeps the mark before all that end after it, so it may miss some.
func (d DueOfKeys) QueueLockSome(b *pgx.Batch, wanted []DueLimit) *[]Reservation {
	return d.queueLock(b, d.lockSomeSQL, wanted, time.Time{})
}

func (d DueOfKeys) queueLock(b *pgx.Batch, sql string, wanted []DueLimit, now time.Time) *[]Reservation {
	tenants, keys, most := splitLimits(wanted)
	var at *time.Time
	if !now.IsZero() {
		at = &now
	}
	return pg.Collect(b, toReservation, sql, d.kind, tenants, keys, most, at)
}

// Read returns due reservations of one resource at now, a reading of the
// database's clock, the longest due first.
func (d DueOfKeys) Read(ctx context.Context, db audit.Querier, wanted DueLimit, now time.Time) ([]Reservation, error) {
	tenants, keys, most := splitLimits([]DueLimit{wanted})
	return collect(ctx, db, toReservation, "due "+wanted.ResourceKey, d.readSQL, d.kind, tenants, keys, most, now)
}

// Sum is a number of units of one resource.
type Sum struct {
	TenantID    uuid.UUID
	ResourceKey string
	Quantity    int64
}

// Sum counts the units held past their deadline at now, a reading of the
// database's clock, for each of the resources (tenantIDs[i], keys[i]) that has
// any. If the caller has locked the resources' rows, the sum counts every due
// hold, and perhaps some that another transaction is extending; LockTx returns
// the extended deadline.
func (d DueOfKeys) Sum(ctx context.Context, db audit.Querier, tenantIDs []uuid.UUID, keys []string, now time.Time) ([]Sum, error) {
	rows, _ := db.Query(ctx, d.sumSQL, d.kind, tenantIDs, keys, now)
	sums, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Sum])
	if err != nil {
		return nil, fmt.Errorf("sum due %s: %w", d.kind, err)
	}
	return sums, nil
}
