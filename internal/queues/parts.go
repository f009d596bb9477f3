package queues

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/internal/inventory"
	"github.com/holdfast/holdfast/internal/requestrows"
	"github.com/holdfast/holdfast/requests"
	"github.com/holdfast/holdfast/reservations"
)

// decideParts takes the next step of a scattered request, which the caller has
// locked: it queues parts, or finishes the request.
func (d *Drain) decideParts(ctx context.Context, tx pgx.Tx, b *pgx.Batch, r requests.Request, now time.Time, report *Report) error {
	ref := requestrows.RefOf(&r)
	parts, err := requestrows.Parts(ctx, tx, []requestrows.Ref{ref})
	if err != nil {
		return err
	}
	step := nextStep{request: &r, parts: parts[ref], stale: d.isTooOld(&r, now)}
	if step.asksForWhatThereIs() {
		if step.stocks, err = inventory.GetAll(ctx, tx, r.TenantID, step.variants()); err != nil {
			return err
		}
	}
	step.plan()
	if len(step.dispatch) > 0 || step.waits {
		inserted, err := requestrows.DispatchTx(ctx, tx, &r, step.dispatch, step.open)
		report.streams = inserted.Streams
		return err
	}
	if err := inventory.ReleaseIncompleteTx(ctx, tx, step.incomplete(), requestrows.OriginOf(&r)); err != nil {
		return err
	}
	if step.reason != "" {
		report.Rejected++
	} else {
		report.Held++
	}
	finished, reasons := []requests.Request{r}, []requests.Reason{step.reason}
	requestrows.QueueFinish(b, finished, reasons, now)
	report.Claimed = 1
	report.outcomes = outcomesOf(d.lane, finished, reasons, now)
	return nil
}

// nextStep is the next step of a scattered request, by what its parts are.
type nextStep struct {
	request *requests.Request
	parts   []requestrows.Part
	stocks  map[string]inventory.Stock // for the lines that take what there is
	stale   bool                       // it has waited for too long

	dispatch []requestrows.Submission // parts to be queued
	open     int                      // parts that are undecided
	waits    bool                     // a part is undecided
	reason   requests.Reason          // for which the request fails; "" if it is done
}

// triesMax is how many parts a variant gets for a line that takes what there is:
// others may take it between the reading and the decision.
const triesMax = 3

// takesWhatThereIs reports whether a line takes what there is of it. Kits of a
// scattered request are all held or none.
func (s *nextStep) takesWhatThereIs(line *requests.Line) bool {
	return line.KitID == "" && (line.Split || s.request.Lines.Partial)
}

func (s *nextStep) asksForWhatThereIs() bool {
	for i := range s.request.Lines.Items {
		if s.takesWhatThereIs(&s.request.Lines.Items[i]) {
			return true
		}
	}
	return false
}

func (s *nextStep) variants() (all []string) {
	for i := range s.request.Lines.Items {
		all = append(all, requestrows.Variants(&s.request.Lines.Items[i])...)
	}
	return all
}

// plan decides the step. It is a pure function of the other fields.
func (s *nextStep) plan() {
	for i := range s.parts {
		if !s.parts[i].Status.Finished() {
			s.open, s.waits = s.open+1, true
		}
	}
	if s.waits {
		return
	}
	first, held := requests.Reason(""), false
	for place := range s.request.Lines.Items {
		line := s.lineOf(place)
		held = held || line.held
		switch {
		case line.lost != "":
			first = cmp.Or(first, line.lost)
		case line.left <= 0:
		case len(line.next) > 0 && !s.stale:
			s.dispatch = append(s.dispatch, line.next...)
		default:
			first = cmp.Or(first, line.reason)
		}
	}
	partial := s.request.Lines.Partial
	switch {
	case first != "" && !partial, first == requests.Cancelled:
		s.dispatch, s.reason = nil, first
	case len(s.dispatch) == 0 && first != "" && !held:
		s.reason = first
	}
}

// lineState is how far a line is served.
type lineState struct {
	left   int64                    // units that it lacks
	held   bool                     // it holds something, or needs to hold nothing
	next   []requestrows.Submission // the part that may serve it next, or the parts of its kits
	lost   requests.Reason          // it had a hold that has ended without a checkout
	reason requests.Reason          // why it is short
}

