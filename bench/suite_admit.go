package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/holdfast/holdfast/bench/baselines"
	"github.com/holdfast/holdfast/internal/admission"
	"github.com/holdfast/holdfast/internal/queues"
	"github.com/holdfast/holdfast/internal/requestrows"
	"github.com/holdfast/holdfast/internal/sleep"
)

const admitName = "holdfast, admission and drain"

// admit has 64 callers in this process. Each sends its next request when the
// last one is admitted. It counts decided requests until all are decided.
func (b *bench) admit(ctx context.Context) ([]Measure, error) {
	g, err := b.newEnvironment(ctx)
	if err != nil {
		return nil, err
	}
	defer g.close()
	one := baselines.Shop{Variants: 1, Stock: plenty}
	other := baseline{pipelinedName, "", 4480, 2, 64, one, pipelined}
	handwritten, err := other.contender(ctx, g)
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

func (b *bench) admitAndDecide(g *environment) *contender {
	return &contender{
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
		check: g.checkRows,
	}
}

// submit has callers admit one request after the other. A caller that is
// refused waits a moment and goes on. It ends when enough is closed, or after
// the given time.
func (g *environment) submit(ctx context.Context, n int, long time.Duration, enough <-chan struct{}) (s sample, err error) {
	return g.submitAll(ctx, n, long, enough, func() requestrows.Submission {
		return requestrows.Submission{TenantID: g.tenant, CartID: cartID(), VariantID: hotVariant, Quantity: 1}
	})
}

// submitAll is submit with submissions made by next.
func (g *environment) submitAll(ctx context.Context, n int, long time.Duration, enough <-chan struct{}, next func() requestrows.Submission) (s sample, err error) {
	config := g.intake
	config.Load = queues.NewLoad(g.admissions).Read
	in, err := admission.NewIntake(g.admissions, g.inserter, config)
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
			_, err := in.Submit(ctx, next())
			var refused *admission.RefusedError
			if !errors.As(err, &refused) {
				return err
			}
			if err := sleep.For(ctx, afterRefusal(refused)); err != nil {
				return err
			}
		}
	})
	stop()
	return s, errors.Join(err, line.Wait())
}

// afterRefusal is how long a refused caller waits. It is much shorter than
// Retry-After, so that the lane never becomes empty.
func afterRefusal(refused *admission.RefusedError) time.Duration {
	if refused.Why == admission.WhyDepth || refused.Why == admission.WhyAge {
		return refusedFor
	}
	return time.Millisecond
}

// work serves the lanes as a worker does, by wakes and ticks, until it is
// stopped.
func (g *environment) work(ctx context.Context) (stop func() error, err error) {
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

// decided waits until n units of the hot variant are reserved. Each poll reads
// one row.
func (g *environment) decided(ctx context.Context, n int64) error {
	return awaitReserved(ctx, g.db, g.tenant, n)
}
