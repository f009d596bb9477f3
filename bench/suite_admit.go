package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/holdfast/holdfast/bench/baselines"
	"github.com/holdfast/holdfast/queues"
	"github.com/holdfast/holdfast/requests"
)

const admitName = "holdfast, admission and drain"

// admit has 64 callers in this process, who go on when their request is admitted; it counts what is decided, until the
// last one is.
func (b *bench) admit(ctx context.Context) ([]Measure, error) {
	g, err := b.newGround(ctx)
	if err != nil {
		return nil, err
	}
	defer g.close()
	one := baselines.Shop{Variants: 1, Stock: plenty}
	other := rival{pipelinedName, "", 4480, 2, 64, one, pipelined}
	handwritten, err := other.side(ctx, g)
	if err != nil {
		return nil, err
	}
	c, err := b.compare(ctx, b.admitAndDecide(g), handwritten, b.raw(g))
	if err != nil {
		return nil, err
	}
	b.plottedAs(c, admitName, "Holdfast, admission and drain, 64 callers", true)
	return []Measure{c.over("admit_and_decide_vs_handwritten", admitName, pipelinedName)}, nil
}

func (b *bench) admitAndDecide(g *ground) *side {
	return &side{
		name:    admitName,
		prepare: func(ctx context.Context) error { return g.reset(ctx, 1, true) },
		run: func(ctx context.Context, long time.Duration) (s sample, err error) {
			stop, err := g.work(ctx)
			if err != nil {
				return s, err
			}
			defer func() { err = errors.Join(err, stop()) }()
			began := time.Now()
			admitted, err := g.submit(ctx, 64, long, nil)
			if err != nil {
				return s, err
			}
			if err := g.decided(ctx, admitted.count); err != nil {
				return s, err
			}
			return sample{count: admitted.count, elapsed: time.Since(began), p99: admitted.p99}, nil
		},
		check: g.sound,
	}
}

// submit has callers admit one request after the other. A caller that is refused waits a moment and goes on. It ends when enough is closed, or after the given time.
func (g *ground) submit(ctx context.Context, n int, long time.Duration, enough <-chan struct{}) (s sample, err error) {
	config := g.intake
	config.Load = queues.NewLoad(g.admissions, config.DepthMax).Read
	in, err := requests.NewIntake(g.admissions, g.bell, config)
	if err != nil {
		return s, err
	}
	running, stop := context.WithCancel(ctx)
	defer stop()
	var line errgroup.Group
	line.Go(func() error { return in.Run(running) })
	s, err = callers(ctx, n, long, func(ctx context.Context, _ int) error {
		for {
			select {
			case <-enough:
				return errEnough
			default:
			}
			_, err := in.Submit(ctx, requests.Submission{TenantID: g.tenant, CartID: cartID(), VariantID: hotVariant, Quantity: 1})
			var refused *requests.RefusedError
			if !errors.As(err, &refused) {
				return err
			}
			if err := wait(ctx, afterRefusal(refused)); err != nil {
				return err
			}
		}
	})
	stop()
	return s, errors.Join(err, line.Wait())
}

// afterRefusal is how long a caller waits. Where much waits for its decision, it comes back long before Retry-After, so
// that the lane never runs dry.
func afterRefusal(refused *requests.RefusedError) time.Duration {
	if refused.Why == requests.WhyDepth || refused.Why == requests.WhyAge {
		return refusedFor
	}
	return time.Millisecond
}

// work serves the lanes as a worker does, by wakes and ticks, until stopped.
func (g *ground) work(ctx context.Context) (stop func() error, err error) {
	lanes := []*queues.Lane{g.hot, g.normal}
	client, err := queues.NewClient(g.db, slog.New(slog.DiscardHandler), lanes, queues.WorkerConfig{})
	if err != nil {
		return nil, err
	}
	if err := client.Start(ctx); err != nil {
		return nil, fmt.Errorf("start the River client: %w", err)
	}
	running, cancel := context.WithCancel(ctx)
	var ticks errgroup.Group
	for _, lane := range lanes {
		ticks.Go(func() error { return lane.Run(running) })
	}
	return func() error {
		err := client.Stop(ctx)
		cancel()
		return errors.Join(err, ticks.Wait())
	}, nil
}

// decided waits until n units of the hot variant are reserved, which is one look at one row.
func (g *ground) decided(ctx context.Context, n int64) error {
	return awaitReserved(ctx, g.db, g.tenant, n)
}
