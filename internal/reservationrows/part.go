package reservationrows

import (
	"encoding/json"
	"slices"
	"strconv"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/audit"
	"github.com/holdfast/holdfast/internal/auditrows"
	"github.com/holdfast/holdfast/internal/unitrows"
)

const (
	reduceSQL = `
UPDATE reservations
SET quantity = $3, unit_ids = nullif($4, '')::jsonb
WHERE tenant_id = $1 AND reservation_id = $2 AND status = 'held'`

	// partSQL makes the committed part of a reservation, with what it has in
	// common with it.
	partSQL = `
INSERT INTO reservations (tenant_id, reservation_id, resource_kind, resource_key, resource_window, holder_id, customer_id, kit_id, allotment_id,
                          quantity, unit_ids, status, first_held_at, held_at, expires_at, ended_at, part_of)
SELECT r.tenant_id, $3, r.resource_kind, r.resource_key, r.resource_window, r.holder_id, r.customer_id, r.kit_id, r.allotment_id,
       $4, nullif($5, '')::jsonb, 'committed', r.first_held_at, r.held_at, r.expires_at, $6, r.reservation_id
FROM reservations r
WHERE r.tenant_id = $1 AND r.reservation_id = $2`

	returnSQL = `
UPDATE reservations
SET returned_quantity = $3, unit_ids = nullif($4, '')::jsonb
WHERE tenant_id = $1 AND reservation_id = $2 AND status = 'committed'`

	moveSQL = `
UPDATE reservations r
SET holder_id = $3, customer_id = coalesce($4, r.customer_id)
FROM unnest($1::uuid[], $2::uuid[]) AS moved (tenant_id, reservation_id)
WHERE r.tenant_id = moved.tenant_id AND r.reservation_id = moved.reservation_id AND r.status = 'held'`
)

// QueueCommitPart adds to b what commits units of a held reservation as a
// reservation with the id part, and returns it. What is left in r keeps its id and
// deadline; unitIDs are the part's units if they have their own identity. It
// writes three audit rows: reservation.resized, and reservation.held and
// reservation.committed of the part. It updates r.
//
// The caller has locked the resource and r, found it live at now, and changes the
// counters. The quantity is less than that of r.
func QueueCommitPart(b *pgx.Batch, r *Reservation, part uuid.UUID, quantity int64, unitIDs []string, now time.Time, origin audit.Origin) Reservation {
	committed := *r
	committed.ReservationID, committed.PartOf, committed.Quantity, committed.UnitIDs = part, r.ReservationID, quantity, unitIDs
	taken := r.claim()
	taken.UnitIDs = unitIDs
	unitrows.QueueRelease(b, []unitrows.Claim{taken})
	entries := []audit.Entry{r.without(EventResized, unitIDs, origin, func() { r.Quantity -= quantity }), committed.entry(EventHeld, origin)}
	b.Queue(reduceSQL, r.TenantID, r.ReservationID, r.Quantity, unitsText(r.UnitIDs)).Exec(exactly(1, "reduce"))
	b.Queue(partSQL, r.TenantID, r.ReservationID, part, quantity, unitsText(unitIDs), now).Exec(exactly(1, "commit a part of"))
	unitrows.QueueReserve(b, Claims([]Reservation{committed}))
	unitrows.QueueFinalize(b, Claims([]Reservation{committed}))
	ending := Ending{To: Committed, At: now, Origin: origin}
	audit.Queue(b, append(entries, ending.Apply(&committed)))
	return committed
}

// QueueReturn adds to b what brings units of a committed reservation back, and
// its audit row (reservation.returned), which has as quantity what is left. It
// updates r. The caller has locked the resource and r, and changes the counters.
func QueueReturn(b *pgx.Batch, r *Reservation, quantity int64, unitIDs []string, origin audit.Origin) {
	returned := r.claim()
	returned.UnitIDs = unitIDs
	entry := r.without(EventReturned, unitIDs, origin, func() { r.ReturnedQuantity += quantity })
	b.Queue(returnSQL, r.TenantID, r.ReservationID, r.ReturnedQuantity, unitsText(r.UnitIDs)).Exec(exactly(1, "return"))
	unitrows.QueueReturn(b, []unitrows.Claim{returned})
	audit.Queue(b, []audit.Entry{entry})
}

// QueueMove adds to b what moves held reservations to another holder, and their
// audit rows (reservation.moved). customerID is whose limits count them from
// then on; "" keeps that of each. It updates the values. The caller has locked
// the resources and the reservations.
func QueueMove(b *pgx.Batch, moved []Reservation, holderID, customerID string, origin audit.Origin) {
	if len(moved) == 0 {
		return
	}
	entries := make([]audit.Entry, len(moved))
	for i := range moved {
		r := &moved[i]
		before, err := json.Marshal(map[string]string{"holder_id": r.HolderID})
		if err != nil { // a string always marshals
			panic(err)
		}
		r.HolderID = holderID
		if customerID != "" {
			r.CustomerID = customerID
		}
		entries[i] = r.entry(EventMoved, origin)
		entries[i].Reservation.Before = before
	}
	var customer *string
	if customerID != "" {
		customer = &customerID
	}
	tenants, ids := split(Refs(moved))
	b.Queue(moveSQL, tenants, ids, holderID, customer).Exec(exactly(len(moved), "move"))
	audit.Queue(b, entries)
}

// without takes units from the value, and returns the audit entry.
func (r *Reservation) without(action string, unitIDs []string, origin audit.Origin, apply func()) audit.Entry {
	before := strconv.AppendInt([]byte(`{"quantity":`), r.Quantity-r.ReturnedQuantity, 10)
	if len(unitIDs) > 0 {
		before = auditrows.AppendTexts(append(before, `,"unit_ids":`...), r.UnitIDs)
		r.UnitIDs = slices.DeleteFunc(slices.Clone(r.UnitIDs), func(id string) bool { return slices.Contains(unitIDs, id) })
	}
	before = append(before, '}')
	apply()
	e := r.entry(action, origin)
	e.Reservation.Before = before
	return e
}

// unitsText is the column unit_ids, "" for none.
func unitsText(unitIDs []string) string {
	if len(unitIDs) == 0 {
		return ""
	}
	return string(auditrows.AppendTexts(nil, unitIDs))
}
