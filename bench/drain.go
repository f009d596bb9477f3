package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/holdfast/holdfast/bench/baselines"
	"github.com/holdfast/holdfast/internal/lanes"
	"github.com/holdfast/holdfast/internal/queues"
)

// cartID is random, so that new carts are spread over the index as in a shop.
func cartID() string { return "cart-" + strconv.FormatUint(rand.Uint64(), 36) } //nolint:gosec // no secret

// firstOf and anyOf choose variants.
func firstOf() string { return hotVariant }

func anyOf(variants int) func() string {
	return func() string { return baselines.VariantID(rand.IntN(variants)) } //nolint:gosec // no secret
}

// plenty is more units than a run holds.
const plenty = 1_000_000_000

// rateGuess is the rate per second that is assumed of a contender before its
// first measurement.
const rateGuess = 10_000

// work is how many requests a contender gets in a repetition.
func (b *bench) work(name string, long time.Duration) int {
	rate := b.rates[name]
	if rate == 0 {
		rate = rateGuess
	}
	return max(int(rate*long.Seconds()), 100)
}

// note keeps a contender's rate for the next repetition.
func (b *bench) note(name string, s sample) { b.rates[name] = s.rate() }

const (
	drainName = "holdfast drain"
	rawName   = "raw statement"
)

// drain measures the hot lane's drain over requests that were admitted before
// the clock started. It starts as a wake would start it.
func (b *bench) drain(g *environment) *contender {
	return &contender{
		name: drainName, what: "Holdfast, drain",
		prepare: func(ctx context.Context) error {
			if err := g.reset(ctx, 1, true); err != nil {
				return err
			}
			return g.queue(ctx, lanes.Hot, g.slot, b.work(drainName, b.long), firstOf)
		},
		run: func(ctx context.Context, _ time.Duration) (sample, error) {
			s, err := serveLane(ctx, g.hot, g.slot, 1)
			b.note(drainName, s)
			return s, err
		},
		check: g.checkRows,
	}
}

// serveLane drains a slot until nothing is left, as that many concurrent wakes
// do.
func serveLane(ctx context.Context, lane *queues.Lane, slot int16, wakes int) (sample, error) {
	var held, rejected atomic.Int64
	began := time.Now()
	var g errgroup.Group
	for range wakes {
		g.Go(func() error {
			for {
				report, err := lane.Serve(ctx, slot)
				held.Add(int64(report.Held))
				rejected.Add(int64(report.Rejected))
				if err != nil || !report.More {
					return err
				}
			}
		})
	}
	if err := g.Wait(); err != nil {
		return sample{}, err
	}
	if n := rejected.Load(); n > 0 {
		return sample{}, fmt.Errorf("%d of %d requests were turned away", n, n+held.Load())
	}
	return sample{count: held.Load(), elapsed: time.Since(began)}, nil
}

const boundsSQL = `
SELECT coalesce(min(sequence), 0), coalesce(max(sequence), 0)
FROM reservation_requests
WHERE lane = 'hot' AND slot = $1 AND status = 'queued'`

// raw is the limit: the same rows as the drain writes, in one statement per
// group.
func (b *bench) raw(g *environment) *contender {
	return &contender{
		name: rawName, what: "the limit: one raw SQL statement",
		prepare: func(ctx context.Context) error {
			if err := g.reset(ctx, 1, true); err != nil {
				return err
			}
			return g.queue(ctx, lanes.Hot, g.slot, b.work(rawName, b.long), firstOf)
		},
		run: func(ctx context.Context, _ time.Duration) (s sample, err error) {
			var first, last int64
			if err := g.db.QueryRow(ctx, boundsSQL, g.slot).Scan(&first, &last); err != nil {
				return s, err
			}
			raw := baselines.Raw{DB: g.db}
			began := time.Now()
			for after := first - 1; after < last; after += baselines.RawGroup {
				n, err := raw.Hold(ctx, g.slot, after, min(after+baselines.RawGroup, last))
				if err != nil {
					return s, err
				}
				s.count += n
			}
			s.elapsed = time.Since(began)
			b.note(rawName, s)
			return s, nil
		},
		check: g.checkRows,
	}
}
