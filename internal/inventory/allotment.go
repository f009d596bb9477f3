package inventory

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/audit"
	"github.com/holdfast/holdfast/internal/pg"
	"github.com/holdfast/holdfast/internal/reservationrows"
	"github.com/holdfast/holdfast/internal/telemetry"
	"github.com/holdfast/holdfast/reservations"
)

// An allotment is units of a variant that are set aside for a channel or a
// voucher. What is left of it is a reservation, whose holder is
// reservationrows.SetAside: it counts in reserved, so that no other request gets
// the units, and at its deadline it expires like any hold. A request that names the
// allotment takes units from this reservation, under the lock of the stock, and
// reserved stays as it is. They go back to it if the hold is released or expires
// while the allotment lives.

// Allotment is units of a variant that are set aside.
type Allotment struct {
	TenantID               uuid.UUID
	VariantID, AllotmentID string
	// Quantity is how many units were set aside, those included that were taken.
	Quantity int64
	// Available is how many are left, with those of holds that are past their
	// deadline, as far as Stock.Available counts such holds.
	Available int64
	// ExpiresAt is when what is left returns to sale, nil for never.
	ExpiresAt            *time.Time
	CreatedAt, UpdatedAt time.Time
}

// AllotmentPage is one page of the allotments of a variant.
type AllotmentPage struct {
	Items []Allotment
	// NextCursor is the cursor of the next page; empty on the last page.
	NextCursor string
}

// ErrUnknownAllotment means that the variant has no such allotment, or that it has
// ended.
var ErrUnknownAllotment = errors.New("unknown allotment")

// noEnd is the deadline of an allotment without one.
var noEnd = time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC)

const saveAllotmentSQL = `
INSERT INTO allotments AS a (tenant_id, variant_id, allotment_id, quantity, expires_at, reservation_id)
VALUES ($1, $2, $3, $4, $5, $6)
ON CONFLICT (tenant_id, variant_id, allotment_id) DO UPDATE
SET quantity = $4, expires_at = $5, reservation_id = $6, updated_at = clock_timestamp(),
    created_at = CASE WHEN a.reservation_id = $6 THEN a.created_at ELSE clock_timestamp() END`

// SetAllotmentTx sets units of a variant aside, or changes how many are set aside
// and until when; nil is for ever. It returns the allotment after that. It records the
// change (allotment.set), and that of what is left (reservation.held,
// reservation.resized); no change records nothing.
//
// Errors: [*InvalidError], also for a block and for a digital variant;
// [ErrUnknownVariant]; [ErrBelowReserved] for a quantity below what was taken;
// [ErrOutOfStock] if too few units are free. The caller then rolls back.
//
// It locks the stock, then due holds of the variant, which it ends. It is correct
// at every isolation level.
func SetAllotmentTx(ctx context.Context, tx pgx.Tx, tenantID uuid.UUID, variantID, allotmentID string, quantity int64, expiresAt *time.Time, origin audit.Origin) (a Allotment, err error) {
	ctx, done := telemetry.Verb(ctx, "inventory.set_allotment")
	defer func() { done(outcome(err)) }()
	end := noEnd
	if expiresAt != nil {
		end = expiresAt.UTC().Truncate(time.Microsecond)
	}
	switch {
	case quantity < 1 || quantity > MaxStock:
		return a, &InvalidError{Field: "quantity", Message: fmt.Sprintf("must be between 1 and %d", MaxStock)}
	case end.After(noEnd):
		return a, &InvalidError{Field: "expires_at", Message: "must be before the year 10000"}
	}
	locked, err := lockAllotmentTx(ctx, tx, tenantID, variantID, allotmentID)
	if err != nil {
		return a, err
	}
	ref, old := locked.ref, locked.found
	more, err := locked.more(quantity, end)
	if err != nil {
		return a, fmt.Errorf("set allotment %s of variant %s: %w", allotmentID, variantID, err)
	}
	if old == nil { // an earlier one of that id
		if err := endRestsTx(ctx, tx, ref, allotmentID, locked.now, origin); err != nil {
			return a, err
		}
	}
	delta := counterDelta{reserved: more}
	delta.makes(end)
	b := &pgx.Batch{}
	queueDeltas(b, map[Ref]counterDelta{ref: delta})
	var id uuid.UUID
	switch {
	case old == nil:
		id = uuid.Must(uuid.NewV7())
		dueHoldsOf.QueueLeaveAllotment(b, reservationrows.Resource{TenantID: tenantID, ResourceKey: variantID}, allotmentID)
		reservationrows.QueueHolds(b, []reservationrows.Hold{{Origin: origin, Reservation: reservations.Reservation{
			TenantID: tenantID, ReservationID: id, ResourceKind: Kind, ResourceKey: variantID, HolderID: reservationrows.SetAside, AllotmentID: allotmentID,
			Quantity: quantity, Status: reservations.Held, FirstHeldAt: locked.now, HeldAt: locked.now, ExpiresAt: end,
		}}})
	case more != 0 || !end.Equal(old.rest.ExpiresAt):
		id = old.rest.ReservationID
		reservationrows.QueueResize(b, &old.rest, old.rest.Quantity+more, end, origin)
	default:
		return old.Allotment, nil
	}
	b.Queue(saveAllotmentSQL, tenantID, variantID, allotmentID, quantity, end, id)
	a = Allotment{TenantID: tenantID, VariantID: variantID, AllotmentID: allotmentID, Quantity: quantity, ExpiresAt: expiresAt}
	audit.Queue(b, []audit.Entry{a.entry("allotment.set", old, origin)})
	if err := tx.SendBatch(ctx, b).Close(); err != nil {
		return a, fmt.Errorf("set allotment %s of variant %s: %w", allotmentID, variantID, err)
	}
	if err := locked.readTx(ctx, tx, allotmentID); err != nil {
		return a, err
	}
	return locked.found.Allotment, nil
}

