package inventory

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/audit"
	"github.com/holdfast/holdfast/internal/pg"
	"github.com/holdfast/holdfast/internal/reservationrows"
	"github.com/holdfast/holdfast/reservations"
)

// setAside is an allotment that has not ended, as it is under the lock of its
// stock.
type setAside struct {
	Allotment
	rest reservations.Reservation // what is left
	due  int64                    // units in holds that are past their deadline
}

// setAsides are allotments by their source.
type setAsides map[Ref]*setAside

// sourceOf names what units are taken from: a stock, or an allotment of it. No id
// has a control character, so no stock is named like an allotment.
func sourceOf(tenantID uuid.UUID, variantID, allotmentID string) Ref {
	if allotmentID != "" {
		variantID += "\x1f" + allotmentID
	}
	return Ref{tenantID, variantID}
}

// sourceOfHold is where the units of a hold came from.
func sourceOfHold(r *reservations.Reservation) Ref {
	if r.IsSetAside() {
		return Ref{r.TenantID, r.ResourceKey}
	}
	return sourceOf(r.TenantID, r.ResourceKey, r.AllotmentID)
}

// The condition of reservations r that are of an allotment which lives: their
// units go back to it. In ofAllotment @now is the time, and dueOfAllotment reads
// the clock.
const (
	allotmentLives = `coalesce(r.allotment_id IS NOT NULL AND r.holder_id <> '` + reservationrows.SetAside + `' AND (
    SELECT a.expires_at
    FROM allotments a
    WHERE a.tenant_id = r.tenant_id AND a.variant_id = r.resource_key AND a.allotment_id = r.allotment_id) > `

	ofAllotment    = allotmentLives + `@now, false)`
	dueOfAllotment = allotmentLives + `(SELECT clock_timestamp()), false)`
)

// selectAllotments begins every read of allotments. $1 is the time, NULL for now.
const selectAllotments = `
SELECT a.tenant_id, a.variant_id, a.allotment_id, a.quantity, a.expires_at, a.created_at, a.updated_at, rest.reservation_id, rest.quantity, due.units
FROM allotments a
JOIN reservations rest ON rest.tenant_id = a.tenant_id AND rest.reservation_id = a.reservation_id
CROSS JOIN LATERAL (
    SELECT coalesce(sum(longest.quantity), 0)::bigint AS units
    FROM (
        SELECT r.quantity
        FROM reservations r
        WHERE r.tenant_id = a.tenant_id AND r.resource_key = a.variant_id AND r.resource_kind = '` + Kind + `' AND r.quantity > 0
          AND r.expires_at >= (SELECT s.due_from FROM inventory_stocks s WHERE s.tenant_id = a.tenant_id AND s.variant_id = a.variant_id)
          AND r.expires_at <= (SELECT coalesce($1::timestamptz, clock_timestamp()))
          AND r.status = 'held' AND r.allotment_id = a.allotment_id AND r.holder_id <> '` + reservationrows.SetAside + `'
        ORDER BY r.expires_at
        LIMIT 200
    ) AS longest
) AS due
WHERE a.expires_at > (SELECT coalesce($1::timestamptz, clock_timestamp())) AND rest.status = 'held'`

func toSetAside(row pgx.CollectableRow) (a setAside, err error) {
	var tenant, id [16]byte
	var end time.Time
	err = row.Scan(&tenant, &a.VariantID, &a.AllotmentID, &a.Quantity, &end, &a.CreatedAt, &a.UpdatedAt, &id, &a.rest.Quantity, &a.due)
	a.TenantID, a.Available = tenant, a.rest.Quantity+a.due
	if end.Before(noEnd) {
		a.ExpiresAt = &end
	}
	a.rest = reservations.Reservation{
		TenantID: tenant, ReservationID: id, ResourceKind: Kind, ResourceKey: a.VariantID, HolderID: reservationrows.SetAside,
		AllotmentID: a.AllotmentID, Quantity: a.rest.Quantity, Status: reservations.Held, ExpiresAt: end,
	}
	return a, err
}

func (a *setAside) source() Ref { return sourceOf(a.TenantID, a.VariantID, a.AllotmentID) }

// queueChange adds to b what changes how many units are left.
func (a *setAside) queueChange(b *pgx.Batch, by int64) {
	if by != 0 {
		reservationrows.QueueResize(b, &a.rest, a.rest.Quantity+by, a.rest.ExpiresAt, audit.Origin{Actor: audit.Job("allotment")})
	}
}

