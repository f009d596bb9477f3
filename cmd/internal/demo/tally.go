package demo

import (
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast/holdfast/client"
	"github.com/holdfast/holdfast/cmd/internal/replay"
)

// tally counts one kind of traffic. It is safe for concurrent use.
type tally struct {
	accepted, held, soldOut, other atomic.Int64

	mu                 sync.Mutex
	untilAccepted      []time.Duration // from sending to 202
	untilDecided       []time.Duration // from sending to knowing the outcome
	recent             []time.Duration // those of untilDecided since the last recentP99
	firstFailureReason string
}

// outOfStock is the reason of a request that found too few units.
const outOfStock = "out_of_stock"

func (t *tally) accept(took time.Duration) {
	t.accepted.Add(1)
	t.mu.Lock()
	t.untilAccepted = append(t.untilAccepted, took)
	t.mu.Unlock()
}

// decide records an outcome. For a hold it returns the number of the hold in
// the tally, counted from 1; for any other outcome it returns 0.
func (t *tally) decide(r client.Request, took time.Duration) int64 {
	t.mu.Lock()
	t.untilDecided = append(t.untilDecided, took)
	t.recent = append(t.recent, took)
	t.mu.Unlock()
	switch {
	case r.Reservation != nil:
		return t.held.Add(1)
	case r.Reason == outOfStock:
		t.soldOut.Add(1)
	default:
		t.other.Add(1)
		t.mu.Lock()
		if t.firstFailureReason == "" {
			t.firstFailureReason = r.Status + " " + r.Reason
		}
		t.mu.Unlock()
	}
	return 0
}

func (t *tally) decided() int64 { return t.held.Load() + t.soldOut.Load() + t.other.Load() }

// recentP99 returns the p99 of the times until an outcome was known since the
// last call; 0 without outcomes.
func (t *tally) recentP99() time.Duration {
	t.mu.Lock()
	recent := t.recent
	t.recent = nil
	t.mu.Unlock()
	slices.Sort(recent)
	return replay.Quantile(recent, 0.99)
}

// latencies are the waiting times of one kind of traffic.
type latencies struct{ accepted50, accepted99, decided50, decided99 time.Duration }

func (t *tally) latencies() latencies {
	t.mu.Lock()
	defer t.mu.Unlock()
	slices.Sort(t.untilAccepted)
	slices.Sort(t.untilDecided)
	return latencies{
		replay.Quantile(t.untilAccepted, 0.5), replay.Quantile(t.untilAccepted, 0.99),
		replay.Quantile(t.untilDecided, 0.5), replay.Quantile(t.untilDecided, 0.99),
	}
}

// actions counts what buyers with a hold did.
type actions struct {
	// doubles are adds that were sent twice with one key. split are those of
	// them that made two requests.
	doubles, split atomic.Int64
	// removed are released units, hot and normal. sold are units that were
	// checked out.
	removedHot, removedNormal atomic.Int64
	soldHot, soldNormal       atomic.Int64
	// changed are changed quantities in normal carts.
	changed atomic.Int64
	// seconds are attempts at a second unit after all are sold. secondsRefused
	// are those that failed as out of stock while the first unit was kept.
	seconds, secondsRefused int
}

// rates records how many requests were decided in each second of the sale.
type rates struct {
	last, peak int64
	at         time.Time
}

// next records the current count and returns the rate since the last call, per
// second.
func (r *rates) next(count int64, now time.Time) int64 {
	defer func() { r.last, r.at = count, now }()
	if r.at.IsZero() {
		return 0
	}
	rate := int64(float64(count-r.last) / now.Sub(r.at).Seconds())
	r.peak = max(r.peak, rate)
	return rate
}

// grouped formats n with commas between thousands.
func grouped[N int | int64](n N) string {
	digits := strconv.FormatInt(int64(n), 10)
	var b strings.Builder
	for i, d := range digits {
		if i > 0 && digits[i-1] != '-' && (len(digits)-i)%3 == 0 {
			b.WriteByte(',')
		}
		b.WriteRune(d)
	}
	return b.String()
}