// lockedAllotment is an allotment under the lock of its stock, without due holds
// that could be ended.
type lockedAllotment struct {
	stocks
	ref   Ref
	found *setAside // nil if there is none that lives
}

// more returns how many units are set aside in addition, below 0 for fewer, so that
// they are quantity until end; or why that is not possible.
func (l *lockedAllotment) more(quantity int64, end time.Time) (more int64, err error) {
	more = quantity
	if l.found != nil {
		more -= l.found.Quantity
	}
	switch stock := l.counters[l.ref]; {
	case !end.After(l.now):
		return 0, &InvalidError{Field: "expires_at", Message: "must be in the future"}
	case stock.NamedUnits:
		return 0, &InvalidError{Field: "variant_id", Message: "names a block, of which no units can be set aside"}
	case !stock.Tracked:
		return 0, &InvalidError{Field: "variant_id", Message: "names a digital variant, which has no units"}
	case l.found != nil && l.found.rest.Quantity+more < 0:
		return 0, ErrBelowReserved
	case more > 0 && stock.bounded() && more > stock.capacity()-stock.Reserved:
		return 0, ErrOutOfStock
	}
	return more, nil
}

// lockAllotmentTx locks the stock, and ends what is due of the variant.
func lockAllotmentTx(ctx context.Context, tx pgx.Tx, tenantID uuid.UUID, variantID, allotmentID string) (l lockedAllotment, err error) {
	if err := errors.Join(ValidateID("variant_id", variantID), ValidateID("allotment_id", allotmentID)); err != nil {
		return l, err
	}
	l.ref = Ref{tenantID, variantID}
	l.stocks, err = lockTx(ctx, tx, lockSQL, []Ref{l.ref})
	if err == nil && l.counters[l.ref] == nil {
		err = ErrUnknownVariant
	}
	if err != nil {
		return l, fmt.Errorf("allotment %s of variant %s: %w", allotmentID, variantID, err)
	}
	if _, err := endDueOfTx(ctx, tx, dueOfAllotments, l.ref, l.now, expireMax); err != nil {
		return l, err
	}
	ended, err := endDueOfTx(ctx, tx, dueHoldsOf, l.ref, l.now, expireMax)
	if err != nil {
		return l, err
	}
	l.counters[l.ref].Reserved -= units(ended)
	err = l.readTx(ctx, tx, allotmentID)
	return l, err
}

// readTx reads the allotment as it is at the time of the lock.
func (l *lockedAllotment) readTx(ctx context.Context, tx pgx.Tx, allotmentID string) error {
	var wanted wantedAllotments
	wanted.add(l.ref.TenantID, l.ref.VariantID, allotmentID)
	all, err := wanted.readTx(ctx, tx, l.now)
	l.found = all[sourceOf(l.ref.TenantID, l.ref.VariantID, allotmentID)]
	return err
}