const namedAllotmentsSQL = selectAllotments + `
  AND (a.tenant_id, a.variant_id, a.allotment_id) IN (SELECT * FROM unnest($2::uuid[], $3::text[], $4::text[]))`

// wantedAllotments are allotments as one array per column.
type wantedAllotments struct {
	tenants              [][16]byte
	variants, allotments []string
	seen                 map[Ref]bool
}

func (w *wantedAllotments) add(tenantID uuid.UUID, variantID, allotmentID string) {
	source := sourceOf(tenantID, variantID, allotmentID)
	if w.seen[source] {
		return
	}
	if w.seen == nil {
		w.seen = make(map[Ref]bool)
	}
	w.seen[source] = true
	w.tenants, w.variants, w.allotments = append(w.tenants, tenantID), append(w.variants, variantID), append(w.allotments, allotmentID)
}

// readTx reads those of the allotments that live. Their stocks are locked, and
// every change of an allotment is made under that lock.
func (w *wantedAllotments) readTx(ctx context.Context, tx pgx.Tx, now time.Time) (setAsides, error) {
	if len(w.tenants) == 0 {
		return nil, nil
	}
	found, err := pg.Select(ctx, tx, toSetAside, namedAllotmentsSQL, now, w.tenants, w.variants, w.allotments)
	if err != nil {
		return nil, fmt.Errorf("read %d allotments: %w", len(w.tenants), err)
	}
	all := make(setAsides, len(found))
	for i := range found {
		all[found[i].source()] = &found[i]
	}
	return all, nil
}

// setAsidesOfTx reads the allotments to which the units of holds go back. Without
// such a hold it reads nothing.
func setAsidesOfTx(ctx context.Context, tx pgx.Tx, held []reservations.Reservation, now time.Time) (setAsides, error) {
	var wanted wantedAllotments
	for i := range held {
		if r := &held[i]; r.AllotmentID != "" && !r.IsSetAside() {
			wanted.add(r.TenantID, r.ResourceKey, r.AllotmentID)
		}
	}
	return wanted.readTx(ctx, tx, now)
}

// addBack notes that units go back to an allotment.
func (e *endings) addBack(source Ref, quantity int64) {
	if e.back == nil {
		e.back = make(map[Ref]int64)
	}
	e.back[source] += quantity
}

// queueBack adds to b what gives the units back, after their endings are recorded.
func (e *endings) queueBack(b *pgx.Batch) {
	for source, quantity := range e.back {
		e.setAside[source].queueChange(b, quantity)
	}
}

// readAllotmentsTx reads the allotments that the requests name, and makes a counter
// of each, with the settings of the variant. First it ends those due holds whose
// units go back to them, except what other transactions have locked.
//
// Errors: *BacklogError; the database's.
func (in *inputs) readAllotmentsTx(ctx context.Context, tx pgx.Tx, requests []HoldRequest) (err error) {
	var wanted wantedAllotments
	for i := range requests {
		if r := &requests[i]; r.AllotmentID != "" && in.counters[Ref{r.TenantID, r.VariantID}] != nil {
			wanted.add(r.TenantID, r.VariantID, r.AllotmentID)
		}
	}
	in.setAside, err = wanted.readTx(ctx, tx, in.now)
	if err != nil {
		return err
	}
	due := make(map[Ref]bool)
	for _, a := range in.setAside {
		if a.due > 0 {
			due[Ref{a.TenantID, a.VariantID}] = true
		}
	}
	for ref := range due {
		ended, err := endDueOfTx(ctx, tx, dueOfAllotments, ref, in.now, expireMax)
		if err != nil {
			return err
		}
		if len(ended) == expireMax {
			return &BacklogError{ref}
		}
		in.ended += len(ended)
	}
	if len(due) > 0 {
		in.setAside, err = wanted.readTx(ctx, tx, in.now)
		if err != nil {
			return err
		}
	}
	for source, a := range in.setAside {
		c := *in.counters[Ref{a.TenantID, a.VariantID}]
		c.VariantID, c.Stock, c.Reserved = source.VariantID, a.rest.Quantity, 0
		c.Backorder, c.PreorderMax, c.Waiting = false, nil, false
		in.counters[source] = &c
		if a.due > 0 {
			if in.lockedDue == nil {
				in.lockedDue = make(map[Ref]int64)
			}
			in.lockedDue[source] = a.due
		}
	}
	return nil
}
