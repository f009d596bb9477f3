package hot

import (
	"fmt"
	"time"

	"github.com/google/uuid"
)

// move is one that was decided, with its reason.
type move struct {
	subjectID
	action string
	slot   int16
	why    string
}

// noSlot is the slot of a variant that has none yet.
const noSlot int16 = -1

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
	// wait there in the shared stream, as far as the look went, and owners is how many tenants' they are.
	normal          map[uuid.UUID]float64
	waiting, owners int
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
	d.mark(&s.QuietSince, s.isHot() && !s.Pinned && !d.paused && s.Rate+d.short(s) < d.config.DemoteRate)
	switch {
	case s.isHot() && (s.Pinned || d.paused): // paused, the lane could not decide what the variant leaves behind
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

// crowds reports whether so much of what waits in the shared stream is the tenant's that its neighbours suffer: over the
// threshold, or where more waits than a look goes through, and more than would be its part if one more than those who are
// seen to wait had a part. So several that flood alike crowd all the others, and one alone if it has more than half.
func (d *judge) crowds(s *subject) bool {
	const nearly = LookMax * 9 / 10 // some may be for hot variants
	return (s.Waiting >= d.config.FloodDepth || d.waiting >= nearly) && s.Waiting*(d.owners+1) > d.waiting
}

// tenant diverts one that keeps its neighbours waiting, and lets it back once it sends little.
func (d *judge) tenant(s *subject) {
	if s.TenantID == uuid.Nil {
		return
	}
	rate := d.normal[s.TenantID]
	neighbours := d.normal[uuid.Nil] - rate
	floods := rate >= d.config.FloodRate && d.crowds(s) && neighbours > 0.1
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

// gapMax is the longest gap between passes over which what held before it and holds after it may be taken to have held.
const gapMax = 15 * time.Second

// mark notes since when something holds without a break. A pass that comes late, as under overload, counts as one in time.
// After too long a gap this is unknown, and it begins again, as it does where the clock was set back to before it began.
func (d *judge) mark(since **time.Time, holds bool) {
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

// lasts reports whether it is so long since then. A time far in the future is one from before the clock was set back.
func (d *judge) lasts(since *time.Time, long time.Duration) bool {
	return since != nil && d.now.Sub(*since).Abs() >= long
}

func (d *judge) move(s *subject, action string, slot int16, why string) {
	if action == demoted {
		d.automatic[s.TenantID]--
		d.automatic[uuid.Nil]--
	}
	d.moves = append(d.moves, move{s.id(), action, slot, why})
}

func (d *judge) figures(s *subject) string {
	return fmt.Sprintf("%.0f/s, %.0f/s turned away, %d waiting", s.Rate, d.short(s), s.Waiting)
}
