package reservationrows

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/audit"
	"github.com/holdfast/holdfast/internal/auditrows"
	"github.com/holdfast/holdfast/internal/pg"
	"github.com/holdfast/holdfast/internal/unitrows"
)

// Hold is a reservation to be made. Other transactions see it after the commit.
type Hold struct {
	Reservation
	Origin audit.Origin
	// Replaces are held reservations, or earlier holds of the same set, that
	// end when this one is made: released, with reason replaced, at its HeldAt
	// and by its Origin. All holds of a set that replace something have the
	// same HeldAt.
	Replaces []Reservation
}

// holdSQL accepts columns that pg.Collapse has shortened, except
// reservation_id.
const holdSQL = `
INSERT INTO reservations (tenant_id, reservation_id, resource_kind, resource_key, resource_window, holder_id,
                          quantity, first_held_at, held_at, expires_at, unit_ids, customer_id, kit_id)
SELECT coalesce(h.tenant_id, ($1::uuid[])[1]), h.reservation_id, coalesce(h.resource_kind, ($3::text[])[1]),
       coalesce(h.resource_key, ($4::text[])[1]), nullif(coalesce(h.resource_window, ($5::text[])[1]), ''),
       coalesce(h.holder_id, ($6::text[])[1]), coalesce(h.quantity, ($7::bigint[])[1]),
       coalesce(h.first_held_at, ($8::timestamptz[])[1]), coalesce(h.held_at, ($9::timestamptz[])[1]),
       coalesce(h.expires_at, ($10::timestamptz[])[1]), nullif(coalesce(h.unit_ids, ($11::text[])[1]), '')::jsonb,
       nullif(coalesce(h.customer_id, ($12::text[])[1]), ''), nullif(coalesce(h.kit_id, ($13::text[])[1]), '')
FROM unnest($1::uuid[], $2::uuid[], $3::text[], $4::text[], $5::text[], $6::text[], $7::bigint[],
            $8::timestamptz[], $9::timestamptz[], $10::timestamptz[], $11::text[], $12::text[], $13::text[])
     AS h (tenant_id, reservation_id, resource_kind, resource_key, resource_window, holder_id,
           quantity, first_held_at, held_at, expires_at, unit_ids, customer_id, kit_id)`

// QueueHolds adds to b the statements that make the holds, end what they
// replace, and write the audit rows (reservation.held, reservation.released).
// The audit rows are in the order of the holds. What a hold replaces comes
// before the hold, so that a reader of the record never counts the units of
// both.
//
// The caller has locked every resource's row, counted the units against its
// capacity, and locked what is replaced. An id that exists already fails the
// batch. A reservation to be replaced that is no longer held fails it with
// ErrChanged.
func QueueHolds(b *pgx.Batch, holds []Hold) {
	n := len(holds)
	if n == 0 {
		return
	}
	ids := make([][16]byte, 2*n)
	texts := make([]string, 7*n)
	quantities := make([]int64, n)
	times := make([]time.Time, 3*n)
	entries := make([]audit.Entry, 0, n)
	replacing := Ending{To: Released, Reason: Replaced}
	var replaced []Ref
	for i := range holds {
		h := &holds[i]
		h.Status = Held
		ids[i], ids[n+i] = h.TenantID, h.ReservationID
		texts[i], texts[n+i], texts[2*n+i], texts[3*n+i] = h.ResourceKind, h.ResourceKey, h.ResourceWindow, h.HolderID
		texts[6*n+i] = h.KitID
		if len(h.UnitIDs) > 0 {
			texts[4*n+i] = string(auditrows.AppendTexts(nil, h.UnitIDs))
		}
		quantities[i], texts[5*n+i] = h.Quantity, h.CustomerID
		times[i], times[n+i], times[2*n+i] = h.FirstHeldAt, h.HeldAt, h.ExpiresAt
		for j := range h.Replaces {
			replacing.At, replacing.Origin = h.HeldAt, h.Origin
			replaced = append(replaced, h.Replaces[j].Ref())
			entries = append(entries, replacing.Apply(&h.Replaces[j]))
		}
		entries = append(entries, h.entry(EventHeld, h.Origin))
	}
	b.Queue(holdSQL, pg.Collapse(ids[:n]), ids[n:], pg.Collapse(texts[:n]), pg.Collapse(texts[n:2*n]), pg.Collapse(texts[2*n:3*n]),
		pg.Collapse(texts[3*n:4*n]), pg.Collapse(quantities), pg.Collapse(times[:n]), pg.Collapse(times[n:2*n]), pg.Collapse(times[2*n:]),
		pg.Collapse(texts[4*n:5*n]), pg.Collapse(texts[5*n:6*n]), pg.Collapse(texts[6*n:]))
	queueOfAllotments(b, holds)
	queueLowerMarks(b, texts[:n], times[2*n:])
	reserved, released := unitsOf(holds)
	replacing.QueueRows(b, replaced, released)
	unitrows.QueueReserve(b, reserved)
	audit.Queue(b, entries)
}

// unitsOf returns the units that the holds reserve, and those that they release.
// A hold that a later one of the same set replaces does neither: its units may
// be among those of the later one.
func unitsOf(holds []Hold) (reserved, released []unitrows.Claim) {
	replaced := make(map[uuid.UUID]bool)
	for i := range holds {
		for j := range holds[i].Replaces {
			if old := &holds[i].Replaces[j]; len(old.UnitIDs) > 0 {
				replaced[old.ReservationID] = true
				released = append(released, old.claim())
			}
		}
	}
	for i := range holds {
		h := &holds[i]
		switch {
		case len(h.UnitIDs) == 0:
		case replaced[h.ReservationID]:
			released = slices.DeleteFunc(released, func(c unitrows.Claim) bool { return c.ReservationID == h.ReservationID })
		default:
			reserved = append(reserved, h.claim())
		}
	}
	return reserved, released
}

// HoldTx makes the holds in tx; see QueueHolds.
func HoldTx(ctx context.Context, tx pgx.Tx, holds []Hold) error {
	b := &pgx.Batch{}
	QueueHolds(b, holds)
	if err := tx.SendBatch(ctx, b).Close(); err != nil {
		return fmt.Errorf("hold %d reservations: %w", len(holds), err)
	}
	return nil
}
