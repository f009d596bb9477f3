package reservationrows

import (
	"cmp"
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/audit"
	"github.com/holdfast/holdfast/internal/unitrows"
)

// Ending is how a set of reservations ends.
type Ending struct {
	// To is Committed, Released or Expired; Reason is given for the latter two.
	To     Status
	Reason ReleaseReason
	// At is a reading of the database's clock, taken after the reservations
	// were locked.
	At     time.Time
	Origin audit.Origin
	// Unchanged, if not nil, has the versions of the reservations that were read
	// without a lock. Only those that have not changed since are ended.
	Unchanged Versions
}

// Versions are the xmin of reservations as they were read. Each change of a row,
// of whatever column, gives it another one.
type Versions map[Ref]uint32

// endSQL expires no hold before its deadline, whatever the caller read before.
const endSQL = `
UPDATE reservations r
SET status = $3, release_reason = nullif($4, ''), ended_at = $5
FROM unnest($1::uuid[], $2::uuid[], $6::xid[]) AS ended (tenant_id, reservation_id, version)
WHERE r.tenant_id = ended.tenant_id AND r.reservation_id = ended.reservation_id
  AND r.status = 'held' AND ($3 <> 'expired' OR r.expires_at <= $5)
  AND ($6::xid[] IS NULL OR r.xmin = ended.version)`

// QueueEnd adds to b the statements that end the reservations and write their
// audit rows (reservation.committed, reservation.released,
// reservation.expired). It updates the given values too.
//
// The caller changes the resource's counters in the same transaction. It has
// either locked the reservations and found them held; or it has locked their
// resources, relies on an earlier read, passes the versions that it read, and
// the reservations in the order of (tenant, id). The batch fails with ErrChanged
// if a reservation is no longer held or has changed since, or if it is to be
// expired and is not due.
func QueueEnd(b *pgx.Batch, ending Ending, ended []Reservation) {
	entries := make([]audit.Entry, len(ended))
	for i := range ended {
		entries[i] = ending.Apply(&ended[i])
	}
	ending.QueueRows(b, Refs(ended), Claims(ended))
	audit.Queue(b, entries)
}

// Apply updates the value and returns the audit entry of its ending.
func (e *Ending) Apply(r *Reservation) audit.Entry {
	at, origin := e.At, e.Origin
	origin.Reason = cmp.Or(origin.Reason, string(e.Reason))
	return r.change("reservation."+string(e.To), origin, func(r *Reservation) {
		r.Status, r.ReleaseReason, r.EndedAt = e.To, e.Reason, &at
	})
}

// QueueRows adds to b the statements that end the rows, without their audit
// entries; see QueueEnd. claims are the units of the reservations that have
// units with their own identity: they are finalized where the reservations are
// committed, else released.
func (e *Ending) QueueRows(b *pgx.Batch, ended []Ref, claims []unitrows.Claim) {
	if len(ended) == 0 {
		return
	}
	tenants, ids := split(ended)
	if e.To == Committed {
		unitrows.QueueFinalize(b, claims)
	} else {
		unitrows.QueueRelease(b, claims)
	}
	var versions []uint32
	if e.Unchanged != nil {
		versions = make([]uint32, len(ended))
		for i, r := range ended {
			versions[i] = e.Unchanged[r]
		}
	}
	b.Queue(endSQL, tenants, ids, e.To, e.Reason, e.At, versions).Exec(exactly(len(ended), "end"))
}

// EndTx ends the reservations in tx; see QueueEnd.
func EndTx(ctx context.Context, tx pgx.Tx, ending Ending, ended []Reservation) error {
	b := &pgx.Batch{}
	QueueEnd(b, ending, ended)
	return tx.SendBatch(ctx, b).Close()
}
