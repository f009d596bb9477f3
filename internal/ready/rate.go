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

// Rate is how many outcomes of each sort a tenant had in each bucket. As a
// delta it has the buckets that changed, with their present values.
type Rate struct {
	BucketSeconds int          `json:"bucket_seconds"`
	Buckets       []RateBucket `json:"buckets"`
}

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
		Apply: applyRate,
		Coalesce: func(a, b Rate) Rate {
			a.Buckets = mergeBuckets(a.Buckets, b.Buckets)
			return a
		},
	}
}

func applyRate(r *Rate, e *Event) Rate {
	const seconds = int(bucketLength / time.Second)
	r.BucketSeconds = seconds
	at := e.At.UTC().Truncate(bucketLength)
	var i int
	if r.Buckets, i = openBucket(r.Buckets, at, RateBucket{At: at}); i < 0 {
		return Rate{BucketSeconds: seconds, Buckets: []RateBucket{}}
	}
	r.Buckets[i].count(e)
	return Rate{BucketSeconds: seconds, Buckets: []RateBucket{r.Buckets[i]}}
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
	case StockChanged:
	}
}

// bucket is a part of a window.
type bucket interface{ at() time.Time }

// openBucket returns the index of the bucket that begins at the given time, and
// adds it if it is missing. Buckets that are older than the window are removed;
// the index is -1 if the new one is.
func openBucket[B bucket](buckets []B, at time.Time, empty B) ([]B, int) {
	i := len(buckets)
	for i > 0 && buckets[i-1].at().After(at) {
		i--
	}
	if i > 0 && buckets[i-1].at().Equal(at) {
		return buckets, i - 1
	}
	if n := len(buckets); n > 0 && buckets[n-1].at().Sub(at) > windowLength {
		return buckets, -1
	}
	buckets = slices.Insert(buckets, i, empty)
	newest, old := buckets[len(buckets)-1].at(), 0
	for newest.Sub(buckets[old].at()) > windowLength {
		old++
	}
	return slices.Delete(buckets, 0, old), i - old
}

// mergeBuckets returns the buckets of both, those of b in place of those of a
// from the same time.
func mergeBuckets[B bucket](a, b []B) []B {
	for i := range b {
		at := len(a)
		for at > 0 && a[at-1].at().After(b[i].at()) {
			at--
		}
		if at > 0 && a[at-1].at().Equal(b[i].at()) {
			a[at-1] = b[i]
		} else {
			a = slices.Insert(a, at, b[i])
		}
	}
	return a
}
