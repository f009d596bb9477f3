package inventory

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/audit"
	"github.com/holdfast/holdfast/internal/isolation"
	"github.com/holdfast/holdfast/internal/reservationrows"
	"github.com/holdfast/holdfast/reservations"
)

// Terms are the deadlines of a hold. The zero value of a field is its default.
type Terms struct {
	// TTL is how long a hold lasts if its variant has no TTL; default 15
	// minutes.
	TTL time.Duration
	// LifetimeMax is how long a hold can last with all its extensions and
	// changes of quantity; default 2 hours.
	LifetimeMax time.Duration
}

// WithDefaults fills in the zero fields and checks the terms against each
// other.
func (t Terms) WithDefaults() (Terms, error) {
	if t.TTL == 0 {
		t.TTL = 15 * time.Minute
	}
	if t.LifetimeMax == 0 {
		t.LifetimeMax = 2 * time.Hour
	}
	if t.TTL < time.Second || t.LifetimeMax < t.TTL {
		return t, fmt.Errorf("hold terms: want 1s ≤ ttl (%s) ≤ lifetime_max (%s)", t.TTL, t.LifetimeMax)
	}
	return t, nil
}

// Holding is a set of requests, decided and ready to be written.
type Holding struct {
	// Outcomes has one outcome per request, in their order.
	Outcomes []Outcome
	// Now is the reading of the database's clock that the deadlines count from.
	Now time.Time

	decision decision
	expired  []reservations.Reservation
	ended    int // due holds of blocks that are ended already
}

// Expired is how many due holds the decision expires.
func (h *Holding) Expired() int { return len(h.expired) + h.ended }

// errDueChanged means that due holds were extended after they were counted and
// before they were locked.
var errDueChanged = errors.New("due holds were extended")

// lockedDueError means that another transaction has locked due holds of the
// variants whose units the requests need.
type lockedDueError struct{ variants []Ref }

func (e *lockedDueError) Error() string {
	return fmt.Sprintf("due holds of %d variants are locked", len(e.variants))
}

// expireMax is how many due holds one decision expires at most.
const expireMax = 5000

// BacklogError means that the requests need the units of more due holds of a
// variant than one transaction expires. Roll back, call ExpireVariant, and
// decide the requests again.
type BacklogError struct{ Variant Ref }

// Error names the variant.
func (e *BacklogError) Error() string {
	return fmt.Sprintf("inventory: more than %d due holds of variant %s must be expired first", expireMax, e.Variant.VariantID)
}

// HoldTx decides the requests in the order given, first come, first served. It
// writes nothing: the caller runs the statements of Holding.Queue in the same
// transaction. If a variant comes up short, its own due holds are expired
// first, so a hold past its deadline never blocks a request, swept or not.
//
// It locks the stocks of the variants in (tenant, variant) order.
//
// The transaction must be READ COMMITTED, else ErrIsolation, because what a
// cart holds is read after its stocks are locked.
//
// Errors: *BacklogError; the database's.
func HoldTx(ctx context.Context, tx pgx.Tx, requests []HoldRequest, terms Terms) (*Holding, error) {
	in, err := lockInputsTx(ctx, tx, variantsOf(requests), terms, nil)
	if err != nil {
		return nil, err
	}
	return holdTx(ctx, tx, requests, in)
}

// HoldStockTx is HoldTx that waits for stocks, but not for holds of the
// requests' carts that other transactions have locked. A request whose outcome
// depends on such a hold gets the outcome Locked, and nothing is written for it.
// So do all requests for a variant that needs the units of a locked due hold.
// The isolation level and the errors are those of HoldTx.
func HoldStockTx(ctx context.Context, tx pgx.Tx, requests []HoldRequest, terms Terms) (*Holding, error) {
	in, err := lockInputsTx(ctx, tx, variantsOf(requests), terms, nil)
	if err != nil {
		return nil, err
	}
	in.skipLocked = true
	return holdTx(ctx, tx, requests, in)
}

// HoldUnlockedTx is HoldStockTx without waiting for stocks that other
// transactions have locked: their requests get the outcome Locked too. The
// isolation level and the errors are those of HoldTx.
func HoldUnlockedTx(ctx context.Context, tx pgx.Tx, requests []HoldRequest, terms Terms) (*Holding, error) {
	refs := variantsOf(requests)
	counters, now, err := lockUnlockedTx(ctx, tx, refs, isolation.Queue)
	if err != nil {
		return nil, err
	}
	in := inputs{now: now, counters: counters, skipLocked: true, ttl: terms.TTL, lifetimeMax: terms.LifetimeMax}
	if len(counters) < len(refs) {
		in.locked, err = withLockedStock(ctx, tx, refs, counters)
		if err != nil {
			return nil, err
		}
	}
	return holdTx(ctx, tx, requests, in)
}

