package inventory

import (
	"github.com/holdfast/holdfast/internal/reservationrows"
	"github.com/holdfast/holdfast/internal/unitrows"
	"github.com/holdfast/holdfast/reservations"
)

// inputs are the inputs of decide, read under the locks of the variants.
type inputs struct {
	stocks
	Terms
	// locked are variants whose stock another transaction has locked.
	locked map[Ref]bool
	// due is how many units of a variant are held past their deadline and can
	// be expired. lockedDue is how many are in due holds that other
	// transactions have locked, and lockedUnits are the units of such holds of
	// blocks.
	due, lockedDue map[Ref]int64
	lockedUnits    map[Ref]map[string]bool
	// expiring are locked due holds, which the counters no longer include.
	expiring map[Ref][]reservations.Reservation
	// cartHolds are the live holds of carts, for requests that depend on them.
	// lockedCarts are the carts with a hold that another transaction has
	// locked.
	cartHolds   map[reservationrows.HolderKey][]reservations.Reservation
	lockedCarts map[reservationrows.HolderKey]bool
	// bought is what customers hold and have bought, of variants and groups that
	// limit it. groups are those that have limits.
	bought bought
	groups map[groupKey]Group
	// line are the variants for which requests wait in line, and unmarked those
	// for which none does any more.
	line     map[Ref]bool
	unmarked []Ref
	// setAside are the allotments of the requests. Their counters are among those
	// of the stocks.
	setAside setAsides
	// units are the units of the blocks.
	units map[Ref]blockUnits
	// ended is how many due holds of blocks were ended already.
	ended int
}

// decision is the result of decide.
type decision struct {
	outcomes []Outcome              // one per request, in their order
	holds    []reservationrows.Hold // in the order of their requests, each with what it replaces
	reserved map[Ref]demand
	short    map[Ref]bool // variants with a request that did not fit
	// released is what carts hold of variants that are no longer tracked, and
	// give back by changing the quantity.
	released []replaced
	// waiting is how many units each LockedDue request for any units needs, in
	// their order.
	waiting map[Ref][]int64
	// left are the carts that have an undecided request for the variant.
	left map[reservationrows.HolderKey]Outcome

	cartHolds map[reservationrows.HolderKey][]reservations.Reservation // after the requests decided so far
	pools     map[Ref]*unitPool
	bought    bought
	joined    map[Ref]bool // variants for which a request joins the line
}

// demand is what the requests for one variant reserve, in units: the sum
// without what they replace, and its highest value after any request.
type demand struct{ net, peak int64 }

// decide grants first come, first served: each request, in their order, that
// fits what the earlier ones left. So a request that is too large does not
// block a smaller one. It is pure: no clock, no database, and no change of its
// arguments.
//
// A request whose outcome depends on a hold that another transaction has locked
// is left undecided, and so are the later requests of its cart for the variant.
// All other requests are decided: see unfit for those that come short.
func decide(requests []HoldRequest, in inputs) decision {
	d := decision{
		outcomes: make([]Outcome, len(requests)), holds: make([]reservationrows.Hold, 0, len(requests)),
		reserved: make(map[Ref]demand), short: make(map[Ref]bool),
		waiting: make(map[Ref][]int64), left: make(map[reservationrows.HolderKey]Outcome),
		cartHolds: make(map[reservationrows.HolderKey][]reservations.Reservation, len(in.cartHolds)), pools: unitPools(in.units),
		bought: make(bought), joined: make(map[Ref]bool),
	}
	for key, held := range in.cartHolds {
		d.cartHolds[key] = append([]reservations.Reservation(nil), held...)
	}
	for i := 0; i < len(requests); {
		if requests[i].Set == 0 {
			d.outcomes[i] = d.decideOne(&requests[i], &in)
			i++
			continue
		}
		i = d.decideSet(requests, i, &in)
	}
	return d
}

