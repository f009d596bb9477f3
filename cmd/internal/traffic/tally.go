package traffic

import (
	"math"
	"slices"
	"sync"
	"time"

	"github.com/holdfast/holdfast/client"
)

// counts are numbers of requests by their outcome.
type counts struct{ accepted, held, soldOut, other int64 }

func (c counts) decided() int64 { return c.held + c.soldOut + c.other }

// plus returns the sums.
func (c counts) plus(d counts) counts {
	return counts{c.accepted + d.accepted, c.held + d.held, c.soldOut + d.soldOut, c.other + d.other}
}

// tally counts one kind of traffic. It is safe for concurrent use, and made by
// newTally.
type tally struct {
	mu            sync.Mutex
	all           counts
	items         map[string]counts // decided, by item
	untilAccepted []time.Duration   // from sending to 202
	untilDecided  []time.Duration   // from sending to knowing the outcome
	shown         int               // how many of untilDecided recentP99 has seen
	firstFailure  string
}

func newTally() *tally { return &tally{items: make(map[string]counts)} }

// outOfStock is the reason of a request that found too few units.
const outOfStock = "out_of_stock"

func (t *tally) accept(took time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.all.accepted++
	t.untilAccepted = append(t.untilAccepted, took)
}

func (t *tally) decide(item string, r client.Request, took time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.untilDecided = append(t.untilDecided, took)
	var one counts
	switch {
	case r.Reservation != nil:
		one.held = 1
	case r.Reason == outOfStock:
		one.soldOut = 1
	default:
		one.other = 1
		if t.firstFailure == "" {
			t.firstFailure = r.Status + " " + r.Reason
		}
	}
	t.all = t.all.plus(one)
	t.items[item] = t.items[item].plus(one)
}

// counts returns the counts so far.
func (t *tally) counts() counts {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.all
}

// sum adds what several tallies count.
func sum(tallies ...*tally) (all counts) {
	for _, t := range tallies {
		all = all.plus(t.counts())
	}
	return all
}

// recentP99 returns the p99 of the times until an outcome was known since the
// last call; 0 without outcomes.
func (t *tally) recentP99() time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	recent := latenciesOf(t.untilDecided[t.shown:])
	t.shown = len(t.untilDecided)
	return recent.p99
}

// latencies describe waiting times. They are 0 without any.
type latencies struct{ p50, p99, mean time.Duration }

func latenciesOf(times []time.Duration) latencies {
	if len(times) == 0 {
		return latencies{}
	}
	total := time.Duration(0)
	for _, took := range times {
		total += took
	}
	sorted := slices.Sorted(slices.Values(times))
	return latencies{quantile(sorted, 0.5), quantile(sorted, 0.99), total / time.Duration(len(times))}
}

// quantile returns the smallest of the sorted durations that is not exceeded by
// at least the share q of them; 0 without durations.
func quantile(sorted []time.Duration, q float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[max(0, int(math.Ceil(q*float64(len(sorted))))-1)]
}

// latencies returns the waiting times until 202, and until the outcome.
func (t *tally) latencies() (accepted, decided latencies) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return latenciesOf(t.untilAccepted), latenciesOf(t.untilDecided)
}
