package metered

import (
	"cmp"
	"math"
	"slices"
)

// parts is into how many buckets a window is cut.
const parts = 60

const microsPerSecond = 1_000_000

// rollup is the sum over one window of a scope, in buckets, oldest first. Moments are microseconds since 1970.
//
// The newest bucket stays even when it has left the window, so that the scope still knows the window: it need not be
// counted from the ledger when it is asked for again.
type rollup struct {
	seconds int64
	buckets []bucket
}

// bucket is what was charged in the index'th stretch of the rollup's width since 1970.
type bucket struct{ index, amount int64 }

// width is a bucket's; rounded down, so that no amount counts longer than a sixtieth of the window too long.
func (r *rollup) width() int64 { return r.seconds * microsPerSecond / parts }

func (r *rollup) indexOf(at int64) int64 { return at / r.width() }

// oldest is the index of the oldest bucket that still reaches into the window that ends at now.
func (r *rollup) oldest(now int64) int64 { return r.indexOf(now - r.seconds*microsPerSecond) }

// leaves is the moment at which a bucket has left the window.
func (r *rollup) leaves(b bucket) int64 { return (b.index+1)*r.width() + r.seconds*microsPerSecond }

// live returns the buckets that count at now.
func (r *rollup) live(now int64) []bucket {
	from, _ := slices.BinarySearchFunc(r.buckets, r.oldest(now), compareBucket)
	return r.buckets[from:]
}

func compareBucket(b bucket, index int64) int { return cmp.Compare(b.index, index) }

// forget drops what has left the window.
func (r *rollup) forget(now int64) {
	if live := r.live(now); len(live) > 0 {
		r.buckets = live
	} else if n := len(r.buckets); n > 0 {
		r.buckets = r.buckets[n-1:]
	}
}

// sum is all that counts at now; the largest number if it is more than that.
func (r *rollup) sum(now int64) (sum int64) {
	for _, b := range r.live(now) {
		if b.amount > math.MaxInt64-sum {
			return math.MaxInt64
		}
		sum += b.amount
	}
	return sum
}

// add counts an amount, below zero to take it back, at a moment. It reports whether the bucket can hold it. Taking back
// from a bucket that was forgotten does nothing.
func (r *rollup) add(at, amount int64) bool {
	index := r.indexOf(at)
	i, found := slices.BinarySearchFunc(r.buckets, index, compareBucket)
	switch {
	case !found && amount > 0:
		r.buckets = slices.Insert(r.buckets, i, bucket{index, amount})
	case found && amount > math.MaxInt64-r.buckets[i].amount:
		return false
	case found:
		r.buckets[i].amount += amount
	}
	return true
}

// wait is how many microseconds after now the amount fits within the limit, -1 if never.
func (r *rollup) wait(now, amount, limit int64) int64 {
	if amount > limit {
		return -1
	}
	excess := r.sum(now) - (limit - amount)
	if excess <= 0 {
		return 0
	}
	for _, b := range r.live(now) {
		if excess -= b.amount; excess <= 0 {
			return r.leaves(b) - now
		}
	}
	return r.reset(now)
}

// reset is how many microseconds after now everything that counts has left the window.
func (r *rollup) reset(now int64) int64 {
	for _, b := range slices.Backward(r.live(now)) {
		if b.amount > 0 {
			return r.leaves(b) - now
		}
	}
	return 0
}