func (s *nextStep) lineOf(place int) lineState {
	line := &s.request.Lines.Items[place]
	if line.KitID != "" {
		return s.kitsOf(place)
	}
	state := lineState{left: int64(line.Quantity), reason: requests.ExpiredInQueue}
	tries, failedKnown := make(map[string]int), false
	for i := range s.parts {
		p := &s.parts[i]
		if int(p.Line) != place {
			continue
		}
		tries[p.VariantID]++
		switch {
		case p.Status == requests.Done && p.Reservation == nil: // a variant that is not tracked
			state.left, state.held = 0, true
		case p.Status == requests.Done && p.Reservation.Status == reservations.Released:
			state.lost = requests.Cancelled
		case p.Status == requests.Done && p.Reservation.Status == reservations.Expired:
			state.lost = cmp.Or(state.lost, requests.ExpiredInQueue)
		case p.Status == requests.Done:
			state.left, state.held = state.left-int64(p.Quantity), true
			tries[p.VariantID] = triesMax
		case p.Reason == requests.Cancelled:
			state.lost = requests.Cancelled
		case !failedKnown:
			state.reason, failedKnown = p.Reason, p.Reason != requests.UnknownVariant
		}
	}
	if state.held && !failedKnown {
		state.reason = requests.OutOfStock
	}
	if state.left > 0 {
		if next := s.nextPart(place, state.left, tries); next != nil {
			state.next = append(state.next, *next)
		}
	}
	return state
}

// kitsOf is lineOf for a line of kits, whose parts are queued together.
func (s *nextStep) kitsOf(place int) lineState {
	line := &s.request.Lines.Items[place]
	state := lineState{reason: requests.ExpiredInQueue}
	failed := false
	for _, needed := range requestrows.KitParts(line) {
		at := slices.IndexFunc(s.parts, func(p requestrows.Part) bool { return int(p.Line) == place && p.VariantID == needed.VariantID })
		if at < 0 {
			state.left++
			state.next = append(state.next, requestrows.PartOf(s.request, place, needed.VariantID, int64(needed.Quantity)))
			continue
		}
		switch p := &s.parts[at]; {
		case p.Status == requests.Done && p.Reservation == nil: // a variant that is not tracked
		case p.Status == requests.Done && p.Reservation.Status == reservations.Released:
			state.lost = requests.Cancelled
		case p.Status == requests.Done && p.Reservation.Status == reservations.Expired:
			state.lost = cmp.Or(state.lost, requests.ExpiredInQueue)
		case p.Status == requests.Done:
		case p.Reason == requests.Cancelled:
			state.lost = requests.Cancelled
		case !failed:
			state.reason, failed = p.Reason, true
		}
	}
	if failed {
		state.left, state.next = 1, nil
	}
	state.held = state.left == 0 && state.lost == ""
	return state
}

// nextPart returns the part that may serve a line next, nil if there is none.
func (s *nextStep) nextPart(place int, left int64, tries map[string]int) *requestrows.Submission {
	line := &s.request.Lines.Items[place]
	variants := requestrows.Variants(line)
	for i, variant := range variants {
		most, quantity := 1, left
		if line.Units == nil && (line.Split || s.request.Lines.Partial && i == len(variants)-1) {
			most = triesMax
			stock, known := s.stocks[variant]
			if known && stock.Tracked && !stock.Backorder {
				quantity = min(left, max(stock.Available, 0))
			}
			if quantity == 0 && (i < len(variants)-1 || tries[variant] > 0) {
				continue
			}
			quantity = max(quantity, 1) // the last one is rejected, and so has a reason
		}
		if tries[variant] < most {
			part := requestrows.PartOf(s.request, place, variant, quantity)
			return &part
		}
	}
	return nil
}

// incomplete returns the holds that are released when the request is finished:
// all of a request that fails, else those of kits that are not whole. One past its
// deadline is among them: an extension that is about to commit may have moved that.
func (s *nextStep) incomplete() (held []reservations.Reservation) {
	broken := make(map[int16]bool)
	for place := range s.request.Lines.Items {
		broken[int16(place)] = s.reason != "" || s.request.Lines.Items[place].KitID != "" && !s.lineOf(place).held
	}
	for i := range s.parts {
		p := &s.parts[i]
		if r := p.Reservation; r != nil && r.EndedAt == nil && broken[p.Line] {
			held = append(held, *r)
		}
	}
	return held
}
