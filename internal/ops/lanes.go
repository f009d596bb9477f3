package ops

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast/holdfast/internal/lanes"
	"github.com/holdfast/holdfast/internal/queues"
)

// OverviewLane is what waits in a lane, and how fast requests arrive and are
// decided.
type OverviewLane struct {
	Lane              lanes.Lane `json:"lane" enum:"hot,normal"`
	Depth             int64      `json:"depth" doc:"Requests that wait for their decision."`
	OldestSeconds     float64    `json:"oldest_seconds" doc:"How long the oldest of them has waited."`
	ArrivalsPerSecond *float64   `json:"arrivals_per_second" doc:"Requests that arrive, per second; null where HOT_DETECT is off."`
	DecidedPerSecond  float64    `json:"decided_per_second" doc:"Requests that are decided, per second."`
	Paused            bool       `json:"paused"`
	RateCap           *int32     `json:"rate_cap" doc:"Requests that may be decided, per second; null for no cap."`
	Slow              *string    `json:"slow" doc:"The reason why its requests wait, as a sentence; null if they do not wait." example:"Capped at 5 per second; 31 per second arrive."`
}

const (
	// loadMax is how old the published load may be. An older one is counted
	// again, by one process for all.
	loadMax = time.Second
	// loadValid is how old it may be if no count succeeds.
	loadValid = 2 * time.Minute
)

// lanes returns the lanes by the published load, which costs the same however
// many requests wait. Only if there is none does it count itself.
func (o *Reader) lanes(ctx context.Context) ([]OverviewLane, error) {
	var arrivals map[lanes.Lane]float64
	if o.arrivals {
		var err error
		arrivals, err = Arrivals(ctx, o.db)
		if err != nil {
			return nil, err
		}
	}
	// A load that could not be counted again is still returned, with its age.
	load, _ := o.load.Read(ctx, loadMax)
	all := lanesOf(&load)
	if load.Lanes == nil || load.Age > loadValid {
		var err error
		all, err = o.counted(ctx)
		if err != nil {
			return nil, err
		}
	}
	for i := range all {
		l := &all[i]
		if arrivals != nil {
			l.ArrivalsPerSecond = new(rounded(arrivals[l.Lane]))
		}
		l.Slow = l.slow()
	}
	return all, nil
}

// lanesOf returns the lanes as they were counted last.
func lanesOf(load *lanes.Load) []OverviewLane {
	var all []OverviewLane
	for _, name := range lanes.All() {
		counted := load.Lanes[name]
		l := OverviewLane{Lane: name, Depth: counted.Depth, DecidedPerSecond: rounded(counted.Rate), Paused: counted.Paused}
		if counted.RateCap > 0 {
			l.RateCap = &counted.RateCap
		}
		for _, stream := range counted.Streams {
			l.OldestSeconds = max(l.OldestSeconds, rounded(stream.OldestSeconds+load.Age.Seconds()))
		}
		all = append(all, l)
	}
	return all
}

// counted counts the lanes without the published load.
func (o *Reader) counted(ctx context.Context) ([]OverviewLane, error) {
	states, err := queues.Lanes(ctx, o.db)
	if err != nil {
		return nil, err
	}
	all := make([]OverviewLane, len(states))
	for i := range states {
		s := &states[i]
		all[i] = OverviewLane{
			Lane: s.Lane, Depth: s.Depth, OldestSeconds: rounded(s.OldestAgeSeconds), DecidedPerSecond: rounded(s.RatePerSecond),
			Paused: s.Paused, RateCap: s.RateCap,
		}
	}
	return all, nil
}

// slowAfter is the age from which a request has waited unusually long, in
// seconds. A tick drains each lane every second.
const slowAfter = 5

// slow returns why the requests of the lane wait.
func (l *OverviewLane) slow() *string {
	isLate := l.Depth > 0 && l.OldestSeconds >= slowAfter
	var why string
	switch {
	case l.Paused && l.Depth > 0:
		why = fmt.Sprintf("Paused; %s, the oldest for %s.", plural(l.Depth, "request waits", "requests wait"), inWords(l.OldestSeconds))
	case l.Paused:
		why = "Paused."
	case l.RateCap != nil && l.Depth > 0 && l.ArrivalsPerSecond != nil && *l.ArrivalsPerSecond > float64(*l.RateCap):
		why = fmt.Sprintf("Capped at %d per second; %s per second arrive.", *l.RateCap, short(*l.ArrivalsPerSecond))
	case l.RateCap != nil && isLate:
		why = fmt.Sprintf("Capped at %d per second; %s.", *l.RateCap, plural(l.Depth, "request waits", "requests wait"))
	case isLate:
		why = fmt.Sprintf("The oldest request waits %s.", inWords(l.OldestSeconds))
	default:
		return nil
	}
	return &why
}

func plural(n int64, one, more string) string {
	if n == 1 {
		return "1 " + one
	}
	return strconv.FormatInt(n, 10) + " " + more
}

// short returns a rate with at most one digit after the point.
func short(rate float64) string {
	if rate >= 10 {
		return strconv.FormatFloat(rate, 'f', 0, 64)
	}
	return strings.TrimSuffix(strconv.FormatFloat(rate, 'f', 1, 64), ".0")
}

// inWords returns a duration in its largest fitting unit.
func inWords(seconds float64) string {
	switch {
	case seconds < 120:
		return strconv.FormatFloat(seconds, 'f', 0, 64) + " s"
	case seconds < 7200:
		return strconv.FormatFloat(seconds/60, 'f', 0, 64) + " min"
	default:
		return strconv.FormatFloat(seconds/3600, 'f', 0, 64) + " h"
	}
}
