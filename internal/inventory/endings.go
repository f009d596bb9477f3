package inventory

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/holdfast/holdfast/audit"
	"github.com/holdfast/holdfast/internal/reservationrows"
	"github.com/holdfast/holdfast/internal/unitrows"
	"github.com/holdfast/holdfast/reservations"
)

// endings are the holds that a transaction ends, with what else their endings
// change.
type endings struct {
	ended   map[endingKey]endedRows
	deltas  map[Ref]counterDelta
	entries []audit.Entry
	// unchanged has the versions of the holds if none of them is locked.
	unchanged reservationrows.Versions
	// setAside are the allotments that live and to which released and expired
	// units go back, and back how many.
	setAside setAsides
	back     map[Ref]int64
}

// endingKey distinguishes the endings of a transaction.
type endingKey struct {
	to     reservations.Status
	reason reservations.ReleaseReason
	at     time.Time
}

// endedRows are the holds of one ending, and their units that have an identity.
type endedRows struct {
	refs   []reservationrows.Ref
	claims []unitrows.Claim
}

// add adds the ending of the holds without their counters, and updates the
// values.
func (e *endings) add(held []reservations.Reservation, ending reservationrows.Ending) {
	if len(held) == 0 {
		return
	}
	if e.ended == nil {
		e.ended = make(map[endingKey]endedRows)
	}
	key := endingKey{ending.To, ending.Reason, ending.At}
	rows := e.ended[key]
	rows.refs, e.entries = slices.Grow(rows.refs, len(held)), slices.Grow(e.entries, len(held))
	for i := range held {
		rows.refs = append(rows.refs, held[i].Ref())
		e.entries = append(e.entries, ending.Apply(&held[i]))
	}
	rows.claims = append(rows.claims, reservationrows.Claims(held)...)
	e.ended[key] = rows
}

// count adds what the ending of the holds changes of the counters.
func (e *endings) count(held []reservations.Reservation, to reservations.Status) {
	if e.deltas == nil {
		e.deltas = make(map[Ref]counterDelta)
	}
	for i := range held {
		ref := Ref{held[i].TenantID, held[i].ResourceKey}
		d := e.deltas[ref]
		d.ended = true
		if source := sourceOfHold(&held[i]); to != reservations.Committed && e.setAside[source] != nil {
			e.addBack(source, held[i].Quantity)
			d.makes(e.setAside[source].rest.ExpiresAt) // no index had it while no unit was left
		} else {
			d.reserved -= held[i].Quantity
		}
		if to == reservations.Committed {
			d.stock -= held[i].Quantity
		}
		e.deltas[ref] = d
	}
}

// queueRows adds to b what ends the holds.
func (e *endings) queueRows(b *pgx.Batch) {
	for key, rows := range e.ended {
		ending := reservationrows.Ending{To: key.to, Reason: key.reason, At: key.at, Unchanged: e.unchanged}
		ending.QueueRows(b, rows.refs, rows.claims)
	}
}

// counterDelta is the change of one variant in a transaction: of its counters,
// in units, and of its due_from.
type counterDelta struct {
	stock, reserved int64
	earliest        time.Time // the deadline of a hold that is made; zero for none
	ended           bool      // a hold has ended
}

// makes adds the deadline of a hold that is made.
func (d *counterDelta) makes(deadline time.Time) {
	if d.earliest.IsZero() || deadline.Before(d.earliest) {
		d.earliest = deadline
	}
}

// deltaSQL is the guard: it reserves units only if they are available, and
// gives them back only if they are reserved, whatever was read before. A
// variant whose delta would break one of the two named CHECKs matches no row,
// so that two sweeps that race log no error.
//
// After endings it moves due_from to the first deadline of a hold that is still
// held, past $7 reservations at most; without such a hold, to infinity. The
// endings are in the same transaction, before it, and under the stock's lock no
// other transaction makes a hold. A hold that the transaction makes after it
// counts by its deadline, which is earlier than due_from if the clock was set
// back.
const deltaSQL = `
UPDATE inventory_stocks s
SET stock = s.stock + d.stock, reserved = s.reserved + d.reserved, updated_at = clock_timestamp(),
    due_from = least(d.earliest, CASE WHEN NOT d.ended THEN s.due_from ELSE coalesce((
        SELECT r.expires_at
        FROM (SELECT next.expires_at, next.status
              FROM reservations next
              WHERE next.tenant_id = s.tenant_id AND next.resource_key = s.variant_id AND next.resource_kind = '` + Kind + `'
                AND next.quantity > 0 AND next.expires_at >= s.due_from
              ORDER BY next.expires_at
              LIMIT $7) r
        WHERE r.status = 'held'
        ORDER BY r.expires_at
        LIMIT 1
    ), (
        SELECT next.expires_at
        FROM reservations next
        WHERE next.tenant_id = s.tenant_id AND next.resource_key = s.variant_id AND next.resource_kind = '` + Kind + `'
          AND next.quantity > 0 AND next.expires_at >= s.due_from
        ORDER BY next.expires_at
        OFFSET $7
        LIMIT 1
    ), 'infinity') END)
FROM unnest($1::uuid[], $2::text[], $3::bigint[], $4::bigint[], $5::timestamptz[], $6::boolean[])
     AS d (tenant_id, variant_id, stock, reserved, earliest, ended)
WHERE s.tenant_id = d.tenant_id AND s.variant_id = d.variant_id
  AND (d.reserved <= 0 OR s.backorder AND s.preorder_max IS NULL OR s.stock + coalesce(s.preorder_max, 0) - s.reserved >= d.reserved)
  AND s.reserved + d.reserved >= 0
  AND (s.reserved + d.reserved <= s.stock + d.stock + coalesce(s.preorder_max, 0) OR s.backorder AND s.preorder_max IS NULL OR NOT s.tracked)`

