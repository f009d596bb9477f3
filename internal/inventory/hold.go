package inventory

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/audit"
	"github.com/holdfast/holdfast/internal/pg"
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
	ended    int   // due holds of blocks that are ended already
	unmarked []Ref // variants for which no request waits any more
	setAside setAsides
}

// Expired is how many due holds the decision expires.
func (h *Holding) Expired() int { return len(h.expired) + h.ended }

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

// holdTx decides the requests under the locks of their stocks.
func holdTx(ctx context.Context, tx pgx.Tx, requests []HoldRequest, in inputs) (_ *Holding, err error) {
	if err := in.readAllotmentsTx(ctx, tx, requests); err != nil {
		return nil, err
	}
	in.cartHolds, err = cartHoldsTx(ctx, tx, requests, &in)
	if err != nil {
		return nil, err
	}
	if err := in.readBoughtTx(ctx, tx, requests); err != nil {
		return nil, err
	}
	if err := in.readUnitsTx(ctx, tx, requests); err != nil {
		return nil, err
	}
	if err := in.readLineTx(ctx, tx); err != nil {
		return nil, err
	}
	d := decide(requests, in)
	expired := in.expiringHolds()
	if len(d.short) > 0 {
		in.due, err = dueTx(ctx, tx, d.short, in)
		if err != nil {
			return nil, err
		}
	}
	if len(in.due) > 0 {
		var reclaimed []reservations.Reservation
		d, reclaimed, err = in.reclaimTx(ctx, tx, requests)
		if err != nil {
			return nil, err
		}
		expired = append(expired, reclaimed...)
	}
	return &Holding{Outcomes: d.outcomes, Now: in.now, decision: d, expired: expired, ended: in.ended, unmarked: in.unmarked, setAside: in.setAside}, nil
}

// Queue adds to b what writes the decision: it expires due holds, changes the
// counters under their guard, releases replaced reservations, makes the new
// ones, and writes an audit row for each. The audit rows are in this order,
// request by request: a reader that adds up the record never counts more units
// than there are.
//
// Statements whose results must be read to know that they did what they ought to
// have a function that reads them. Holds that end nothing need none.
func (h *Holding) Queue(b *pgx.Batch) {
	e := endings{deltas: make(map[Ref]counterDelta, len(h.decision.reserved))}
	for ref, demand := range h.decision.reserved {
		if a := h.setAside[ref]; a != nil { // its units are reserved already
			a.queueChange(b, -demand.peak)
			of := Ref{a.TenantID, a.VariantID}
			d := e.deltas[of]
			d.makes(a.rest.ExpiresAt) // no index had it while no unit was left
			e.deltas[of] = d
			continue
		}
		d := e.deltas[ref]
		d.reserved = demand.net
		e.deltas[ref] = d
	}
	for i := range h.decision.holds {
		hold := &h.decision.holds[i]
		ref := Ref{hold.TenantID, hold.ResourceKey}
		d := e.deltas[ref]
		d.makes(hold.ExpiresAt)
		e.deltas[ref] = d
	}
	e.count(h.expired, reservations.Expired)
	e.add(h.expired, expiry(h.Now))
	for _, r := range h.decision.released { // decision.reserved counts them
		e.add(r.held, reservationrows.Ending{To: reservations.Released, Reason: reservationrows.Replaced, At: h.Now, Origin: r.origin})
	}
	e.queueRows(b)
	queueStrictDeltas(b, e.deltas)
	audit.Queue(b, e.entries)
	reservationrows.QueueHolds(b, h.decision.holds)
	for ref, demand := range h.decision.reserved {
		if a := h.setAside[ref]; a != nil {
			a.queueChange(b, demand.peak-demand.net)
		}
	}
	for _, ref := range h.unmarked {
		QueueUnmarkLine(b, ref)
	}
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

// cartHoldsTx reads what the carts hold of the variants, for the requests whose
// outcome depends on it.
func cartHoldsTx(ctx context.Context, tx pgx.Tx, requests []HoldRequest, in *inputs) (map[reservationrows.HolderKey][]reservations.Reservation, error) {
	var wanted []reservationrows.HolderKey
	lines := make(map[reservationrows.HolderKey][]reservations.Reservation)
	for i := range requests {
		request := &requests[i]
		c := in.counters[Ref{request.TenantID, request.VariantID}]
		if c == nil || !request.dependsOnHolds(c) {
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
	b := &pgx.Batch{}
	reservationrows.QueueTryLock(b, Kind, nil, wanted, func(locked, others []reservations.Reservation) {
		held, in.lockedCarts = locked, make(map[reservationrows.HolderKey]bool)
		for i := range others {
			in.lockedCarts[reservationrows.HolderKeyOf(&others[i])] = true
		}
	})
	pg.QueueClock(b, &in.now)
	if err := tx.SendBatch(ctx, b).Close(); err != nil {
		return nil, fmt.Errorf("lock what %d carts hold: %w", len(wanted), err)
	}
	for i := range held {
		if line := reservationrows.HolderKeyOf(&held[i]); !held[i].Due(in.now) {
			lines[line] = append(lines[line], held[i])
		}
	}
	return lines, nil
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

// Made returns the reservations that the decision makes, in the order of their
// requests, each as it is after the decision is written. The id of a
// reservation is the id of its request.
func (h *Holding) Made() []reservations.Reservation {
	made := make([]reservations.Reservation, 0, len(h.decision.holds))
	for i := range h.decision.holds {
		hold := &h.decision.holds[i]
		for j := range hold.Replaces {
			for k := range made { // a hold of the same set
				if made[k].Ref() == hold.Replaces[j].Ref() {
					made[k].Status, made[k].ReleaseReason, made[k].EndedAt = reservations.Released, reservationrows.Replaced, &hold.HeldAt
				}
			}
		}
		made = append(made, hold.Reservation)
	}
	return made
}

// hold is the reservation that grants the request.
func (in *inputs) hold(request *HoldRequest, c *counter) reservationrows.Hold {
	ttl := in.TTL
	if c.HoldTTLSeconds != nil {
		ttl = time.Duration(*c.HoldTTLSeconds) * time.Second
	}
	if request.Offered && c.Sale != nil && c.Sale.ClaimSeconds != nil {
		ttl = time.Duration(*c.Sale.ClaimSeconds) * time.Second
	}
	return reservationrows.Hold{Origin: request.Origin, Reservation: reservations.Reservation{
		TenantID: request.TenantID, ReservationID: request.RequestID, ResourceKind: Kind, ResourceKey: request.VariantID, KitID: request.KitID, AllotmentID: request.AllotmentID,
		HolderID: request.CartID, CustomerID: request.CustomerID, Quantity: request.Quantity, Status: reservations.Held,
		FirstHeldAt: in.now, HeldAt: in.now, ExpiresAt: in.now.Add(min(ttl, in.LifetimeMax)),
	}}
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}
