package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"github.com/holdfast/holdfast/bench/load"
	"github.com/holdfast/holdfast/internal/lanes"
	"github.com/holdfast/holdfast/internal/sleep"
	"github.com/holdfast/holdfast/internal/tenants"
)

const (
	// neighbourBacklog is how many requests of the neighbour are kept queued,
	// neighbourBacklogShort how many in a run without warm-up.
	neighbourBacklog, neighbourBacklogShort = 50_000, 1000
	// neighbourMin is the share of the backlog that must always be queued for
	// the measure to be valid.
	neighbourMin = 0.5
	// feeders are the connections that keep the backlog up.
	feeders = 2
)

// neighbour has one caller reserve a unit of a hot variant and wait for the
// outcome, again and again: alone, and while another tenant's hot variant
// always has a backlog.
func (b *bench) neighbour(ctx context.Context) ([]Measure, error) {
	return b.withDeployment(ctx, func(f *deployment) ([]Measure, error) { return b.neighbourOf(ctx, f) })
}

func (b *bench) neighbourOf(ctx context.Context, f *deployment) ([]Measure, error) {
	depth := int64(neighbourBacklog)
	if b.cold {
		depth = neighbourBacklogShort
	}
	q, err := newBacklog(ctx, f, depth)
	if err != nil {
		return nil, fmt.Errorf("make the neighbour: %w", err)
	}
	var aloneP99s, duringP99s, least []float64
	var late, refused int64
	for rep := b.first(); rep <= b.reps; rep++ {
		if err := b.checkpoint(ctx); err != nil {
			return nil, err
		}
		alone, err := f.callAlone(ctx, 2*b.long)
		if err != nil {
			return nil, err
		}
		concurrent, lowest, err := q.while(ctx, func(ctx context.Context) (*load.Result, error) { return f.callAlone(ctx, 2*b.long) })
		if err != nil {
			return nil, err
		}
		if err := f.checkRows(ctx, sample{}); err != nil {
			return nil, err
		}
		without, with := milliseconds(alone.Quantile(0.99)), milliseconds(concurrent.Quantile(0.99))
		b.progress("p99 %.1f ms alone, %.1f ms while a neighbour has %d queued or more", without, with, lowest)
		if rep > 0 {
			aloneP99s, duringP99s = append(aloneP99s, without), append(duringP99s, with)
			least = append(least, float64(lowest))
			late, refused = late+concurrent.Accepted-concurrent.Decided, refused+concurrent.Refused
		}
	}
	return []Measure{neighbourMeasure(depth, aloneP99s, duringP99s, least, late, refused)}, nil
}

// neighbourMeasure is the measure of the repetitions' p99s in ms. least are the
// smallest backlogs; late counts the calls that were not decided while their
// caller waited.
func neighbourMeasure(depth int64, aloneP99s, duringP99s, least []float64, late, refused int64) Measure {
	m := ratioOf("neighbour_p99", duringP99s, aloneP99s)
	m.note("ours and other in ms; the neighbour had %.0f of %d queued or more", slices.Min(least), depth)
	if late > 0 {
		m.note("%d calls were not decided in %d s", late, waitSeconds)
	}
	if refused > 0 {
		m.note("%d calls were refused", refused)
	}
	if slices.Min(least) < neighbourMin*float64(depth) {
		m.invalid("invalid: the neighbour's backlog was decided faster than it was kept up")
	}
	return m
}

// callAlone has one caller send its next request for the hot variant when the
// last one is decided.
func (f *deployment) callAlone(ctx context.Context, long time.Duration) (*load.Result, error) {
	target := f.target()
	target.Wait = waitSeconds
	r, err := load.Closed(ctx, target, 1, long, toHot)
	if err == nil && r.Accepted == 0 {
		err = errors.New("no request of the hot variant was accepted")
	}
	return r, err
}

// neighbourQueue is the backlog of another tenant's hot variant.
type neighbourQueue struct {
	deployment *deployment
	db         *pgxpool.Pool
	tenant     uuid.UUID
	slot       int16
	depth      int64
	sent       int64
}

// newBacklog creates the neighbour in the deployment's database: a tenant with
// one hot variant that has plenty of stock.
func newBacklog(ctx context.Context, f *deployment, depth int64) (*neighbourQueue, error) {
	tenant, err := tenants.Ensure(ctx, f.db, "neighbour")
	if err != nil {
		return nil, err
	}
	q := &neighbourQueue{deployment: f, db: f.db, tenant: tenant.TenantID, depth: depth}
	if _, err := f.db.Exec(ctx, fillStocksSQL, q.tenant, 1, plenty); err != nil {
		return nil, err
	}
	if err := lanes.Pin(ctx, f.db, f.inserter, q.tenant, hotVariant); err != nil {
		return nil, err
	}
	q.slot, err = f.arrived(ctx, q.tenant)
	return q, err
}

// queued is how many requests of the neighbour are not decided. Each decided
// one has reserved a unit.
func (q *neighbourQueue) queued(ctx context.Context) (int64, error) {
	decided, err := reservedOf(ctx, q.db, q.tenant)
	return q.sent - decided, err
}

// while fills the backlog, calls do, and refills the backlog until do returns.
// lowest is the smallest backlog meanwhile.
func (q *neighbourQueue) while(outer context.Context, do func(context.Context) (*load.Result, error)) (r *load.Result, lowest int64, err error) {
	if _, err := q.fill(outer); err != nil {
		return nil, 0, err
	}
	if err := q.deployment.wake(outer, lanes.Stream{Lane: lanes.Hot, Slot: q.slot}); err != nil {
		return nil, 0, err
	}
	done := make(chan struct{})
	g, ctx := errgroup.WithContext(outer)
	g.Go(func() (err error) {
		defer close(done)
		r, err = do(ctx)
		return err
	})
	lowest = q.depth
	g.Go(func() error {
		for {
			left, err := q.fill(ctx)
			if err != nil {
				return err
			}
			select {
			case <-done:
				return nil
			default:
			}
			lowest = min(lowest, left)
			if left == q.depth { // nothing was decided since
				if err := sleep.For(ctx, time.Millisecond); err != nil {
					return err
				}
			}
		}
	})
	err = g.Wait()
	return r, max(lowest, 0), err
}

// fill tops the backlog up and returns how many were queued before.
func (q *neighbourQueue) fill(ctx context.Context) (before int64, err error) {
	if before, err = q.queued(ctx); err != nil {
		return 0, err
	}
	missing := int(q.depth - before)
	var g errgroup.Group
	for i := range feeders {
		share := (missing + i) / feeders
		g.Go(func() error { return insertQueued(ctx, q.db, q.tenant, lanes.Hot, q.slot, share, toHot) })
	}
	if err := g.Wait(); err != nil {
		return 0, err
	}
	q.sent += int64(missing)
	return before, nil
}
