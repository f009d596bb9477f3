package hot

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/google/uuid"
)

// movesMax bounds how many variants one pass promotes. It demotes as many as have to go, DetectorConfig.VariantsMax at most.
const movesMax = 16

// promote gives the busiest candidates a place. Where no place is left, one that has been hot for
// a while and is less than half as busy gives its own.
func (d *judge) promote() {
	busiest := func(a, b *subject) int { return cmp.Compare(d.weight(b), d.weight(a)) }
	slices.SortStableFunc(d.candidates, busiest)
	slices.SortStableFunc(d.weak, busiest)
	for _, s := range d.candidates[:min(movesMax, len(d.candidates))] {
		all, own := d.automatic[uuid.Nil] >= d.config.VariantsMax, d.automatic[s.TenantID] >= d.config.TenantMax
		if (all || own) && !d.displace(s, own) {
			continue
		}
		slot := noSlot
		if s.Slot != nil { // on its way out
			slot = *s.Slot
		}
		d.automatic[s.TenantID]++
		d.automatic[uuid.Nil]++
		d.move(s, promoted, slot, fmt.Sprintf("%s, over %.0f/s or %d waiting for %s", d.figures(s), d.config.PromoteRate, d.config.PromoteDepth, d.config.PromoteAfter))
	}
}

// displace demotes the least busy variant that s may take the place of; own says that it must be one of the same tenant.
func (d *judge) displace(s *subject, own bool) bool {
	for i, w := range slices.Backward(d.weak) {
		if own && w.TenantID != s.TenantID {
			continue
		}
		if 2*d.weight(w) > d.weight(s) {
			return false
		}
		d.weak = slices.Delete(d.weak, i, i+1)
		d.move(w, demoted, *w.Slot, fmt.Sprintf("%s, and its place was needed", d.figures(w)))
		return true
	}
	return false
}