// passMax is past how many ended holds one statement moves due_from. It is more
// than a transaction makes with one deadline.
const passMax = 10_000

// strictDeltaSQL is deltaSQL, and fails with SQLSTATE 22P02 if the guard refuses
// a variant. So a COMMIT behind it in one batch does not commit.
const strictDeltaSQL = `
WITH changed AS (` + deltaSQL + `
    RETURNING 1
)
SELECT CASE WHEN count(*) = cardinality($1) THEN 0
            ELSE ('the guard of the counters refused ' || cardinality($1) - count(*) || ' variants')::integer END
FROM changed`

// queueDeltas adds one guarded statement to b that applies the deltas, each
// variant once. A variant that the guard refuses fails the batch, and the
// transaction must be rolled back. Under the stock's lock it means that the
// counters were changed by other means than this package.
func queueDeltas(b *pgx.Batch, deltas map[Ref]counterDelta) {
	queueDeltasBy(deltaSQL, b, deltas, func(tag pgconn.CommandTag) error {
		if got := tag.RowsAffected(); got != int64(len(deltas)) {
			return fmt.Errorf("change the counters of %d variants: the guard refused %d", len(deltas), int64(len(deltas))-got)
		}
		return nil
	})
}

// queueStrictDeltas is queueDeltas, and the server checks what the guard refuses.
func queueStrictDeltas(b *pgx.Batch, deltas map[Ref]counterDelta) {
	queueDeltasBy(strictDeltaSQL, b, deltas, nil)
}

func queueDeltasBy(sql string, b *pgx.Batch, deltas map[Ref]counterDelta, check func(pgconn.CommandTag) error) {
	maps.DeleteFunc(deltas, func(_ Ref, d counterDelta) bool { return d == counterDelta{} })
	if len(deltas) == 0 {
		return
	}
	var (
		tenants         = make([][16]byte, 0, len(deltas))
		variants        = make([]string, 0, len(deltas))
		stock, reserved = make([]int64, 0, len(deltas)), make([]int64, 0, len(deltas))
		earliest        = make([]*time.Time, 0, len(deltas))
		ended           = make([]bool, 0, len(deltas))
	)
	for ref, d := range deltas {
		tenants, variants = append(tenants, ref.TenantID), append(variants, ref.VariantID)
		stock, reserved, ended = append(stock, d.stock), append(reserved, d.reserved), append(ended, d.ended)
		var deadline *time.Time
		if !d.earliest.IsZero() {
			deadline = &d.earliest
		}
		earliest = append(earliest, deadline)
	}
	q := b.Queue(sql, tenants, variants, stock, reserved, earliest, ended, passMax)
	if check != nil {
		q.Exec(check)
	}
}

// endTx ends holds whose stocks are locked, and whose rows are locked or have the
// versions in ending.Unchanged, and changes the counters accordingly. It writes
// the rows first: a row that has changed meanwhile is reservationrows.ErrChanged,
// not an error of the counters.
func endTx(ctx context.Context, tx pgx.Tx, held []reservations.Reservation, ending reservationrows.Ending) (err error) {
	e := endings{unchanged: ending.Unchanged}
	e.setAside, err = setAsidesOfTx(ctx, tx, held, ending.At)
	if err != nil {
		return err
	}
	e.count(held, ending.To)
	e.add(held, ending)
	b := &pgx.Batch{}
	e.queueRows(b)
	queueDeltas(b, e.deltas)
	audit.Queue(b, e.entries)
	e.queueBack(b)
	if err := tx.SendBatch(ctx, b).Close(); err != nil {
		return fmt.Errorf("end %d holds as %s: %w", len(held), ending.To, err)
	}
	return nil
}

// expiry is the ending of holds past their deadline.
func expiry(now time.Time) reservationrows.Ending {
	return reservationrows.Ending{To: reservations.Expired, Reason: reservationrows.TTL, At: now, Origin: audit.Origin{Actor: audit.Job("expiry")}}
}

// splitDue separates the holds that are past their deadline from the others.
func splitDue(held []reservations.Reservation, now time.Time) (live, due []reservations.Reservation) {
	for _, r := range held {
		if r.Due(now) {
			due = append(due, r)
		} else {
			live = append(live, r)
		}
	}
	return live, due
}

func inCheckout(held []reservations.Reservation) bool {
	return slices.ContainsFunc(held, func(r reservations.Reservation) bool { return r.InCheckout() })
}

func inKit(held []reservations.Reservation) bool {
	return slices.ContainsFunc(held, func(r reservations.Reservation) bool { return r.KitID != "" })
}

func units(held []reservations.Reservation) (sum int64) {
	for i := range held {
		sum += held[i].Quantity
	}
	return sum
}
