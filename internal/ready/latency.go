package ready

import (
	"math"
	"time"

	"github.com/google/uuid"

	"github.com/holdfast/holdfast/projections"
)

type (
	// Latency is how long the requests of a tenant took from their acceptance to
	// their outcome, in each bucket.
	Latency = Window[latencyHistogram]
	// LatencyDelta is a change of a Latency.
	LatencyDelta = Window[LatencyBucket]
)

// LatencyBucket is the quantiles of the requests decided from At on, in
// milliseconds. They are estimated from a histogram, with an error of at most
// 7 %.
type LatencyBucket struct {
	At    time.Time `json:"at"`
	Count int64     `json:"count"`
	P50   float64   `json:"p50_ms"`
	P95   float64   `json:"p95_ms"`
	P99   float64   `json:"p99_ms"`
	Max   float64   `json:"max_ms"`
}

// latencyHistogram is a bucket with its histogram: the numbers of requests by
// bin. A bin without requests is left out. A bucket that is not one of the
// newest openBuckets has no histogram any more: an outcome that is recorded so
// late changes its count and its maximum only. Histograms of the whole window
// would be most of what each delivery reads and writes.
type latencyHistogram struct {
	LatencyBucket
	Bins []bin `json:"bins,omitempty"`
}

// openBuckets is a minute, more than a transaction that decides may take.
const openBuckets = 12

// bin is its number and how many requests it has.
type bin [2]int64

func (b LatencyBucket) at() time.Time { return b.At }

// latency is outcomes.latency, with the key "all".
func latency() projections.Projection[*Event, Latency, LatencyDelta] {
	return projections.Projection[*Event, Latency, LatencyDelta]{
		Name:             "outcomes.latency",
		Source:           source,
		SnapshotInterval: snapshotInterval,
		Key: func(e *Event) projections.Key {
			// Both targets have the id of the request.
			if e.TargetID.Version() == 7 && (e.Kind == RequestFailed || e.Kind == Held && e.ofVariant()) {
				return projections.Key{TenantID: e.TenantID, Key: allKey}
			}
			return projections.Key{}
		},
		Apply:    applyLatency,
		Coalesce: mergeWindows[LatencyBucket],
	}
}

func applyLatency(l *Latency, e *Event) LatencyDelta {
	at := e.At.UTC().Truncate(bucketLength)
	i := l.open(at, latencyHistogram{LatencyBucket: LatencyBucket{At: at}})
	if i < 0 {
		return windowOf([]LatencyBucket{})
	}
	if old := len(l.Buckets) - 1 - openBuckets; old >= 0 {
		l.Buckets[old].Bins = nil
	}
	l.Buckets[i].add(e.At.Sub(acceptedAt(e.TargetID)))
	return windowOf([]LatencyBucket{l.Buckets[i].LatencyBucket})
}

// acceptedAt is when the id was made (RFC 9562, section 5.7).
func acceptedAt(id uuid.UUID) time.Time {
	var ms int64
	for _, b := range id[:6] {
		ms = ms<<8 | int64(b)
	}
	return time.UnixMilli(ms)
}

// binGrowth is the ratio of the limits of a bin. The first bin ends at 1 ms.
const binGrowth = 1.15

// binMax is the last bin: some days.
const binMax = 160

var logGrowth = math.Log(binGrowth)

func (h *latencyHistogram) add(took time.Duration) {
	ms := max(float64(took.Microseconds())/1000, 0) // below 0: the clocks of two machines differ
	h.Count++
	h.Max = max(h.Max, tenths(ms))
	if h.Count > 1 && len(h.Bins) == 0 {
		return
	}
	n := int64(0)
	if ms >= 1 {
		n = min(1+int64(math.Log(ms)/logGrowth), binMax)
	}
	i := 0
	for i < len(h.Bins) && h.Bins[i][0] < n {
		i++
	}
	if i == len(h.Bins) || h.Bins[i][0] > n {
		h.Bins = append(h.Bins, bin{})
		copy(h.Bins[i+1:], h.Bins[i:])
		h.Bins[i] = bin{n, 0}
	}
	h.Bins[i][1]++
	h.P50, h.P95, h.P99 = h.quantile(50), h.quantile(95), h.quantile(99)
}

// quantile returns the middle of the bin that has the request of that rank.
func (h *latencyHistogram) quantile(percent int64) float64 {
	rank := (h.Count*percent + 99) / 100
	for _, b := range h.Bins {
		if rank -= b[1]; rank <= 0 {
			return min(middles[b[0]], h.Max)
		}
	}
	return h.Max
}

// middles are the geometric middles of the bins, in milliseconds.
var middles = func() (m [binMax + 1]float64) {
	m[0] = 0.5
	for i := 1; i <= binMax; i++ {
		m[i] = tenths(math.Pow(binGrowth, float64(i)-0.5))
	}
	return m
}()

func tenths(ms float64) float64 { return math.Round(ms*10) / 10 }
