package inventory

import (
	"time"

	"github.com/holdfast/holdfast/internal/reservationrows"
	"github.com/holdfast/holdfast/reservations"
)

// known is what decide may rely on: everything in it was read under the locks of the variants.
type known struct {
	now      time.Time
	counters map[Ref]*counter
	// locked are variants whose stock another transaction has locked.
	locked map[Ref]bool
	// due is how many units of a variant are held past their deadline and can be had back.
	due map[Ref]int64
	// taken are due holds that are locked and to be expired; the counters are without them.
	taken map[Ref][]reservations.Reservation
	// lines holds what carts have of a variant, before its deadline, for the asks that depend on it.
	lines       map[reservationrows.Line][]reservations.Reservation
	ttl         time.Duration
	lifetimeMax time.Duration
}

// decision is what decide wants done.
type decision struct {
	verdicts []Verdict              // one for each ask, in their order
	holds    []reservationrows.Hold // in the order of their asks, each with what it replaces
	reserved map[Ref]demand
	short    map[Ref]bool // variants that turned an ask away for want of units
}

// demand is what the asks for one variant reserve, in units: net of what they replace, and at most at any moment between
// the first ask and the last.
type demand struct{ net, peak int64 }

// decide grants first come, first served: the asks in their order, each if it fits what the earlier ones left, so an
// ask too large does not block the smaller one behind it. It is a pure function: no clock, no database, and what it is
// given stays as it is.
func decide(asks []Ask, k known) decision {
	d := decision{verdicts: make([]Verdict, len(asks)), reserved: make(map[Ref]demand), short: make(map[Ref]bool)}
	d.holds = make([]reservationrows.Hold, 0, len(asks))
	lines := make(map[reservationrows.Line][]reservations.Reservation, len(k.lines))
	for line, held := range k.lines {
		lines[line] = append([]reservations.Reservation(nil), held...)
	}
	for i := range asks {
		ask := &asks[i]
		ref := Ref{ask.TenantID, ask.VariantID}
		c := k.counters[ref]
		switch {
		case ask.Stale:
			d.verdicts[i] = ExpiredInQueue
			continue
		case k.locked[ref]:
			d.verdicts[i] = Locked
			continue
		case c == nil:
			d.verdicts[i] = UnknownVariant
			continue
		case !c.Tracked:
			d.verdicts[i] = Untracked
			continue
		}

		line := reservationrows.Line{TenantID: ask.TenantID, HolderID: ask.CartID, ResourceKey: ask.VariantID}
		held, follow := lines[line]
		own, inCart := int64(0), ask.Quantity
		if ask.Replace {
			own = units(held)
		} else {
			inCart += units(held)
		}
		reserved := d.reserved[ref]
		free := c.Stock - c.Reserved + k.due[ref] - reserved.net
		switch {
		case c.MaxPerCart != nil && inCart > int64(*c.MaxPerCart):
			d.verdicts[i] = LimitExceeded
			continue
		case !c.Backorder && free+own < ask.Quantity:
			d.verdicts[i] = OutOfStock
			d.short[ref] = true
			continue
		}

		hold := k.hold(ask, c)
		if ask.Replace && len(held) > 0 {
			for _, old := range held {
				hold.FirstHeldAt = earlier(hold.FirstHeldAt, old.FirstHeldAt)
			}
			hold.ExpiresAt = earlier(hold.ExpiresAt, hold.FirstHeldAt.Add(k.lifetimeMax))
			hold.Replaces = held
			held = nil
		}
		if follow {
			lines[line] = append(held, hold.Reservation)
		}
		d.holds = append(d.holds, hold)
		reserved.net += ask.Quantity - own
		reserved.peak = max(reserved.peak, reserved.net)
		d.reserved[ref] = reserved
		d.verdicts[i] = Granted
	}
	return d
}

// hold is the reservation that grants the ask.
func (k *known) hold(ask *Ask, c *counter) reservationrows.Hold {
	ttl := k.ttl
	if c.HoldTTLSeconds != nil {
		ttl = time.Duration(*c.HoldTTLSeconds) * time.Second
	}
	return reservationrows.Hold{Origin: ask.Origin, Reservation: reservations.Reservation{
		TenantID: ask.TenantID, ReservationID: ask.RequestID, ResourceKind: Kind, ResourceKey: ask.VariantID,
		HolderID: ask.CartID, Quantity: ask.Quantity, Status: reservations.Held,
		FirstHeldAt: k.now, HeldAt: k.now, ExpiresAt: k.now.Add(min(ttl, k.lifetimeMax)),
	}}
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
