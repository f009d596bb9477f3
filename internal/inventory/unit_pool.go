package inventory

import (
	"cmp"
	"slices"

	"github.com/holdfast/holdfast/internal/unitrows"
)

// unitPool is what decide takes units of one block from.
type unitPool struct {
	units []unitrows.Unit // in the order of their positions
	free  []bool
	at    map[string]int // index by unit id
	first int            // no unit before it is free
	// waiting are the requests that refused has left undecided.
	waiting []*HoldRequest
}

func unitPools(blocks map[Ref]blockUnits) map[Ref]*unitPool {
	pools := make(map[Ref]*unitPool, len(blocks))
	for ref, units := range blocks {
		pools[ref] = newUnitPool(units)
	}
	return pools
}

func newUnitPool(from blockUnits) *unitPool {
	p := &unitPool{at: make(map[string]int, len(from.active)+len(from.named))}
	p.units = append(append(p.units, from.active...), from.named...)
	slices.SortFunc(p.units, func(a, b unitrows.Unit) int {
		return cmp.Or(cmp.Compare(a.Position, b.Position), cmp.Compare(a.UnitID, b.UnitID))
	})
	p.units = slices.CompactFunc(p.units, func(a, b unitrows.Unit) bool { return a.UnitID == b.UnitID })
	p.free = make([]bool, len(p.units))
	for i := range p.units {
		p.at[p.units[i].UnitID] = i
		p.free[i] = p.units[i].Status == unitrows.Active
	}
	return p
}

// knows reports whether all of the units exist in the block.
func (p *unitPool) knows(ids []string) bool {
	for _, id := range ids {
		if _, known := p.at[id]; !known {
			return false
		}
	}
	return true
}

// take takes what the request wants, all or nothing, and returns the units in
// the order of their positions. Of the units in own, which the request gives
// back, it takes as many as it can.
func (p *unitPool) take(request *HoldRequest, own []string) []string {
	p.give(own)
	var places []int
	switch n := int(request.Quantity); {
	case len(request.UnitIDs) > 0:
		places = p.namedPlaces(request.UnitIDs)
	case request.Contiguous:
		places = p.neighbours(n)
	default:
		places = p.anyPlaces(n, own)
	}
	if places == nil {
		p.mark(own, false)
		return nil
	}
	slices.Sort(places)
	ids := make([]string, len(places))
	for i, place := range places {
		p.free[place] = false
		ids[i] = p.units[place].UnitID
	}
	return ids
}

func (p *unitPool) give(ids []string) { p.mark(ids, true) }

func (p *unitPool) mark(ids []string, free bool) {
	for _, id := range ids {
		place := p.at[id]
		p.free[place] = free
		if free {
			p.first = min(p.first, place)
		}
	}
}

// namedPlaces returns the places of the units, or nil if one of them is taken.
func (p *unitPool) namedPlaces(ids []string) []int {
	places := make([]int, len(ids))
	for i, id := range ids {
		place, known := p.at[id]
		if !known || !p.free[place] {
			return nil
		}
		places[i] = place
	}
	return places
}

// anyPlaces returns the places of n free units: those of own first, then the
// first of the block. It returns nil if there are fewer.
func (p *unitPool) anyPlaces(n int, own []string) []int {
	places := make([]int, 0, n)
	for _, id := range own[:min(n, len(own))] {
		places = append(places, p.at[id])
		p.free[p.at[id]] = false
	}
	for p.first < len(p.free) && !p.free[p.first] {
		p.first++
	}
	for i := p.first; i < len(p.free) && len(places) < n; i++ {
		if p.free[i] {
			places = append(places, i)
		}
	}
	if len(places) < n {
		return nil
	}
	return places
}

// neighbours returns the places of the first n free units with consecutive
// positions, or nil.
func (p *unitPool) neighbours(n int) []int {
	run := 0
	for i := p.first; i < len(p.units); i++ {
		switch {
		case !p.free[i]:
			run = 0
			continue
		case run > 0 && p.units[i].Position != p.units[i-1].Position+1:
			run = 1
		default:
			run++
		}
		if run == n {
			places := make([]int, n)
			for j := range places {
				places[j] = i - n + 1 + j
			}
			return places
		}
	}
	return nil
}

// refused is the outcome of a request for named units or for neighbours that
// does not get them: OutOfStock, or LockedDue if it may get them once the locked
// units are free.
//
// It is OutOfStock if requests that wait already prevent that, whichever of the
// locked units become free:
//   - one that names only units which this one names too. Whenever this one
//     fits, that one fits, being earlier. One that shares some units, but needs
//     others besides, may be rejected for those, so it does not count.
//   - for neighbours, as many as there are locked units, each for no more
//     neighbours than this one. Whenever this one fits, they fit too, and each
//     takes at least one unit that was locked, because it found no place without.
func (p *unitPool) refused(request *HoldRequest, locked map[string]bool) Outcome {
	taken := func(id string) bool { return !p.free[p.at[id]] && !locked[id] }
	if len(locked) == 0 || slices.ContainsFunc(request.UnitIDs, taken) {
		return OutOfStock
	}
	ahead := 0
	for _, w := range p.waiting {
		switch {
		case len(request.UnitIDs) > 0 && len(w.UnitIDs) > 0:
			if namesAll(request, w.UnitIDs) {
				return OutOfStock
			}
		case request.Replace || w.Replace: // its cart's own units may serve it
		case len(request.UnitIDs) == 0 && len(w.UnitIDs) == 0 && w.Quantity <= request.Quantity:
			ahead++
		}
	}
	if ahead >= len(locked) {
		return OutOfStock
	}
	p.waiting = append(p.waiting, request)
	return LockedDue
}

// namesAll reports whether the request names all of the units.
func namesAll(request *HoldRequest, ids []string) bool {
	return !slices.ContainsFunc(ids, func(id string) bool { return !slices.Contains(request.UnitIDs, id) })
}
