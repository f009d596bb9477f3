package inventory

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/uuid"
	"pgregory.net/rapid"

	"github.com/holdfast/holdfast/internal/reservationrows"
	"github.com/holdfast/holdfast/reservations"
)

// naive is a simple model of a shop: plain numbers, one request at a time.
type naive struct {
	counters map[string]*counter
	free     map[string]int64                    // units that no cart holds, including due ones
	inCart   map[reservationrows.HolderKey]int64 // the known holds of carts
}

// decide returns the model's outcome of a request.
func (n *naive) decide(a HoldRequest) Outcome {
	c, key := n.counters[a.VariantID], keyOf(a.CartID, a.VariantID)
	own := int64(0)
	if a.Replace {
		own = n.inCart[key]
	}
	switch {
	case a.Stale:
		return ExpiredInQueue
	case c == nil:
		return UnknownVariant
	case !c.Tracked:
		n.free[a.VariantID] += own
		n.inCart[key] -= own
		return Untracked
	case c.MaxPerCart != nil && n.inCart[key]-own+a.Quantity > int64(*c.MaxPerCart):
		return LimitExceeded
	case !c.Backorder && n.free[a.VariantID]+own < a.Quantity:
		return OutOfStock
	}
	n.free[a.VariantID] += own - a.Quantity
	n.inCart[key] += a.Quantity - own
	return Granted
}

// world draws a shop and the holds of its carts. The caller draws the requests.
func world(t *rapid.T, variants, carts []string) (inputs, *naive) {
	in := inputsOf()
	n := &naive{counters: make(map[string]*counter), free: make(map[string]int64), inCart: make(map[reservationrows.HolderKey]int64)}
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
		for _, cart := range carts { // of every cart, because a request may change a quantity
			var held []int64
			for range rapid.IntRange(0, 2).Draw(t, "holds") {
				q := rapid.Int64Range(1, 4).Draw(t, "held")
				held = append(held, q)
				c.Reserved += q
				n.inCart[keyOf(cart, v)] += q
			}
			in.holding(cart, v, held...)
		}
		due := units.Draw(t, "due")
		c.Reserved += due
		in.withDue(v, due)
		c.Stock = c.Reserved + units.Draw(t, "free")
		if c.Backorder {
			c.Stock -= units.Draw(t, "owed")
		}
		in.counters[Ref{shop, v}], n.counters[v] = c, c
		n.free[v] = c.Stock - c.Reserved + due
	}
	return in, n
}

// For random requests, each outcome equals the model's, which decides the
// requests in order. The held units never exceed the stock, and the written
// rows are consistent.
func TestDecideLikeANaiveShop(t *testing.T) {
	t.Parallel()
	variants, carts := []string{"shoe", "sock", "hat"}, []string{"a", "b", "c"}
	rapid.Check(t, func(t *rapid.T) {
		in, n := world(t, variants, carts)
		requests := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) HoldRequest {
			return HoldRequest{
				TenantID: shop, RequestID: uuid.New(), CartID: rapid.SampledFrom(carts).Draw(t, "cart"),
				VariantID: rapid.SampledFrom(variants).Draw(t, "variant"), Quantity: rapid.Int64Range(1, 9).Draw(t, "quantity"),
				Replace: rapid.Bool().Draw(t, "replace"), Stale: rapid.IntRange(0, 19).Draw(t, "stale") == 0,
			}
		}), 0, 40).Draw(t, "requests")

		d := decide(requests, in)
		for i, a := range requests {
			if want := n.decide(a); d.outcomes[i] != want {
				t.Fatalf("request %d (%+v): %s, want %s as in the model", i, a, d.outcomes[i], want)
			}
		}
		for ref, c := range in.counters {
			after := c.Reserved + d.reserved[ref].net
			if !c.Backorder && after-in.due[ref] > c.Stock {
				t.Fatalf("%s: %d reserved of %d, %d of them due", ref.VariantID, after, c.Stock, in.due[ref])
			}
			if got := c.Stock - after + in.due[ref]; got != n.free[ref.VariantID] {
				t.Fatalf("%s: %d left, want %d as in the model", ref.VariantID, got, n.free[ref.VariantID])
			}
		}
		if err := checkRows(in, requests, d, n); err != nil {
			t.Fatal(err)
		}
	})
}

