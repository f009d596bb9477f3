package inventory

import "slices"

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
