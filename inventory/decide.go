package inventory

import (
	"slices"
	"time"

	"github.com/holdfast/holdfast/internal/reservationrows"
	"github.com/holdfast/holdfast/postings"
	"github.com/holdfast/holdfast/reservations"
)

// inputs are the inputs of decide, read under the locks of the variants.
type inputs struct {
	now      time.Time
	counters map[Ref]*counter
	// locked are variants whose stock another transaction has locked, or a due
	// hold that is needed.
	locked map[Ref]bool
	// due is how many units of a variant are held past their deadline and can
	// be expired.
	due map[Ref]int64
	// expiring are locked due holds, which the counters no longer include.
	expiring map[Ref][]reservations.Reservation
	// cartHolds are the live holds of carts, for requests that depend on them.
	cartHolds map[reservationrows.HolderKey][]reservations.Reservation
	// units are the units of the blocks.
	units map[Ref]blockUnits
	// dueLeft are blocks with due holds that another transaction has locked.
	// ended is how many due holds of blocks were ended already.
	dueLeft map[Ref]bool
	ended   int
	// skipLocked means that holds of carts which other transactions have locked
	// are not waited for. lockedCarts are the carts with such holds.
	skipLocked  bool
	lockedCarts map[reservationrows.HolderKey]bool
	ttl         time.Duration
	lifetimeMax time.Duration
}

// decision is the result of decide.
type decision struct {
	outcomes []Outcome              // one per request, in their order
	holds    []reservationrows.Hold // in the order of their requests, each with what it replaces
	reserved map[Ref]demand
	short    map[Ref]bool // variants with a request that was OutOfStock
	// released is what carts hold of variants that are no longer tracked, and
	// give back by changing the quantity.
	released []replaced
}

// demand is what the requests for one variant reserve, in units: the sum
// without what they replace, and its highest value after any request.
type demand struct{ net, peak int64 }

// decide grants first come, first served: each request, in their order, that
// fits what the earlier ones left. So a request that is too large does not
// block a smaller one. It is pure: no clock, no database, and no change of its
// arguments.
func decide(requests []HoldRequest, in inputs) decision {
	d := decision{outcomes: make([]Outcome, len(requests)), reserved: make(map[Ref]demand), short: make(map[Ref]bool)}
	d.holds = make([]reservationrows.Hold, 0, len(requests))
	cartHolds := make(map[reservationrows.HolderKey][]reservations.Reservation, len(in.cartHolds))
	for key, held := range in.cartHolds {
		cartHolds[key] = append([]reservations.Reservation(nil), held...)
	}
	pools := unitPools(in.units)
	for i := range requests {
		request := &requests[i]
		ref := Ref{request.TenantID, request.VariantID}
		c, pool := in.counters[ref], pools[ref]
		if outcome := in.withoutHold(request, c, pool); outcome != "" {
			d.outcomes[i] = outcome
			continue
		}
		key := holderKey(request)
		held, follow := cartHolds[key]
		own, inCart := int64(0), request.Quantity
		if request.Replace {
			own = units(held)
		} else {
			inCart += units(held)
		}
		reserved := d.reserved[ref]
		free := c.Stock - c.Reserved + in.due[ref] - reserved.net
		switch {
		case request.Replace && inCheckout(held):
			d.outcomes[i] = Cancelled
			continue
		case !c.Tracked:
			d.release(request, ref, held)
			cartHolds[key] = nil
			d.outcomes[i] = Untracked
			continue
		case c.MaxPerCart != nil && inCart > int64(*c.MaxPerCart), c.NamedUnits && request.Quantity > postings.UnitsMax:
			d.outcomes[i] = LimitExceeded
			continue
		case !c.Backorder && free+own < request.Quantity:
			d.outcomes[i] = in.outOfStock(ref)
			if pool == nil { // the due holds of a block are ended already
				d.short[ref] = true
			}
			continue
		}

		hold := in.hold(request, c)
		if pool != nil {
			hold.UnitIDs = pool.take(request, ownUnits(request, held))
			if hold.UnitIDs == nil {
				d.outcomes[i] = in.outOfStock(ref)
				continue
			}
		}
		if request.Replace && len(held) > 0 {
			in.replace(&hold, held)
			held = nil
		}
		if follow {
			cartHolds[key] = append(held, hold.Reservation)
		}
		d.holds = append(d.holds, hold)
		reserved.net += request.Quantity - own
		reserved.peak = max(reserved.peak, reserved.net)
		d.reserved[ref] = reserved
		d.outcomes[i] = Granted
	}
	return d
}

// withoutHold returns the outcome of a request that does not depend on what is
// available, or "".
func (in *inputs) withoutHold(request *HoldRequest, c *counter, pool *unitPool) Outcome {
	switch {
	case request.Stale:
		return ExpiredInQueue
	case in.locked[Ref{request.TenantID, request.VariantID}]:
		return Locked
	case c == nil, request.Block && !c.NamedUnits, pool == nil && len(request.UnitIDs) > 0, pool != nil && !pool.knows(request.UnitIDs):
		return UnknownVariant
	case !c.Tracked && !request.Replace:
		return Untracked
	case in.lockedCarts[holderKey(request)]:
		return Locked
	}
	return ""
}

// outOfStock is the outcome of a request that does not fit. A request for units
// that may be those of a due hold is not rejected: it is decided once that hold
// can be ended.
func (in *inputs) outOfStock(ref Ref) Outcome {
	if in.dueLeft[ref] {
		return Locked
	}
	return OutOfStock
}

// replace makes the hold replace the held ones, within the lifetime of the
// first of them.
func (in *inputs) replace(hold *reservationrows.Hold, held []reservations.Reservation) {
	for _, old := range held {
		hold.FirstHeldAt = earlier(hold.FirstHeldAt, old.FirstHeldAt)
	}
	hold.ExpiresAt = earlier(hold.ExpiresAt, hold.FirstHeldAt.Add(in.lifetimeMax))
	hold.Replaces = held
}

// hold is the reservation that grants the request.
func (in *inputs) hold(request *HoldRequest, c *counter) reservationrows.Hold {
	ttl := in.ttl
	if c.HoldTTLSeconds != nil {
		ttl = time.Duration(*c.HoldTTLSeconds) * time.Second
	}
	return reservationrows.Hold{Origin: request.Origin, Reservation: reservations.Reservation{
		TenantID: request.TenantID, ReservationID: request.RequestID, ResourceKind: Kind, ResourceKey: request.VariantID,
		HolderID: request.CartID, Quantity: request.Quantity, Status: reservations.Held,
		FirstHeldAt: in.now, HeldAt: in.now, ExpiresAt: in.now.Add(min(ttl, in.lifetimeMax)),
	}}
}

// ownUnits returns the units that the request gives back.
func ownUnits(request *HoldRequest, held []reservations.Reservation) (own []string) {
	if request.Replace {
		for i := range held {
			own = append(own, held[i].UnitIDs...)
		}
	}
	return own
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

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}