// lockInputsTx locks the stocks of the variants. then, if not nil, adds
// statements that run after the lock.
func lockInputsTx(ctx context.Context, tx pgx.Tx, refs []Ref, terms Terms, then func(*pgx.Batch)) (inputs, error) {
	counters, now, err := lockBy(ctx, tx, lockSQL, refs, then, isolation.Queue)
	return inputs{now: now, counters: counters, ttl: terms.TTL, lifetimeMax: terms.LifetimeMax}, err
}

// holdTx decides the requests under the locks of their stocks.
func holdTx(ctx context.Context, tx pgx.Tx, requests []HoldRequest, in inputs) (_ *Holding, err error) {
	in.cartHolds, err = cartHoldsTx(ctx, tx, requests, &in)
	if err != nil {
		return nil, err
	}
	if err := in.readUnitsTx(ctx, tx, requests); err != nil {
		return nil, err
	}
	d := decide(requests, in)
	for attempt := 0; len(d.short) > 0; attempt++ {
		in.due, err = dueTx(ctx, tx, d.short, in)
		if err != nil {
			return nil, err
		}
		if len(in.due) == 0 {
			break
		}
		withDue := decide(requests, in)
		expired, err := lockNeededTx(ctx, tx, in, withDue)
		if err == nil {
			return &Holding{Outcomes: withDue.outcomes, Now: in.now, decision: withDue, expired: append(in.expiringHolds(), expired...), ended: in.ended}, nil
		}
		if stuck, ok := errors.AsType[*lockedDueError](err); ok {
			in.leave(stuck.variants)
			d = decide(requests, in)
			continue
		}
		if !errors.Is(err, errDueChanged) || attempt >= 3 {
			return nil, err
		}
	}
	return &Holding{Outcomes: d.outcomes, Now: in.now, decision: d, expired: in.expiringHolds(), ended: in.ended}, nil
}

// Queue adds to b what writes the decision: it expires due holds, changes the
// counters under their guard, releases replaced reservations, makes the new
// ones, and writes an audit row for each. The audit rows are in this order,
// request by request: a reader that adds up the record never counts more units
// than there are.
func (h *Holding) Queue(b *pgx.Batch) {
	deltas := make(map[Ref]counterDelta, len(h.decision.reserved))
	for ref, demand := range h.decision.reserved {
		deltas[ref] = counterDelta{reserved: demand.net}
	}
	for _, r := range h.expired {
		ref := Ref{r.TenantID, r.ResourceKey}
		deltas[ref] = counterDelta{reserved: deltas[ref].reserved - r.Quantity}
	}
	reservationrows.QueueEnd(b, expiry(h.Now), h.expired)
	queueDeltas(b, deltas)
	h.queueReleased(b)
	reservationrows.QueueHolds(b, h.decision.holds)
}

// replaced are holds that a request ends without making one.
type replaced struct {
	held   []reservations.Reservation
	origin audit.Origin
}

// release adds what a cart held to the decision.
func (d *decision) release(request *HoldRequest, ref Ref, held []reservations.Reservation) {
	if len(held) == 0 {
		return
	}
	d.released = append(d.released, replaced{held, request.Origin})
	demand := d.reserved[ref]
	demand.net -= units(held)
	d.reserved[ref] = demand
}

// holderKey is the line of the request's cart.
func holderKey(request *HoldRequest) reservationrows.HolderKey {
	return reservationrows.HolderKey{TenantID: request.TenantID, HolderID: request.CartID, ResourceKey: request.VariantID}
}

// queueReleased adds to b what ends the holds that requests replace by none.
func (h *Holding) queueReleased(b *pgx.Batch) {
	var refs []reservationrows.Ref
	var entries []audit.Entry
	replacing := reservationrows.Ending{To: reservations.Released, Reason: reservations.Replaced, At: h.Now}
	for i := range h.decision.released {
		r := &h.decision.released[i]
		replacing.Origin = r.origin
		for j := range r.held {
			refs = append(refs, r.held[j].Ref())
			entries = append(entries, replacing.Apply(&r.held[j]))
		}
	}
	replacing.QueueRows(b, refs, nil)
	audit.Queue(b, entries)
}

// expiry is the ending of holds past their deadline.
func expiry(now time.Time) reservationrows.Ending {
	return reservationrows.Ending{To: reservations.Expired, Reason: reservations.TTL, At: now, Origin: audit.Origin{Actor: audit.Job("expiry")}}
}

