package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"github.com/holdfast/holdfast/internal/inventory"
	"github.com/holdfast/holdfast/internal/lanes"
	"github.com/holdfast/holdfast/internal/live"
	"github.com/holdfast/holdfast/internal/ops"
	"github.com/holdfast/holdfast/internal/ready"
	"github.com/holdfast/holdfast/internal/sleep"
	"github.com/holdfast/holdfast/internal/tenants"
	"github.com/holdfast/holdfast/projections"
)

const (
	foldName      = "holdfast feed, one hot variant"
	followedDrain = "holdfast drain, projections and dashboard on"
)

// projections compares the feed of the ready projections with the drain that
// makes its records, and the drain with a dashboard open with the drain alone.
func (b *bench) projections(ctx context.Context) ([]Measure, error) {
	g, err := b.newEnvironment(ctx)
	if err != nil {
		return nil, err
	}
	defer g.close()
	w := &followed{bench: b, environment: g}
	if w.feedDB, err = openPool(ctx, g.url, feedConns, parameters); err != nil {
		return nil, err
	}
	defer w.feedDB.Close()
	if w.liveDB, err = openPool(ctx, g.url, liveConns, parameters); err != nil {
		return nil, err
	}
	defer w.liveDB.Close()
	c, err := b.compare(ctx, b.drain(g), w.fold(), w.drain())
	if err != nil {
		return nil, err
	}
	onDrain := c.over("drain_with_projections", followedDrain, drainName)
	onDrain.note("%d frames reached the dashboard; the feed was at most %.1f s behind at the end", w.frames, w.behind.Seconds())
	return []Measure{c.over("projection_vs_drain", foldName, drainName), onDrain}, nil
}

// The connections of a worker's feed, and of an API's live channels.
const (
	feedConns = 7
	liveConns = 2
)

// followed is an environment with projections and a dashboard.
type followed struct {
	bench          *bench
	environment    *environment
	feedDB, liveDB *pgxpool.Pool
	// frames is how many frames the dashboard received. behind is how long the
	// feed took at most after the end of a drain.
	frames int64
	behind time.Duration
}

// newFeed makes the feed of an emptied database.
func (w *followed) newFeed() (*ready.Set, *projections.Feed, error) {
	config := projections.Config{Log: slog.New(slog.DiscardHandler)}
	set, err := ready.New(w.feedDB, config)
	if err != nil {
		return nil, nil, err
	}
	feed, err := projections.NewFeed(w.feedDB, config)
	if err != nil {
		return nil, nil, err
	}
	if err := set.Register(feed); err != nil {
		return nil, nil, err
	}
	return set, feed, nil
}

// empty prepares a backlog of requests for the hot variant.
func (w *followed) empty(ctx context.Context, requests int) error {
	g := w.environment
	if err := g.reset(ctx, 1, true); err != nil {
		return err
	}
	return g.queue(ctx, lanes.Hot, g.slot, requests, firstOf)
}

// fold folds the holds of one hot variant, which were decided before the clock
// started, into all ready projections.
func (w *followed) fold() *contender {
	g := w.environment
	var set *ready.Set
	var feed *projections.Feed
	return &contender{
		name: foldName,
		prepare: func(ctx context.Context) (err error) {
			if err := w.empty(ctx, w.bench.work(foldName, w.bench.long)); err != nil {
				return err
			}
			if set, feed, err = w.newFeed(); err != nil {
				return err
			}
			// As in a worker; the stock was not recorded.
			if _, err := set.SeedMissing(ctx); err != nil {
				return err
			}
			_, err = serveLane(ctx, g.hot, g.slot, 1)
			return err
		},
		run: func(ctx context.Context, _ time.Duration) (s sample, err error) {
			began := time.Now()
			for wanted := int64(w.bench.work(foldName, w.bench.long)); s.count < wanted && time.Since(began) < backlogMax; {
				report, err := feed.RunOnce(ctx)
				if err != nil {
					return s, err
				}
				if report.Delivered == 0 { // a transaction of another database holds the feed back
					_ = sleep.For(ctx, time.Millisecond)
				}
				s.count += int64(report.Delivered)
			}
			s.elapsed = time.Since(began)
			w.bench.note(foldName, s)
			return s, nil
		},
		check: func(ctx context.Context, s sample) error { return w.check(ctx, set, s) },
	}
}