// EndAllotmentTx ends an allotment: what is left is for sale. What carts hold from
// it stays held. It records the end (allotment.ended), and that of what is left
// (reservation.resized, reservation.expired).
//
// Errors: [*InvalidError]; [ErrUnknownVariant]; [ErrUnknownAllotment]. The locks and
// the isolation level are those of SetAllotmentTx.
func EndAllotmentTx(ctx context.Context, tx pgx.Tx, tenantID uuid.UUID, variantID, allotmentID string, origin audit.Origin) (err error) {
	ctx, done := telemetry.Verb(ctx, "inventory.end_allotment")
	defer func() { done(outcome(err)) }()
	l, err := lockAllotmentTx(ctx, tx, tenantID, variantID, allotmentID)
	if err == nil && l.found == nil {
		err = fmt.Errorf("end allotment %s of variant %s: %w", allotmentID, variantID, ErrUnknownAllotment)
	}
	if err != nil {
		return err
	}
	if err := endRestsTx(ctx, tx, l.ref, allotmentID, l.now, origin); err != nil {
		return err
	}
	after := l.found.Allotment
	after.ExpiresAt = &l.now
	return audit.WriteTx(ctx, tx, []audit.Entry{after.entry("allotment.ended", l.found, origin)})
}

// entry returns the audit entry of a change by the back office. before is nil if
// the allotment is new.
func (a *Allotment) entry(action string, before *setAside, origin audit.Origin) audit.Entry {
	e := audit.Entry{
		TenantID: a.TenantID, TargetID: audit.TargetOf(a.TenantID, "allotment", sourceOf(a.TenantID, a.VariantID, a.AllotmentID).VariantID),
		Action: action, Origin: origin, After: a.encode(),
	}
	if before != nil {
		e.Before = before.encode()
	}
	return e
}

// encode is the allotment as the audit log keeps it.
func (a *Allotment) encode() json.RawMessage {
	b, err := json.Marshal(struct {
		VariantID   string     `json:"variant_id"`
		AllotmentID string     `json:"allotment_id"`
		Quantity    int64      `json:"quantity"`
		ExpiresAt   *time.Time `json:"expires_at"`
	}{a.VariantID, a.AllotmentID, a.Quantity, a.ExpiresAt})
	if err != nil { // strings and numbers always marshal
		panic(err)
	}
	return b
}

const endAllotmentsSQL = `
UPDATE allotments
SET expires_at = $4, updated_at = clock_timestamp()
WHERE tenant_id = $1 AND variant_id = $2 AND ($3 = '' OR allotment_id = $3) AND expires_at > $4`

// endRestsTx ends what is left of one allotment of a variant, or of all if the id
// is "", at the time now, a reading of the clock under the lock of the stock.
func endRestsTx(ctx context.Context, tx pgx.Tx, ref Ref, allotmentID string, now time.Time, origin audit.Origin) error {
	b := &pgx.Batch{}
	of := reservationrows.HolderKey{TenantID: ref.TenantID, HolderID: reservationrows.SetAside, ResourceKey: ref.VariantID}
	held := reservationrows.QueueLock(b, Kind, nil, []reservationrows.HolderKey{of})
	b.Queue(endAllotmentsSQL, ref.TenantID, ref.VariantID, allotmentID, now)
	if err := tx.SendBatch(ctx, b).Close(); err != nil {
		return fmt.Errorf("end the allotments of variant %s: %w", ref.VariantID, err)
	}
	rests := slices.DeleteFunc(*held, func(r reservations.Reservation) bool { return allotmentID != "" && r.AllotmentID != allotmentID })
	if len(rests) == 0 {
		return nil
	}
	b = &pgx.Batch{}
	for i := range rests {
		if r := &rests[i]; !r.Due(now) {
			reservationrows.QueueResize(b, r, r.Quantity, now, origin)
		}
	}
	if b.Len() > 0 {
		queueDeltas(b, map[Ref]counterDelta{ref: {earliest: now}})
	}
	if err := tx.SendBatch(ctx, b).Close(); err != nil {
		return fmt.Errorf("end the allotments of variant %s: %w", ref.VariantID, err)
	}
	ending := expiry(now)
	ending.Origin = origin
	return endTx(ctx, tx, rests, ending)
}

