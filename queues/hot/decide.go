package hot

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/holdfast/holdfast/internal/lanes"
)

// decide evaluates a pass. It returns the moves, and the observations that the
// next pass needs. It is a pure function.
func decide(p pass, c DetectorConfig, candidates []candidate) (moves []lanes.Move, observations []candidate) {
	d := &decision{pass: p, config: c, normal: make(map[uuid.UUID]float64), automatic: make(map[uuid.UUID]int)}
	d.count(candidates)
	for i := range candidates {
		s := &candidates[i]
		if s.VariantID == "" {
			d.tenant(s)
		} else {
			d.variant(s)
		}
		if s.BusySince != nil || s.QuietSince != nil || s.isHot() {
			observations = append(observations, *s)
		}
	}
	d.promote()
	return d.moves, observations
}

// decision is the state of one call of decide.
type decision struct {
	pass
	config DetectorConfig
	moves  []lanes.Move
	// normal is the rate of requests for the normal lane, by tenant, and of all
	// tenants under the zero tenant. waiting counts the requests queued in the
	// shared stream, as far as the pass read it, and owners counts their
	// tenants.
	normal          map[uuid.UUID]float64
	waiting, owners int
	// automatic counts the variants that the detector made hot, by tenant, and
	// all of them under the zero tenant.
	automatic map[uuid.UUID]int
	// promotable variants may be promoted. evictable ones were made hot by the
	// detector, long enough ago to be replaced by a busier one.
	promotable, evictable []*candidate
}

