package ready

import (
	"slices"
	"time"

	"github.com/holdfast/holdfast/projections"
)

// A window has the buckets of the last 15 minutes before the newest event.
const (
	bucketLength = 5 * time.Second
	windowLength = 15 * time.Minute
)

// allKey is the key of the projections with one state per tenant.
const allKey = "all"

// Window is the buckets of a tenant. As a delta it has those that changed, with
// their present values.
type Window[B bucket] struct {
	BucketSeconds int `json:"bucket_seconds"`
	Buckets       []B `json:"buckets"`
}

// Rate is how many outcomes of each sort a tenant had in each bucket.
type Rate = Window[RateBucket]

// RateBucket counts the outcomes from At on. Rejected requests have a business
// reason, failed ones the reason internal_error.
type RateBucket struct {
	At        time.Time `json:"at"`
	Held      int64     `json:"held"`
	Rejected  int64     `json:"rejected"`
	Failed    int64     `json:"failed"`
	Committed int64     `json:"committed"`
	Released  int64     `json:"released"`
	Expired   int64     `json:"expired"`
}

func (b RateBucket) at() time.Time { return b.At }

// rate is outcomes.rate, with the key "all".
func rate() projections.Projection[*Event, Rate, Rate] {
	return projections.Projection[*Event, Rate, Rate]{
		Name:             "outcomes.rate",
		Source:           source,
		SnapshotInterval: snapshotInterval,
		Key: func(e *Event) projections.Key {
			if e.Kind == RequestFailed || e.ofVariant() {
				return projections.Key{TenantID: e.TenantID, Key: allKey}
			}
			return projections.Key{}
		},
		Apply:    applyRate,
		Coalesce: mergeWindows[RateBucket],
	}
}

func applyRate(r *Rate, e *Event) Rate {
	at := e.At.UTC().Truncate(bucketLength)
	i := r.open(at, RateBucket{At: at})
	if i < 0 {
		return windowOf([]RateBucket{})
	}
	r.Buckets[i].count(e)
	return windowOf([]RateBucket{r.Buckets[i]})
}

func (b *RateBucket) count(e *Event) {
	switch e.Kind {
	case Held:
		b.Held++
	case Committed:
		b.Committed++
	case Released:
		b.Released++
	case Expired:
		b.Expired++
	case RequestFailed:
		if e.Reason == "internal_error" {
			b.Failed++
		} else {
			b.Rejected++
		}
	case Resized, StockChanged:
	}
}

// bucket is a part of a window.
type bucket interface{ at() time.Time }

func windowOf[B bucket](buckets []B) Window[B] {
	return Window[B]{BucketSeconds: int(bucketLength / time.Second), Buckets: buckets}
}

// open returns the index of the bucket that begins at the given time, and adds it
// if it is missing. Buckets that are older than the window are removed; the index
// is -1 if the new one is.
func (w *Window[B]) open(at time.Time, empty B) int {
	buckets := w.Buckets
	*w = windowOf(buckets)
	i := len(buckets)
	for i > 0 && buckets[i-1].at().After(at) {
		i--
	}
	if i > 0 && buckets[i-1].at().Equal(at) {
		return i - 1
	}
	if n := len(buckets); n > 0 && buckets[n-1].at().Sub(at) > windowLength {
		return -1
	}
	buckets = slices.Insert(buckets, i, empty)
	newest, old := buckets[len(buckets)-1].at(), 0
	for newest.Sub(buckets[old].at()) > windowLength {
		old++
	}
	w.Buckets = slices.Delete(buckets, 0, old)
	return i - old
}

// mergeWindows returns the buckets of both, those of b in place of those of a
// from the same time.
func mergeWindows[B bucket](a, b Window[B]) Window[B] {
	for _, newer := range b.Buckets {
		at := len(a.Buckets)
		for at > 0 && a.Buckets[at-1].at().After(newer.at()) {
			at--
		}
		if at > 0 && a.Buckets[at-1].at().Equal(newer.at()) {
			a.Buckets[at-1] = newer
		} else {
			a.Buckets = slices.Insert(a.Buckets, at, newer)
		}
	}
	return a
}
