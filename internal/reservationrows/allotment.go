package reservationrows

import (
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/audit"
)

// notSetAside selects the reservations r that are not what is left of an
// allotment.
const notSetAside = `(r.holder_id <> '` + SetAside + `' OR r.allotment_id IS NULL)`

const (
	ofAllotmentSQL = `
UPDATE reservations r
SET allotment_id = made.allotment_id
FROM unnest($1::uuid[], $2::uuid[], $3::text[]) AS made (tenant_id, reservation_id, allotment_id)
WHERE r.tenant_id = made.tenant_id AND r.reservation_id = made.reservation_id`

	resizeSQL = `
UPDATE reservations
SET quantity = $3, expires_at = $4
WHERE tenant_id = $1 AND reservation_id = $2 AND status = 'held'`

	dropEmptySQL = `
DELETE FROM reservations r
USING unnest($1::uuid[], $2::text[], $3::text[]) AS ended (tenant_id, resource_key, allotment_id)
WHERE same_holder(r.tenant_id, r.holder_id, ended.tenant_id, '` + SetAside + `') AND same_key(r.resource_key, ended.resource_key)
  AND r.allotment_id = ended.allotment_id AND r.quantity = 0`
)

// queueOfAllotments adds to b what notes the allotments of holds that are made.
// Only such holds pay for the column.
func queueOfAllotments(b *pgx.Batch, holds []Hold) {
	var refs []Ref
	var allotments []string
	for i := range holds {
		if holds[i].AllotmentID != "" {
			refs, allotments = append(refs, holds[i].Ref()), append(allotments, holds[i].AllotmentID)
		}
	}
	if len(refs) > 0 {
		tenants, ids := split(refs)
		b.Queue(ofAllotmentSQL, tenants, ids, allotments).Exec(exactly(len(refs), "note the allotment of"))
	}
}

// QueueResize adds to b what changes the quantity and the deadline of a held
// reservation, and its audit row (reservation.resized). It updates r. The caller
// has locked the resource, and changes the counters and its mark.
func QueueResize(b *pgx.Batch, r *Reservation, quantity int64, deadline time.Time, origin audit.Origin) {
	before := strconv.AppendInt([]byte(`{"quantity":`), r.Quantity, 10)
	if !deadline.Equal(r.ExpiresAt) {
		before = r.ExpiresAt.UTC().AppendFormat(append(before, `,"expires_at":"`...), time.RFC3339Nano)
		before = append(before, '"')
	}
	r.Quantity, r.ExpiresAt = quantity, deadline
	e := r.entry(EventResized, origin)
	before = append(before, '}')
	e.Reservation.Before = before
	b.Queue(resizeSQL, r.TenantID, r.ReservationID, quantity, deadline).Exec(exactly(1, "resize"))
	queueLowerMarks(b, []string{r.ResourceKind}, []time.Time{deadline})
	audit.Queue(b, []audit.Entry{e})
}

// outlived ends the allotment id of a hold that is older than the present
// allotment of that id. No id has a control character.
const outlived = "\x1f"

// QueueLeaveAllotment adds to b what notes, of the holds from an allotment of the
// resource that has ended, that they are not from a later one of its id. The caller
// has locked the resource.
func (d DueOfKeys) QueueLeaveAllotment(b *pgx.Batch, of Resource, allotmentID string) {
	b.Queue(d.leaveSQL, d.kind, of.TenantID, of.ResourceKey, allotmentID)
}

// QueueDropEmpty adds to b what deletes what is left of ended allotments, where
// that is no unit: no index by deadline has these rows.
func QueueDropEmpty(b *pgx.Batch, tenants [][16]byte, keys, allotmentIDs []string) {
	b.Queue(dropEmptySQL, tenants, keys, allotmentIDs)
}
