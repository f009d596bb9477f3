package hot

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
)

// movesMax bounds how many variants one pass promotes. It demotes as many as have to go, DetectorConfig.VariantsMax at most.
const movesMax = 16

// move is one that was decided, with its reason.
type move struct {
	subjectID
	action string
	slot   int16
	why    string
}

// The actions, as the audit record has them.
const (
	promoted = "lane.promoted"
	demoted  = "lane.demoted"
	diverted = "lane.diverted"
	letBack  = "lane.let_back"
)

// decide is the detector's judgement: what is moved, and what is remembered until the next pass. It is a pure function.
func decide(p pass, c DetectorConfig, subjects []subject) (moves []move, watches []subject) {
	d := &judge{pass: p, config: c, normal: make(map[uuid.UUID]float64), automatic: make(map[uuid.UUID]int)}
	d.count(subjects)
	for i := range subjects {
		s := &subjects[i]
		if s.VariantID == "" {
			d.tenant(s)
		} else {
			d.variant(s)
		}
		if s.BusySince != nil || s.QuietSince != nil || s.isHot() {
			watches = append(watches, *s)
		}
	}
	d.promote()
	return d.moves, watches
}

// judge is a decision in the making.
type judge struct {
	pass
	config DetectorConfig
	moves  []move
	// normal is what arrives for the normal lane, by tenant, and of everybody under the zero tenant; waiting is how many
	// wait there in the shared stream.
	normal  map[uuid.UUID]float64
	waiting int
	// automatic counts the variants that are hot by themselves, by tenant, and all under the zero tenant.
	automatic map[uuid.UUID]int
	// candidates may be promoted; weak are hot by themselves, and long enough to give their place to a busier one.
	candidates, weak []*subject
}

func (d *judge) count(subjects []subject) {
	for i := range subjects {
		s := &subjects[i]
		switch {
		case s.VariantID == "":
			d.normal[s.TenantID] += s.Rate
			if s.TenantID == uuid.Nil {
				d.waiting = s.Waiting
			}
		case s.isHot():
			d.normal[s.TenantID] -= s.Rate
			d.normal[uuid.Nil] -= s.Rate
			if !s.Pinned {
				d.automatic[s.TenantID]++
				d.automatic[uuid.Nil]++
			}
		}
	}
}

// weight says how busy a variant is: 1 at a threshold.
func (d *judge) weight(s *subject) float64 {
	return max((s.Rate+d.short(s))/d.config.PromoteRate, float64(s.Waiting)/float64(d.config.PromoteDepth))
}

// short is how many a second were turned away.
func (d *judge) short(s *subject) float64 {
	return float64(s.Short) / max(d.since, d.config.Every.Seconds())
}

func (d *judge) variant(s *subject) {
	d.mark(&s.BusySince, d.weight(s) >= 1 && !s.isHot())
	d.mark(&s.QuietSince, s.isHot() && !s.Pinned && s.Rate+d.short(s) < d.config.DemoteRate)
	switch {
	case s.isHot() && s.Pinned:
	case s.isHot() && !s.Eligible:
		d.move(s, demoted, *s.Slot, "its stock does not leave the lane to the service")
	case s.isHot() && d.lasts(s.QuietSince, d.config.DemoteAfter):
		d.move(s, demoted, *s.Slot, fmt.Sprintf("%s, under %.0f/s for %s", d.figures(s), d.config.DemoteRate, d.config.DemoteAfter))
	case s.isHot() && d.lasts(s.MovedAt, d.config.DemoteAfter):
		d.weak = append(d.weak, s)
	case !s.isHot() && s.Eligible && !d.paused && d.lasts(s.BusySince, d.config.PromoteAfter):
		d.candidates = append(d.candidates, s)
	}
}

// tenant diverts one that keeps its neighbours waiting, and lets it back once it sends little.
func (d *judge) tenant(s *subject) {
	if s.TenantID == uuid.Nil {
		return
	}
	rate := d.normal[s.TenantID]
	neighbours := d.normal[uuid.Nil] - rate
	floods := rate >= d.config.FloodRate && s.Waiting >= d.config.FloodDepth && 2*s.Waiting > d.waiting && neighbours > 0.1
	d.mark(&s.BusySince, floods && !s.isHot())
	d.mark(&s.QuietSince, s.isHot() && rate < d.config.FloodRate/2)
	figures := fmt.Sprintf("%.0f/s to the normal lane, %d waiting", rate, s.Waiting) // nothing of other tenants
	switch {
	case !s.isHot() && d.lasts(s.BusySince, d.config.PromoteAfter):
		d.moves = append(d.moves, move{s.id(), diverted, aside, figures})
	case s.isHot() && d.lasts(s.QuietSince, d.config.DemoteAfter):
		d.moves = append(d.moves, move{s.id(), letBack, *s.Slot, fmt.Sprintf("%s, under %.0f/s for %s", figures, d.config.FloodRate/2, d.config.DemoteAfter)})
	}
}

// aside is the stream of the normal lane that takes the requests of diverted tenants.
const aside int16 = 1

// mark notes since when something holds without a break. After a gap between passes nobody knows, and it begins anew.
func (d *judge) mark(since **time.Time, holds bool) {
	switch {
	case !holds:
		*since = nil
	case *since == nil || d.since > 5*d.config.Every.Seconds():
		*since = &d.now
	}
}

func (d *judge) lasts(since *time.Time, long time.Duration) bool {
	return since != nil && d.now.Sub(*since) >= long
}

// promote gives the busiest candidates a place and the least loaded slot. Where no place is left, one that has been hot for
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
		slot, ok := d.slotFor(s)
		if !ok {
			return
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

func (d *judge) move(s *subject, action string, slot int16, why string) {
	if action == demoted {
		d.automatic[s.TenantID]--
		d.automatic[uuid.Nil]--
	}
	d.moves = append(d.moves, move{s.id(), action, slot, why})
}

// slotFor is the slot with the fewest variants, and of those the one with the least to do. One on its way out keeps its own.
func (d *judge) slotFor(s *subject) (int16, bool) {
	if s.Slot != nil {
		return *s.Slot, true
	}
	if len(d.slots) == 0 {
		return 0, false
	}
	least := &d.slots[0]
	for i := range d.slots {
		l := &d.slots[i]
		if cmp.Or(cmp.Compare(l.variants, least.variants), cmp.Compare(l.rate, least.rate)) < 0 {
			least = l
		}
	}
	least.variants++
	least.rate += s.Rate
	return least.slot, true
}

func (d *judge) figures(s *subject) string {
	return fmt.Sprintf("%.0f/s, %.0f/s turned away, %d waiting", s.Rate, d.short(s), s.Waiting)
}