// cartHoldsTx reads what the carts hold of the variants, for the requests whose
// outcome depends on it.
func cartHoldsTx(ctx context.Context, tx pgx.Tx, requests []HoldRequest, in *inputs) (map[reservationrows.HolderKey][]reservations.Reservation, error) {
	var wanted []reservationrows.HolderKey
	lines := make(map[reservationrows.HolderKey][]reservations.Reservation)
	for i := range requests {
		request := &requests[i]
		c := in.counters[Ref{request.TenantID, request.VariantID}]
		if c == nil || (!request.Replace && c.MaxPerCart == nil) {
			continue
		}
		line := holderKey(request)
		if _, seen := lines[line]; !seen {
			lines[line] = nil
			wanted = append(wanted, line)
		}
	}
	if len(wanted) == 0 {
		return nil, nil
	}
	var held []reservations.Reservation
	var now time.Time
	var err error
	if in.skipLocked {
		held, in.lockedCarts, now, err = reservationrows.TryLockHolderKeysTx(ctx, tx, Kind, wanted)
	} else {
		held, now, err = reservationrows.LockHolderKeysTx(ctx, tx, Kind, wanted)
	}
	if err != nil {
		return nil, err
	}
	in.now = now
	for _, r := range held {
		if !r.Due(now) {
			line := reservationrows.HolderKey{TenantID: r.TenantID, HolderID: r.HolderID, ResourceKey: r.ResourceKey}
			lines[line] = append(lines[line], r)
		}
	}
	return lines, nil
}

// dueTx counts the due units of the variants that came up short, without those
// of in.expiring.
func dueTx(ctx context.Context, tx pgx.Tx, short map[Ref]bool, in inputs) (map[Ref]int64, error) {
	tenants, variants := make([]uuid.UUID, 0, len(short)), make([]string, 0, len(short))
	for ref := range short {
		tenants, variants = append(tenants, ref.TenantID), append(variants, ref.VariantID)
	}
	sums, err := reservationrows.SumDue(ctx, tx, Kind, tenants, variants, in.now)
	if err != nil {
		return nil, err
	}
	due := make(map[Ref]int64, len(sums))
	for _, s := range sums {
		ref := Ref{s.TenantID, s.ResourceKey}
		if left := s.Quantity - units(in.expiring[ref]); left > 0 {
			due[ref] = left
		}
	}
	return due, nil
}

// lockNeededTx locks as many due holds as the decision needs units from, the
// longest due first.
func lockNeededTx(ctx context.Context, tx pgx.Tx, in inputs, d decision) ([]reservations.Reservation, error) {
	var refs []reservationrows.Ref
	need := make(map[Ref]int64)
	for ref := range in.due {
		c := in.counters[ref]
		// at the moment of the greatest demand, because the record shows every
		// moment
		lacking := d.reserved[ref].peak - (c.Stock - c.Reserved)
		if lacking <= 0 || c.Backorder {
			continue
		}
		need[ref] = lacking
		// every hold has at least one unit, so that many rows suffice
		most := int(min(lacking, int64(expireMax-len(refs)))) + len(in.expiring[ref])
		due, err := reservationrows.DueOfKey(ctx, tx, ref.TenantID, Kind, ref.VariantID, in.now, most)
		if err != nil {
			return nil, err
		}
		counted := make(map[uuid.UUID]bool, len(in.expiring[ref]))
		for i := range in.expiring[ref] {
			counted[in.expiring[ref][i].ReservationID] = true
		}
		for i := 0; i < len(due) && lacking > 0; i++ {
			if counted[due[i].ReservationID] {
				continue
			}
			refs = append(refs, due[i].Ref())
			lacking -= due[i].Quantity
		}
		if lacking > 0 && len(due) == most {
			return nil, &BacklogError{ref}
		}
	}
	if len(need) == 0 {
		return nil, nil
	}
	lock := reservationrows.LockTx
	if in.skipLocked {
		lock = reservationrows.TryLockTx
	}
	locked, _, err := lock(ctx, tx, refs)
	if err != nil {
		return nil, err
	}
	for i := range locked {
		if r := &locked[i]; !r.Due(in.now) {
			return nil, errDueChanged
		}
		need[Ref{locked[i].TenantID, locked[i].ResourceKey}] -= locked[i].Quantity
	}
	var stuck []Ref
	for ref, lacking := range need {
		switch {
		case lacking > 0 && in.skipLocked:
			stuck = append(stuck, ref)
		case lacking > 0:
			return nil, fmt.Errorf("expire due holds of variant %s: %w", ref.VariantID, errDueChanged)
		}
	}
	if len(stuck) > 0 {
		return nil, &lockedDueError{stuck}
	}
	return locked, nil
}

// leave makes the requests for the variants Locked, as if their stocks were.
func (in *inputs) leave(variants []Ref) {
	if in.locked == nil {
		in.locked = make(map[Ref]bool, len(variants))
	}
	for _, ref := range variants {
		in.locked[ref] = true
	}
	in.due = nil
}

// expiringHolds are the due holds that are expired whatever the decision needs.
func (in *inputs) expiringHolds() (all []reservations.Reservation) {
	for _, due := range in.expiring {
		all = append(all, due...)
	}
	return all
}

func variantsOf(requests []HoldRequest) []Ref {
	seen := make(map[Ref]struct{}, 64)
	var refs []Ref
	for i := range requests {
		ref := Ref{requests[i].TenantID, requests[i].VariantID}
		if _, ok := seen[ref]; !ok {
			seen[ref] = struct{}{}
			refs = append(refs, ref)
		}
	}
	return refs
}
