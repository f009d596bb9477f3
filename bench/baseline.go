package main

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"github.com/holdfast/holdfast/bench/baselines"
)

// errEnough ends a caller early, without an error of the run.
var errEnough = errors.New("enough")

// callers lets n callers hold one unit after the other for the given time. Only
// answered holds count; they are committed.
func callers(ctx context.Context, n int, long time.Duration, hold func(ctx context.Context, caller int) error) (sample, error) {
	latencies := make([][]time.Duration, n)
	began := time.Now()
	g, ctx := errgroup.WithContext(ctx)
	for i := range n {
		g.Go(func() error {
			for {
				asked := time.Now()
				if asked.Sub(began) >= long {
					return nil
				}
				if err := hold(ctx, i); errors.Is(err, errEnough) {
					return nil
				} else if err != nil {
					return err
				}
				latencies[i] = append(latencies[i], time.Since(asked))
			}
		})
	}
	if err := g.Wait(); err != nil {
		return sample{}, err
	}
	elapsed := time.Since(began)
	all := slices.Concat(latencies...)
	return sample{count: int64(len(all)), elapsed: elapsed, p99: quantile(all, 0.99)}, nil
}

// quantile sorts the latencies.
func quantile(latencies []time.Duration, q float64) time.Duration {
	if len(latencies) == 0 {
		return 0
	}
	slices.Sort(latencies)
	return latencies[min(int(q*float64(len(latencies))), len(latencies)-1)]
}

// baseline is a contender that its callers call directly, over a separate pool.
type baseline struct {
	name, what     string
	expected       float64
	conns, callers int
	shop           baselines.Shop
	make           func(*pgxpool.Pool) baselines.Holder
}

// contender makes the baseline a contender on the environment's server.
func (r *baseline) contender(ctx context.Context, g *environment) (*contender, error) {
	db, err := g.open(ctx, r.conns)
	if err != nil {
		return nil, err
	}
	holder := r.make(db)
	shop := r.shop
	shop.TenantID = g.tenant
	choose := anyOf(shop.Variants)
	return &contender{
		name: r.name, what: r.what, expected: r.expected,
		prepare: func(ctx context.Context) error { return baselines.Prepare(ctx, g.db, shop) },
		run: func(ctx context.Context, long time.Duration) (sample, error) {
			stop := start(ctx, holder)
			defer stop()
			return callers(ctx, r.callers, long, func(ctx context.Context, _ int) error {
				return holder.Hold(ctx, baselines.Request{
					TenantID: g.tenant, HoldID: newID(), CartID: cartID(), VariantID: choose(), Quantity: 1,
				})
			})
		},
		check: func(ctx context.Context, s sample) error { return baselines.Check(ctx, g.db, s.count) },
	}, nil
}

// start runs the background loop of a holder that has one.
func start(ctx context.Context, holder baselines.Holder) (stop func()) {
	runner, ok := holder.(interface{ Run(ctx context.Context) })
	if !ok {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() { runner.Run(ctx) })
	return func() { cancel(); running.Wait() }
}

// Makers of the baselines.
func transaction(db *pgxpool.Pool) baselines.Holder     { return &baselines.Transaction{DB: db} }
func pipelined(db *pgxpool.Pool) baselines.Holder       { return &baselines.Pipelined{DB: db} }
func statement(db *pgxpool.Pool) baselines.Holder       { return &baselines.Statement{DB: db} }
func selectForUpdate(db *pgxpool.Pool) baselines.Holder { return &baselines.SelectForUpdate{DB: db} }
func unitRows(db *pgxpool.Pool) baselines.Holder        { return &baselines.UnitRows{DB: db} }
func microBatch(db *pgxpool.Pool) baselines.Holder      { return baselines.NewMicroBatch(db) }