const (
	getAllotmentSQL = selectAllotments + `
  AND a.tenant_id = $2 AND a.variant_id = $3 AND a.allotment_id = $4`

	listAllotmentsSQL = selectAllotments + `
  AND a.tenant_id = $2 AND a.variant_id = $3 AND a.allotment_id > $4
ORDER BY a.allotment_id
LIMIT $5`
)

// GetAllotment returns an allotment that has not ended.
//
// Errors: [ErrUnknownAllotment]; [*InvalidError] for an invalid id.
func GetAllotment(ctx context.Context, db audit.Querier, tenantID uuid.UUID, variantID, allotmentID string) (Allotment, error) {
	if err := errors.Join(ValidateID("variant_id", variantID), ValidateID("allotment_id", allotmentID)); err != nil {
		return Allotment{}, err
	}
	a, err := pg.SelectOne(ctx, db, toSetAside, getAllotmentSQL, nil, tenantID, variantID, allotmentID)
	if errors.Is(err, pgx.ErrNoRows) {
		err = ErrUnknownAllotment
	}
	if err != nil {
		return Allotment{}, fmt.Errorf("get allotment %s of variant %s: %w", allotmentID, variantID, err)
	}
	return a.Allotment, nil
}

// ListAllotments returns a page of the allotments of a variant that have not ended,
// in the order of their ids, as [List] does of stocks.
//
// Errors: [*InvalidError] for a bad limit or cursor.
func ListAllotments(ctx context.Context, db audit.Querier, tenantID uuid.UUID, variantID string, limit int, cursor string) (AllotmentPage, error) {
	limit, after, err := pageBounds(limit, cursor)
	if err == nil {
		err = ValidateID("variant_id", variantID)
	}
	if err != nil {
		return AllotmentPage{}, err
	}
	found, err := pg.Select(ctx, db, toSetAside, listAllotmentsSQL, nil, tenantID, variantID, after, limit+1)
	if err != nil {
		return AllotmentPage{}, fmt.Errorf("list the allotments of variant %s: %w", variantID, err)
	}
	items := make([]Allotment, len(found))
	for i := range found {
		items[i] = found[i].Allotment
	}
	items, next := cutPage(items, limit, func(a *Allotment) string { return a.AllotmentID })
	return AllotmentPage{Items: items, NextCursor: next}, nil
}

const (
	endedAllotmentsSQL = `
SELECT a.tenant_id, a.variant_id, a.allotment_id
FROM allotments a
WHERE a.expires_at < clock_timestamp() - $1::interval
ORDER BY a.expires_at
LIMIT $2
FOR UPDATE SKIP LOCKED`

	dropAllotmentsSQL = `
DELETE FROM allotments a
USING unnest($1::uuid[], $2::text[], $3::text[]) AS ended (tenant_id, variant_id, allotment_id)
WHERE a.tenant_id = ended.tenant_id AND a.variant_id = ended.variant_id AND a.allotment_id = ended.allotment_id`
)

// PurgeAllotments deletes up to limit allotments that ended longer ago than
// retention, and returns how many. It waits for no lock.
func PurgeAllotments(ctx context.Context, db *pgxpool.Pool, retention time.Duration, limit int) (deleted int64, err error) {
	err = pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		var ended wantedAllotments
		keys, err := pg.Select(ctx, tx, pgx.RowToStructByPos[struct {
			TenantID               uuid.UUID
			VariantID, AllotmentID string
		}], endedAllotmentsSQL, retention, limit)
		if err != nil || len(keys) == 0 {
			return err
		}
		for _, k := range keys {
			ended.add(k.TenantID, k.VariantID, k.AllotmentID)
		}
		b := &pgx.Batch{}
		reservationrows.QueueDropEmpty(b, ended.tenants, ended.variants, ended.allotments)
		b.Queue(dropAllotmentsSQL, ended.tenants, ended.variants, ended.allotments)
		deleted = int64(len(ended.tenants))
		return tx.SendBatch(ctx, b).Close()
	})
	if err != nil {
		return 0, fmt.Errorf("purge allotments: %w", err)
	}
	return deleted, nil
}
