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
		d.reserved -= held[i].Quantity
		if to == reservations.Committed {
			d.stock -= held[i].Quantity
		}
		e.deltas[ref] = d
	}
}

// queueRows adds to b what ends the holds.
func (e *endings) queueRows(b *pgx.Batch) {
	for key, rows := range e.ended {
		ending := reservationrows.Ending{To: key.to, Reason: key.reason, At: key.at}
		ending.QueueRows(b, rows.refs, rows.claims)
	}
}

// counterDelta is the change of one variant's counters in a transaction, in
// units.
type counterDelta struct{ stock, reserved int64 }

// deltaSQL is the guard: it reserves units only if they are available, and
// gives them back only if they are reserved, whatever was read before. A
// variant whose delta would break one of the two named CHECKs matches no row,
// so that two sweeps that race log no error.
const deltaSQL = `
UPDATE inventory_stocks s
SET stock = s.stock + d.stock, reserved = s.reserved + d.reserved, updated_at = clock_timestamp()
FROM unnest($1::uuid[], $2::text[], $3::bigint[], $4::bigint[]) AS d (tenant_id, variant_id, stock, reserved)
WHERE s.tenant_id = d.tenant_id AND s.variant_id = d.variant_id
  AND (d.reserved <= 0 OR s.backorder OR s.stock - s.reserved >= d.reserved)
  AND s.reserved + d.reserved >= 0
  AND (s.reserved + d.reserved <= s.stock + d.stock OR s.backorder OR NOT s.tracked)`

// queueDeltas adds one guarded statement to b that applies the deltas, each
// variant once. A variant that the guard refuses fails the batch, and the
// transaction must be rolled back. Under the stock's lock it means that the
// counters were changed by other means than this package.
func queueDeltas(b *pgx.Batch, deltas map[Ref]counterDelta) {
	maps.DeleteFunc(deltas, func(_ Ref, d counterDelta) bool { return d == counterDelta{} })
	if len(deltas) == 0 {
		return
	}
	var (
		tenants         = make([][16]byte, 0, len(deltas))
		variants        = make([]string, 0, len(deltas))
		stock, reserved = make([]int64, 0, len(deltas)), make([]int64, 0, len(deltas))
	)
	for ref, d := range deltas {
		tenants, variants = append(tenants, ref.TenantID), append(variants, ref.VariantID)
		stock, reserved = append(stock, d.stock), append(reserved, d.reserved)
	}
	b.Queue(deltaSQL, tenants, variants, stock, reserved).Exec(func(tag pgconn.CommandTag) error {
		if got := tag.RowsAffected(); got != int64(len(deltas)) {
			return fmt.Errorf("change the counters of %d variants: the guard refused %d", len(deltas), int64(len(deltas))-got)
		}
		return nil
	})
}

// endTx ends holds whose stocks and rows are locked, and changes the counters
// accordingly. It writes the rows first: a row that has ended meanwhile is
// reservationrows.ErrChanged, not an error of the counters.
func endTx(ctx context.Context, tx pgx.Tx, held []reservations.Reservation, ending reservationrows.Ending) error {
	var e endings
	e.count(held, ending.To)
	e.add(held, ending)
	b := &pgx.Batch{}
	e.queueRows(b)
	queueDeltas(b, e.deltas)
	audit.Queue(b, e.entries)
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

func units(held []reservations.Reservation) (sum int64) {
	for i := range held {
		sum += held[i].Quantity
	}
	return sum
}