func (d *decision) count(candidates []candidate) {
	for i := range candidates {
		s := &candidates[i]
		switch {
		case s.VariantID == "":
			d.normal[s.TenantID] += s.Rate
			if s.TenantID == uuid.Nil {
				d.waiting = s.Waiting
			} else if s.Waiting > 0 {
				d.owners++
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

// weight returns how busy a variant is: 1 at a threshold.
func (d *decision) weight(s *candidate) float64 {
	return max((s.Rate+d.short(s))/d.config.PromoteRate, float64(s.Waiting)/float64(d.config.PromoteDepth))
}

// short returns how many requests per second were rejected as out of stock.
func (d *decision) short(s *candidate) float64 {
	return float64(s.Short) / max(d.since, d.config.Every.Seconds())
}

func (d *decision) variant(s *candidate) {
	d.track(&s.BusySince, d.weight(s) >= 1 && !s.isHot())
	d.track(&s.QuietSince, s.isHot() && !s.Pinned && !d.paused && s.Rate+d.short(s) < d.config.DemoteRate)
	switch {
	case s.isHot() && (s.Pinned || d.paused): // paused, the lane could not decide what the variant leaves behind
	case s.isHot() && !s.Eligible:
		d.move(s, lanes.Demoted, *s.Slot, "its stock does not leave the choice of lane to the detector")
	case s.isHot() && d.hasLasted(s.QuietSince, d.config.DemoteAfter):
		d.move(s, lanes.Demoted, *s.Slot, fmt.Sprintf("%s, under %.0f/s for %s", d.figures(s), d.config.DemoteRate, d.config.DemoteAfter))
	case s.isHot() && d.hasLasted(s.MovedAt, d.config.DemoteAfter):
		d.evictable = append(d.evictable, s)
	case !s.isHot() && s.Eligible && !d.paused && d.hasLasted(s.BusySince, d.config.PromoteAfter):
		d.promotable = append(d.promotable, s)
	}
}

// crowdsOut reports whether the tenant has so many requests in the shared
// stream that its neighbours suffer. Both must hold: its requests reach
// FloodDepth, or the stream has about as many as a pass reads; and they are
// more than an equal share, counting one tenant more than those that were seen.
//
// So several tenants that flood alike crowd out all others, and a single tenant
// does if it has more than half.
func (d *decision) crowdsOut(s *candidate) bool {
	const nearly = scanMax * 9 / 10 // some may be for hot variants
	return (s.Waiting >= d.config.FloodDepth || d.waiting >= nearly) && s.Waiting*(d.owners+1) > d.waiting
}

// tenant diverts a tenant that keeps its neighbours waiting, and restores it
// once it sends little.
func (d *decision) tenant(s *candidate) {
	if s.TenantID == uuid.Nil {
		return
	}
	rate := d.normal[s.TenantID]
	neighbours := d.normal[uuid.Nil] - rate
	floods := rate >= d.config.FloodRate && d.crowdsOut(s) && neighbours > 0.1
	d.track(&s.BusySince, floods && !s.isHot())
	d.track(&s.QuietSince, s.isHot() && rate < d.config.FloodRate/2)
	figures := fmt.Sprintf("%.0f/s to the normal lane, %d waiting", rate, s.Waiting) // nothing of other tenants
	switch {
	case !s.isHot() && d.hasLasted(s.BusySince, d.config.PromoteAfter):
		d.moves = append(d.moves, s.move(lanes.Diverted, lanes.DivertedSlot, figures))
	case s.isHot() && d.hasLasted(s.QuietSince, d.config.DemoteAfter):
		d.moves = append(d.moves, s.move(lanes.Restored, *s.Slot, fmt.Sprintf("%s, under %.0f/s for %s", figures, d.config.FloodRate/2, d.config.DemoteAfter)))
	}
}

// gapMax is the longest gap between passes over which a condition that held
// before and after it is taken to have held throughout.
const gapMax = 15 * time.Second

// track records since when a condition has held without a break. A pass that is
// late, as under overload, counts as one pass in time. After a gap that is too
// long the duration is unknown, and begins again. It also begins again if the
// clock was set back to before its start.
func (d *decision) track(since **time.Time, holds bool) {
	every := d.config.Every.Seconds()
	switch {
	case !holds:
		*since = nil
	case *since == nil || (*since).After(d.now) || d.since > max(5*every, gapMax.Seconds()):
		*since = &d.now
	case d.since > 5*every:
		later := (*since).Add(time.Duration((d.since - every) * float64(time.Second)))
		*since = &later
	}
}

// hasLasted reports whether since is at least that long ago. A time far in the
// future was recorded before the clock was set back.
func (d *decision) hasLasted(since *time.Time, long time.Duration) bool {
	return since != nil && d.now.Sub(*since).Abs() >= long
}

func (d *decision) move(s *candidate, action string, slot int16, why string) {
	if action == lanes.Demoted {
		d.automatic[s.TenantID]--
		d.automatic[uuid.Nil]--
	}
	d.moves = append(d.moves, s.move(action, slot, why))
}

func (d *decision) figures(s *candidate) string {
	return fmt.Sprintf("%.0f/s, %.0f/s turned away, %d waiting", s.Rate, d.short(s), s.Waiting)
}

// movesMax bounds how many variants one pass promotes. There is no such bound
// on demotions, other than DetectorConfig.VariantsMax.
const movesMax = 16

// promote promotes the busiest variants within the limits. At a limit, a
// variant replaces one that has been hot for DemoteAfter and is at most half as
// busy.
func (d *decision) promote() {
	busiest := func(a, b *candidate) int { return cmp.Compare(d.weight(b), d.weight(a)) }
	slices.SortStableFunc(d.promotable, busiest)
	slices.SortStableFunc(d.evictable, busiest)
	for _, s := range d.promotable[:min(movesMax, len(d.promotable))] {
		all, own := d.automatic[uuid.Nil] >= d.config.VariantsMax, d.automatic[s.TenantID] >= d.config.TenantMax
		if (all || own) && !d.evict(s, own) {
			continue
		}
		slot := lanes.NoSlot
		if s.Slot != nil { // on its way out
			slot = *s.Slot
		}
		d.automatic[s.TenantID]++
		d.automatic[uuid.Nil]++
		d.move(s, lanes.Promoted, slot, fmt.Sprintf("%s, over %.0f/s or %d waiting for %s", d.figures(s), d.config.PromoteRate, d.config.PromoteDepth, d.config.PromoteAfter))
	}
}

// evict demotes the least busy evictable variant, if s may replace it. own
// means that it must be a variant of the same tenant.
func (d *decision) evict(s *candidate, own bool) bool {
	for i, w := range slices.Backward(d.evictable) {
		if own && w.TenantID != s.TenantID {
			continue
		}
		if 2*d.weight(w) > d.weight(s) {
			return false
		}
		d.evictable = slices.Delete(d.evictable, i, i+1)
		d.move(w, lanes.Demoted, *w.Slot, fmt.Sprintf("%s, and replaced by a busier variant", d.figures(w)))
		return true
	}
	return false
}
