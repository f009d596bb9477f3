package inventory

import (
	"fmt"
	"testing"

	"github.com/google/uuid"
	"pgregory.net/rapid"

	"github.com/holdfast/holdfast/internal/reservationrows"
	"github.com/holdfast/holdfast/reservations"
)

// A naive shop: plain numbers, one ask at a time.
type naive struct {
	counters map[string]*counter
	free     map[string]int64               // units that no cart holds, due ones included
	inCart   map[reservationrows.Line]int64 // as far as it is known
}

// ask is what the naive shop says to an ask, and does about it.
func (n *naive) ask(a Ask) Verdict {
	c, line := n.counters[a.VariantID], lineOf(a.CartID, a.VariantID)
	own := int64(0)
	if a.Replace {
		own = n.inCart[line]
	}
	switch {
	case a.Stale:
		return ExpiredInQueue
	case c == nil:
		return UnknownVariant
	case !c.Tracked:
		return Untracked
	case c.MaxPerCart != nil && n.inCart[line]-own+a.Quantity > int64(*c.MaxPerCart):
		return LimitExceeded
	case !c.Backorder && n.free[a.VariantID]+own < a.Quantity:
		return OutOfStock
	}
	n.free[a.VariantID] += own - a.Quantity
	n.inCart[line] += a.Quantity - own
	return Granted
}

// world draws a shop and what its carts hold; the asks are drawn by the caller.
func world(t *rapid.T, variants, carts []string) (known, *naive) {
	k := knownOf()
	n := &naive{counters: make(map[string]*counter), free: make(map[string]int64), inCart: make(map[reservationrows.Line]int64)}
	units := rapid.Int64Range(0, 12)
	for _, v := range variants {
		if rapid.Float64Range(0, 1).Draw(t, "unknown") < 0.1 {
			continue
		}
		c := counterOf(v, 0)
		c.Tracked = rapid.IntRange(0, 9).Draw(t, "tracked") > 0
		c.Backorder = rapid.IntRange(0, 4).Draw(t, "backorder") == 0
		if rapid.Bool().Draw(t, "limited") {
			limit := rapid.Int32Range(1, 8).Draw(t, "max_per_cart")
			c.MaxPerCart = &limit
		}
		for _, cart := range carts { // every line is known: some ask may change a quantity
			var held []int64
			for range rapid.IntRange(0, 2).Draw(t, "holds") {
				q := rapid.Int64Range(1, 4).Draw(t, "held")
				held = append(held, q)
				c.Reserved += q
				n.inCart[lineOf(cart, v)] += q
			}
			k.holding(cart, v, held...)
		}
		due := units.Draw(t, "due")
		c.Reserved += due
		k.withDue(v, due)
		c.Stock = c.Reserved + units.Draw(t, "free")
		if c.Backorder {
			c.Stock -= units.Draw(t, "owed")
		}
		k.counters[Ref{shop, v}], n.counters[v] = c, c
		n.free[v] = c.Stock - c.Reserved + due
	}
	return k, n
}

// Whatever is asked: each verdict is the naive shop's, given in order to what the earlier asks left; never more is held
// than there is; and what is written adds up.
func TestDecideLikeANaiveShop(t *testing.T) {
	t.Parallel()
	variants, carts := []string{"shoe", "sock", "hat"}, []string{"a", "b", "c"}
	rapid.Check(t, func(t *rapid.T) {
		k, n := world(t, variants, carts)
		asks := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) Ask {
			return Ask{
				TenantID: shop, RequestID: uuid.New(), CartID: rapid.SampledFrom(carts).Draw(t, "cart"),
				VariantID: rapid.SampledFrom(variants).Draw(t, "variant"), Quantity: rapid.Int64Range(1, 9).Draw(t, "quantity"),
				Replace: rapid.Bool().Draw(t, "replace"), Stale: rapid.IntRange(0, 19).Draw(t, "stale") == 0,
			}
		}), 0, 40).Draw(t, "asks")

		d := decide(asks, k)
		for i, a := range asks {
			if want := n.ask(a); d.verdicts[i] != want {
				t.Fatalf("ask %d (%+v): %s, the naive shop says %s", i, a, d.verdicts[i], want)
			}
		}
		for ref, c := range k.counters {
			after := c.Reserved + d.reserved[ref].net
			if !c.Backorder && after-k.due[ref] > c.Stock {
				t.Fatalf("%s: %d reserved of %d, %d of them due", ref.VariantID, after, c.Stock, k.due[ref])
			}
			if got := c.Stock - after + k.due[ref]; c.Tracked && got != n.free[ref.VariantID] {
				t.Fatalf("%s: %d left, the naive shop has %d", ref.VariantID, got, n.free[ref.VariantID])
			}
		}
		if err := addsUp(k, asks, d, n); err != nil {
			t.Fatal(err)
		}
	})
}

// addsUp checks the decision's rows: a hold for each grant and no other, nothing released twice or before it was held,
// and what every cart is left with.
func addsUp(k known, asks []Ask, d decision, n *naive) error {
	live, left := make(map[uuid.UUID]reservations.Reservation), make(map[reservationrows.Line]int64)
	for _, held := range k.lines {
		for _, r := range held {
			live[r.ReservationID] = r
		}
	}
	granted := 0
	for i := range asks {
		if d.verdicts[i] != Granted {
			continue
		}
		for _, old := range d.holds[granted].Replaces {
			if _, ok := live[old.ReservationID]; !ok {
				return fmt.Errorf("%s is released twice, or was never held", old.ReservationID)
			}
			delete(live, old.ReservationID)
		}
		h := d.holds[granted].Reservation
		if h.ReservationID != asks[i].RequestID || h.Quantity != asks[i].Quantity || h.HolderID != asks[i].CartID || h.ResourceKey != asks[i].VariantID {
			return fmt.Errorf("ask %+v got the hold %+v", asks[i], h)
		}
		live[h.ReservationID] = h
		granted++
	}
	if granted != len(d.holds) {
		return fmt.Errorf("%d granted, %d holds", granted, len(d.holds))
	}
	for _, r := range live {
		if c := n.counters[r.ResourceKey]; c != nil && c.Tracked {
			left[lineOf(r.HolderID, r.ResourceKey)] += r.Quantity
		}
	}
	for line, units := range left {
		if n.inCart[line] != units {
			return fmt.Errorf("cart %s is left with %d × %s, the naive shop says %d", line.HolderID, units, line.ResourceKey, n.inCart[line])
		}
	}
	return nil
}
