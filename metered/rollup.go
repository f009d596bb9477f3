package metered

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
)

// bucketsPerWindow is into how many buckets a window is divided.
const bucketsPerWindow = 60

const microsPerSecond = 1_000_000

// rollup is the sum over one window of a scope: a sliding-window counter of
// buckets, oldest first. Moments are microseconds since 1970.
//
// The newest bucket is kept even when it has left the window, so that the scope
// still knows the window and need not count it from the ledger.
type rollup struct {
	seconds int64
	buckets []bucket
}

// bucket is what was charged in the index'th period of the rollup's width since
// 1970.
type bucket struct{ index, amount int64 }

// width is a bucket's; rounded down, so that no amount counts more than a
// sixtieth of the window too long.
func (r *rollup) width() int64 { return r.seconds * microsPerSecond / bucketsPerWindow }

func (r *rollup) indexOf(at int64) int64 { return at / r.width() }

// oldest is the index of the oldest bucket that still overlaps the window that
// ends at now.
func (r *rollup) oldest(now int64) int64 { return r.indexOf(now - r.seconds*microsPerSecond) }

// expiresAt is the moment at which a bucket has left the window.
func (r *rollup) expiresAt(b bucket) int64 { return (b.index+1)*r.width() + r.seconds*microsPerSecond }

// current returns the buckets that count at now.
func (r *rollup) current(now int64) []bucket {
	from, _ := slices.BinarySearchFunc(r.buckets, r.oldest(now), compareBucket)
	return r.buckets[from:]
}

func compareBucket(b bucket, index int64) int { return cmp.Compare(b.index, index) }

// dropExpired drops the buckets that have left the window.
func (r *rollup) dropExpired(now int64) {
	if live := r.current(now); len(live) > 0 {
		r.buckets = live
	} else if n := len(r.buckets); n > 0 {
		r.buckets = r.buckets[n-1:]
	}
}

// sum is all that counts at now; math.MaxInt64 if it is more than that.
func (r *rollup) sum(now int64) (sum int64) {
	for _, b := range r.current(now) {
		if b.amount > math.MaxInt64-sum {
			return math.MaxInt64
		}
		sum += b.amount
	}
	return sum
}

// add counts an amount at a moment, negative to take it back. It reports
// whether the bucket can hold it. Taking back from a bucket that was dropped
// does nothing.
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

// wait is how many microseconds after now the amount fits within the limit; -1
// if never.
func (r *rollup) wait(now, amount, limit int64) int64 {
	if amount > limit {
		return -1
	}
	excess := r.sum(now) - (limit - amount)
	if excess <= 0 {
		return 0
	}
	for _, b := range r.current(now) {
		if excess -= b.amount; excess <= 0 {
			return r.expiresAt(b) - now
		}
	}
	return r.reset(now)
}

// reset is how many microseconds after now everything that counts has left the
// window.
func (r *rollup) reset(now int64) int64 {
	for _, b := range slices.Backward(r.current(now)) {
		if b.amount > 0 {
			return r.expiresAt(b) - now
		}
	}
	return 0
}

const rebuildSQL = `
SELECT w.scope, w.seconds, counted.bucket, counted.amount
FROM unnest($2::text[], $3::bigint[], $4::bigint[], $5::timestamptz[]) AS w (scope, seconds, width, since)
CROSS JOIN LATERAL (
    SELECT (extract(epoch FROM coalesce(l.reserved_at, l.recorded_at)) * 1000000)::bigint / w.width AS bucket,
           least(sum(l.amount), 9223372036854775807)::bigint AS amount
    FROM budget_ledger l
    WHERE l.tenant_id = $1 AND l.scope = w.scope AND l.recorded_at >= w.since
      AND (l.reserved_at IS NULL OR l.reserved_at >= w.since)
    GROUP BY 1
) counted
ORDER BY w.scope, w.seconds, counted.bucket`

// rebuildTx counts from the ledger the windows that the charges need and the
// scopes don't keep. It comes after the lock.
func (l *lockedScopes) rebuildTx(ctx context.Context, tx pgx.Tx, charges []Charge, now int64) error {
	var (
		scopes         []string
		seconds, width []int64
		since          []time.Time
	)
	for _, c := range charges {
		s, r := l.found[c.Scope], &rollup{seconds: int64(c.Window / time.Second)}
		if s.rollup(r.seconds) != nil {
			continue
		}
		if !s.created {
			s.rewrite = true
			scopes, seconds, width = append(scopes, s.name), append(seconds, r.seconds), append(width, r.width())
			since = append(since, moment(r.oldest(s.clock(now))*r.width()))
		}
		s.addRollup(r)
	}
	if len(scopes) == 0 {
		return nil
	}
	rows, err := tx.Query(ctx, rebuildSQL, l.tenant, scopes, seconds, width, since)
	if err != nil {
		return fmt.Errorf("count %d windows: %w", len(scopes), err)
	}
	counted, err := pgx.CollectRows(rows, pgx.RowToStructByPos[struct {
		Scope                 string
		Window, Index, Amount int64
	}])
	if err != nil {
		return fmt.Errorf("count %d windows: %w", len(scopes), err)
	}
	for _, c := range counted {
		if r := l.found[c.Scope].rollup(c.Window); r != nil {
			r.buckets = append(r.buckets, bucket{index: c.Index, amount: c.Amount})
		}
	}
	return nil
}