func (d *decision) decideOne(request *HoldRequest, in *inputs) Outcome {
	ref := request.source()
	c := in.counters[ref]
	if outcome := in.withoutHold(request, c, d.pools[ref]); outcome != "" {
		return outcome
	}
	key := holderKey(request)
	if in.lockedCarts[key] && request.dependsOnHolds(c) {
		d.left[key] = LockedHold
	}
	outcome, isLeft := d.left[key]
	if isLeft {
		return outcome
	}
	outcome = d.fit(request, key, in)
	if outcome == LockedDue {
		d.left[key] = outcome
	}
	return outcome
}

// fit holds what the request wants, if it fits what the earlier ones left, and
// returns its outcome.
func (d *decision) fit(request *HoldRequest, key reservationrows.HolderKey, in *inputs) Outcome {
	ref := request.source()
	c, pool := in.counters[ref], d.pools[ref]
	held, follow := d.cartHolds[key]
	replaced, others := request.replaced(held)
	own, inCart := units(replaced), request.Quantity+units(others)
	reserved := d.reserved[ref]
	free := d.free(request, c, in)
	var bySale Outcome
	limits := in.limitsOf(request, c.Sale)
	if c.Sale != nil {
		bySale = d.bySale(request, c.Sale, limits, replaced, inCart, in)
	}
	switch {
	case inCheckout(replaced):
		return Cancelled
	case inKit(replaced):
		return PartOfKit
	case !c.Tracked:
		d.release(request, ref, replaced)
		d.cartHolds[key] = others
		return Untracked
	case bySale != "":
		return bySale
	case c.MaxPerCart != nil && inCart > int64(*c.MaxPerCart), c.NamedUnits && request.Quantity > unitrows.UnitsMax:
		return LimitExceeded
	case c.bounded() && free+own < request.Quantity:
		if pool == nil { // the due holds of a block are ended already
			d.short[ref] = true
		}
		if pool != nil && request.isParticular() && free+own+in.lockedDue[ref] >= request.Quantity {
			return pool.refused(request, in.lockedUnits[ref])
		}
		return d.unserved(request, ref, d.unfit(ref, request.Quantity-own, free, in.lockedDue[ref]))
	}
	hold := in.hold(request, c)
	if pool != nil {
		hold.UnitIDs = pool.take(request, ownUnits(replaced))
		if hold.UnitIDs == nil {
			return pool.refused(request, in.lockedUnits[ref])
		}
	}
	if len(replaced) > 0 {
		in.replace(&hold, replaced)
	}
	if follow {
		d.cartHolds[key] = append(others, hold.Reservation)
	}
	d.holds = append(d.holds, hold)
	d.bought.add(limits, request.Quantity, hold.Replaces, in.now)
	reserved.net += request.Quantity - own
	reserved.peak = max(reserved.peak, reserved.net)
	d.reserved[ref] = reserved
	return Granted
}

// withoutHold returns the outcome of a request that does not depend on what is
// available, or "".
func (in *inputs) withoutHold(request *HoldRequest, c *counter, pool *unitPool) Outcome {
	switch {
	case request.Stale:
		return ExpiredInQueue
	case in.locked[Ref{request.TenantID, request.VariantID}]:
		return Locked
	case c == nil && request.VariantID == NoKitPart:
		return UnknownKit
	case c == nil && request.AllotmentID != "" && in.counters[Ref{request.TenantID, request.VariantID}] != nil:
		return NoAllotment
	case c == nil, request.Block && !c.NamedUnits, pool == nil && len(request.UnitIDs) > 0, pool != nil && !pool.knows(request.UnitIDs):
		return UnknownVariant
	case !c.Tracked && !request.Replace:
		return Untracked
	}
	return ""
}

// replace makes the hold replace the held ones, within the lifetime of the
// first of them.
func (in *inputs) replace(hold *reservationrows.Hold, held []reservations.Reservation) {
	for _, old := range held {
		hold.FirstHeldAt = earlier(hold.FirstHeldAt, old.FirstHeldAt)
	}
	hold.ExpiresAt = earlier(hold.ExpiresAt, hold.FirstHeldAt.Add(in.LifetimeMax))
	hold.Replaces = held
}