// drain is the drain while the feed runs and a dashboard is open.
func (w *followed) drain() *contender {
	g := w.environment
	var set *ready.Set
	var feed *projections.Feed
	return &contender{
		name: followedDrain,
		prepare: func(ctx context.Context) (err error) {
			if err := w.empty(ctx, w.bench.work(drainName, w.bench.long)); err != nil {
				return err
			}
			if set, feed, err = w.newFeed(); err != nil {
				return err
			}
			_, err = set.SeedMissing(ctx)
			return err
		},
		run: func(ctx context.Context, _ time.Duration) (s sample, err error) {
			beside, cancel := context.WithCancel(ctx)
			defer cancel()
			group, beside := errgroup.WithContext(beside)
			group.Go(func() error { return feed.Run(beside) })
			if err := w.open(beside, group); err != nil {
				return s, errors.Join(err, group.Wait())
			}
			s, err = serveLane(ctx, g.hot, g.slot, 1)
			if err == nil {
				err = w.catchUp(ctx, s.count)
			}
			cancel()
			return s, errors.Join(err, group.Wait())
		},
		check: func(ctx context.Context, s sample) error { return w.check(ctx, set, s) },
	}
}

// open opens the dashboard: a hub, and a subscriber of all its channels and of
// the hot variant.
func (w *followed) open(ctx context.Context, group *errgroup.Group) error {
	hub, err := live.New(live.Config{
		Pool: w.liveDB, Log: slog.New(slog.DiscardHandler),
		Snapshots: projections.Snapshots, Versions: projections.Versions,
		Sampled: []live.Sampled{{
			Channel: ops.Channel, Scope: tenants.ScopeOps, Sample: ops.NewReader(w.liveDB, ops.Config{}).Read,
		}},
	})
	if err != nil {
		return err
	}
	group.Go(func() error { return hub.Run(ctx) })
	received := make(chan int64)
	channels := []string{
		ops.Channel, projections.Channel("reservations.counters", inventory.Kind), projections.Channel("stocks.availability", hotVariant),
		projections.Channel("outcomes.rate", "all"), projections.Channel("outcomes.latency", "all"),
	}
	for _, channel := range channels {
		sub, err := hub.Subscribe(w.environment.tenant, channel)
		if err != nil {
			return err
		}
		group.Go(func() error {
			defer sub.Close()
			for n := int64(0); ; n++ {
				if _, err := sub.Next(ctx); err != nil {
					received <- n
					return nil //nolint:nilerr // the dashboard is closed
				}
			}
		})
	}
	group.Go(func() error {
		for range channels {
			w.frames += <-received
		}
		return nil
	})
	return nil
}

// catchUp waits until the feed has folded that many holds.
func (w *followed) catchUp(ctx context.Context, holds int64) error {
	began := time.Now()
	err := await(ctx, time.Minute, 5*time.Millisecond, func() (string, error) {
		folded, err := w.reserved(ctx)
		if err != nil || folded >= holds {
			return "", err
		}
		return fmt.Sprintf("the feed has folded %d of %d holds", folded, holds), nil
	})
	w.behind = max(w.behind, time.Since(began))
	return err
}

const foldedSQL = `
SELECT coalesce((SELECT (p.state->>'reserved')::bigint
                 FROM projection_snapshots p
                 WHERE p.tenant_id = $1 AND p.projection_name = 'stocks.availability' AND p.key = $2), 0)`

// reserved is what the projection counts as reserved of the hot variant.
func (w *followed) reserved(ctx context.Context) (n int64, err error) {
	err = w.feedDB.QueryRow(ctx, foldedSQL, w.environment.tenant, hotVariant).Scan(&n)
	return n, err
}

// check fails unless the rows add up, and every hold is folded once.
func (w *followed) check(ctx context.Context, set *ready.Set, s sample) error {
	report, err := set.Verify(ctx)
	if err != nil {
		return err
	}
	if report.Wrong > 0 {
		return fmt.Errorf("the projections are wrong: %+v", report.Found)
	}
	folded, err := w.reserved(ctx)
	if err != nil {
		return err
	}
	held := sample{count: folded}
	if s.count < folded { // the feed also counts the records of the lane's move
		return fmt.Errorf("%d holds are folded, %d were made", folded, s.count)
	}
	return w.environment.checkRows(ctx, held)
}
