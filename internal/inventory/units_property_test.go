package inventory

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/uuid"
	"pgregory.net/rapid"

	"github.com/holdfast/holdfast/internal/unitrows"
	"github.com/holdfast/holdfast/reservations"
)

// block is a simple model of a block: which units are free, and whose the
// others are.
type block struct {
	positions map[string]int64
	free      map[string]bool
	inCart    map[string][]string
}

// fits reports whether the request can be granted.
func (b *block) fits(a HoldRequest) bool {
	free := make(map[string]bool)
	for id := range b.positions {
		free[id] = b.free[id] || a.Replace && slices.Contains(b.inCart[a.CartID], id)
	}
	n := 0
	runs := make(map[int64]bool)
	for id, isFree := range free {
		if isFree {
			n++
			runs[b.positions[id]] = true
		}
	}
	switch {
	case len(a.UnitIDs) > 0:
		return !slices.ContainsFunc(a.UnitIDs, func(id string) bool { return !free[id] })
	case a.Contiguous:
		for first := range runs {
			long := int64(0)
			for runs[first+long] {
				long++
			}
			if long >= a.Quantity {
				return true
			}
		}
		return false
	}
	return int64(n) >= a.Quantity
}

// grant takes the units from the model, and returns what is wrong with them.
func (b *block) grant(a HoldRequest, units []string) error {
	if a.Replace {
		own := b.inCart[a.CartID]
		kept := 0
		for _, id := range own {
			b.free[id] = true
			if slices.Contains(units, id) {
				kept++
			}
		}
		b.inCart[a.CartID] = nil
		if kept != min(len(own), len(units)) {
			return fmt.Errorf("of its units %v it keeps %d in %v", own, kept, units)
		}
	}
	if int64(len(units)) != a.Quantity {
		return fmt.Errorf("units %v, want %d", units, a.Quantity)
	}
	for i, id := range units {
		switch {
		case !b.free[id]:
			return fmt.Errorf("unit %s is not free", id)
		case len(a.UnitIDs) > 0 && !slices.Contains(a.UnitIDs, id):
			return fmt.Errorf("unit %s is not one of %v", id, a.UnitIDs)
		case i > 0 && b.positions[units[i-1]] >= b.positions[id]:
			return fmt.Errorf("units %v are not in the order of their positions", units)
		case i > 0 && a.Contiguous && b.positions[id] != b.positions[units[i-1]]+1:
			return fmt.Errorf("units %v are no neighbours", units)
		}
		b.free[id] = false
	}
	b.inCart[a.CartID] = append(b.inCart[a.CartID], units...)
	return nil
}

// Whatever is asked of a block, each request gets exactly the units that it may
// get, and one is refused only if the block does not have them.
func TestDecideUnitsAgainstModel(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		in := inputsOf()
		model := &block{make(map[string]int64), make(map[string]bool), make(map[string][]string)}
		units := drawBlock(t, &in, model)
		requests := make([]HoldRequest, rapid.IntRange(1, 12).Draw(t, "requests"))
		for i := range requests {
			requests[i] = drawUnits(t, len(model.positions))
		}
		// The read gives decide no more than it needs.
		var wishes unitWishes
		for i := range requests {
			wishes.add(&requests[i], in.cartHolds)
		}
		in.units = map[Ref]blockUnits{{shop, "hall"}: wishes.of(units)}
		holds := make(map[uuid.UUID][]string)
		d := decide(requests, in)
		for _, h := range d.holds {
			holds[h.ReservationID] = h.UnitIDs
		}
		for i, a := range requests {
			granted := d.outcomes[i] == Granted
			if fits := model.fits(a); fits != granted {
				t.Fatalf("%+v: %s, but it fits: %t", a, d.outcomes[i], fits)
			}
			if granted {
				if err := model.grant(a, holds[a.RequestID]); err != nil {
					t.Fatalf("%+v: %v", a, err)
				}
			}
		}
	})
}

// drawBlock draws a block with gaps, of which carts hold some units.
func drawBlock(t *rapid.T, in *inputs, model *block) (units []unitrows.Unit) {
	c := counterOf("hall", 0)
	c.NamedUnits = true
	held := make(map[string][]string)
	position := int64(0)
	for i := range rapid.IntRange(1, 14).Draw(t, "units") {
		position += int64(rapid.SampledFrom([]int{1, 1, 1, 2}).Draw(t, "step"))
		u := unitrows.Unit{UnitID: fmt.Sprint("u", i), Position: position, Status: unitrows.Active}
		model.positions[u.UnitID] = position
		c.Stock++
		switch cart := rapid.SampledFrom([]string{"", "", "a", "b", "other"}).Draw(t, "holder"); cart {
		case "":
			model.free[u.UnitID] = true
		default:
			c.Reserved++
			u.Status = unitrows.PendingInactive
			held[cart] = append(held[cart], u.UnitID)
			model.inCart[cart] = append(model.inCart[cart], u.UnitID)
		}
		units = append(units, u)
	}
	for _, cart := range []string{"a", "b"} {
		in.cartHolds[keyOf(cart, "hall")] = nil
		if len(held[cart]) > 0 {
			in.cartHolds[keyOf(cart, "hall")] = []reservations.Reservation{{
				TenantID: shop, ReservationID: uuid.New(), HolderID: cart, ResourceKey: "hall", Status: reservations.Held,
				Quantity: int64(len(held[cart])), UnitIDs: held[cart],
			}}
		}
	}
	in.counters[Ref{shop, "hall"}] = c
	return units
}

func drawUnits(t *rapid.T, n int) HoldRequest {
	a := HoldRequest{
		TenantID: shop, RequestID: uuid.New(), CartID: rapid.SampledFrom([]string{"a", "b"}).Draw(t, "cart"),
		VariantID: "hall", Quantity: int64(rapid.IntRange(1, 4).Draw(t, "quantity")),
	}
	switch rapid.SampledFrom([]string{"any", "contiguous", "named", "replace"}).Draw(t, "wish") {
	case "contiguous":
		a.Contiguous = true
	case "named":
		ids := rapid.SliceOfNDistinct(rapid.IntRange(0, n-1), 1, min(n, 4), rapid.ID).Draw(t, "ids")
		for _, id := range ids {
			a.UnitIDs = append(a.UnitIDs, fmt.Sprint("u", id))
		}
		a.Quantity = int64(len(ids))
	case "replace":
		a.Replace = true
	}
	return a
}

// of returns what readTx would read of the units.
func (w *unitWishes) of(units []unitrows.Unit) (read blockUnits) {
	for _, u := range units {
		if slices.Contains(w.named, u.UnitID) {
			read.named = append(read.named, u)
		}
	}
	for _, u := range units {
		if u.Status != unitrows.Active || w.anyUnits == 0 {
			continue
		}
		if need := w.anyUnits + len(w.named); len(read.active) >= need && (w.contiguous == 0 || w.fits(read.active)) {
			break
		}
		read.active = append(read.active, u)
	}
	return read
}