// checkRows checks the decision's rows. There is one hold per granted request
// and no other. No hold is released twice, or before it was made. Every cart
// has the right holds at the end.
func checkRows(in inputs, requests []HoldRequest, d decision, n *naive) error {
	live, left := make(map[uuid.UUID]reservations.Reservation), make(map[reservationrows.HolderKey]int64)
	for _, held := range in.cartHolds {
		for _, r := range held {
			live[r.ReservationID] = r
		}
	}
	granted := 0
	for i := range requests {
		if d.outcomes[i] != Granted {
			continue
		}
		for _, old := range d.holds[granted].Replaces {
			if _, ok := live[old.ReservationID]; !ok {
				return fmt.Errorf("%s is released twice, or was never held", old.ReservationID)
			}
			delete(live, old.ReservationID)
		}
		h := d.holds[granted].Reservation
		if h.ReservationID != requests[i].RequestID || h.Quantity != requests[i].Quantity || h.HolderID != requests[i].CartID || h.ResourceKey != requests[i].VariantID {
			return fmt.Errorf("request %+v got the hold %+v", requests[i], h)
		}
		live[h.ReservationID] = h
		granted++
	}
	for _, r := range d.released {
		for _, old := range r.held {
			if _, ok := live[old.ReservationID]; !ok {
				return fmt.Errorf("%s is released twice, or was never held", old.ReservationID)
			}
			delete(live, old.ReservationID)
		}
	}
	if granted != len(d.holds) {
		return fmt.Errorf("%d granted, %d holds", granted, len(d.holds))
	}
	for _, r := range live {
		if n.counters[r.ResourceKey] != nil {
			left[keyOf(r.HolderID, r.ResourceKey)] += r.Quantity
		}
	}
	for key, units := range left {
		if n.inCart[key] != units {
			return fmt.Errorf("cart %s is left with %d × %s, want %d as in the model", key.HolderID, units, key.ResourceKey, n.inCart[key])
		}
	}
	return nil
}

// firstFit returns which of the wanted quantities fit n units, each after those
// before it.
func firstFit(n int64, wanted []int64) []bool {
	fits := make([]bool, len(wanted))
	for i, q := range wanted {
		if q <= n {
			fits[i] = true
			n -= q
		}
	}
	return fits
}

// Some units are in due holds that other transactions have locked. Requests that
// fit the others are granted, first come, first served. Of the rest, a request
// is rejected only if it would fit in none of the ways in which the locked units
// may become free; and no more requests of one size wait than could fit.
func TestDecideBesideLockedDueHolds(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		free, locked := rapid.Int64Range(0, 8).Draw(t, "free"), rapid.Int64Range(0, 8).Draw(t, "locked")
		wanted := rapid.SliceOfN(rapid.Int64Range(1, 5), 1, 25).Draw(t, "wanted")
		in := inputsOf(counterOf("shoe", free+locked, reserved(locked)))
		in.lockedDue = map[Ref]int64{{shop, "shoe"}: locked}
		requests := make([]HoldRequest, len(wanted))
		for i, q := range wanted {
			requests[i] = HoldRequest{TenantID: shop, RequestID: uuid.New(), CartID: fmt.Sprint(i), VariantID: "shoe", Quantity: q}
		}
		d := decide(requests, in)
		granted := firstFit(free, wanted)
		var waiting []int64
		ofSize := make(map[int64]int64)
		for i, outcome := range d.outcomes {
			if granted[i] != (outcome == Granted) {
				t.Fatalf("request %d is %s, of %v with %d free", i, outcome, wanted, free)
			}
			switch {
			case granted[i]:
				free -= wanted[i]
			case outcome == LockedDue:
				waiting = append(waiting, wanted[i])
				ofSize[wanted[i]]++
				if n := ofSize[wanted[i]]; n*wanted[i] > free+locked {
					t.Errorf("%d requests for %d units wait for %d", n, wanted[i], free+locked)
				}
			case outcome == OutOfStock:
				for back := range locked + 1 {
					if fits := firstFit(free+back, append(slices.Clone(waiting), wanted[i])); fits[len(waiting)] {
						t.Fatalf("request %d for %d is rejected, but would fit after %v once %d of %d units are free", i, wanted[i], waiting, back, locked)
					}
				}
			default:
				t.Fatalf("request %d is %s", i, outcome)
			}
		}
	})
}
