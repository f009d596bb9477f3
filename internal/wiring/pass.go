package wiring

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/riverqueue/river"
	"golang.org/x/sync/errgroup"

	"github.com/holdfast/holdfast/internal/sleep"
	"github.com/holdfast/holdfast/internal/telemetry"
)

// Pass is one bounded pass of maintenance. It may run twice at once, late, or
// not at all for a while: no promise depends on it.
type Pass struct {
	// Name is the pass in logs, and in the metric that counts the passes that
	// succeed.
	Name string
	// RunOnce runs the pass. more means that it reached its bound after it did
	// some work, so that the next one should begin at once.
	RunOnce func(ctx context.Context) (more bool, err error)
	// Schedule is when one of the processes runs the pass, by River or by
	// Passes.Run; nil for a pass with Every.
	Schedule river.PeriodicSchedule
	// Every is the pause between the passes that each process runs by
	// Passes.RunFrequent.
	Every time.Duration
}

// PassTimeout ends a pass with a schedule before River rescues its job, after
// 30 s, as the job of a dead worker. A pass with more work continues after the
// other passes have had their turn.
const PassTimeout = 10 * time.Second

// Passes is a table of passes and the log of their failures.
type Passes struct {
	Log   *slog.Logger
	Table []Pass
}

// Scheduled returns the passes that have a schedule.
func (p *Passes) Scheduled() []Pass {
	return slices.DeleteFunc(slices.Clone(p.Table), func(pass Pass) bool { return pass.Schedule == nil })
}

// Do runs one pass and counts it if it succeeds. A pass with a schedule ends
// after PassTimeout.
func (p *Passes) Do(ctx context.Context, pass Pass) (more bool, err error) {
	if pass.Schedule != nil {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, PassTimeout)
		defer cancel()
	}
	ctx, done := telemetry.Verb(ctx, "maintenance."+pass.Name)
	more, err = pass.RunOnce(ctx)
	done("", err)
	if err == nil {
		telemetry.JobSucceeded(ctx, pass.Name)
	}
	return more && err == nil, err
}

// Run runs the passes by their schedules until ctx ends: the first time at
// once, and at once again after a pass that has more work. Different passes run
// concurrently; each pass runs once at a time.
func (p *Passes) Run(ctx context.Context) error {
	var group errgroup.Group
	for _, pass := range p.Scheduled() {
		group.Go(func() error {
			p.repeat(ctx, pass, func() time.Duration { return time.Until(pass.Schedule.Next(time.Now())) })
			return nil
		})
	}
	return group.Wait()
}

// RunFrequent runs the passes with Every until ctx ends, and waits up to grace
// for the passes that then run.
func (p *Passes) RunFrequent(ctx context.Context, grace time.Duration) error {
	var running sync.WaitGroup
	for _, pass := range p.Table {
		if pass.Every > 0 {
			running.Go(func() { p.repeat(ctx, pass, func() time.Duration { return pass.Every }) })
		}
	}
	ended := make(chan struct{})
	go func() {
		running.Wait()
		close(ended)
	}()
	<-ctx.Done()
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-ended:
	case <-timer.C:
		p.Log.WarnContext(ctx, "a pass did not end in time; other workers continue its work")
	}
	return nil
}

// repeat runs a pass until ctx ends, with pauses, and without a pause after a
// pass that has more work.
func (p *Passes) repeat(ctx context.Context, pass Pass, pause func() time.Duration) {
	for ctx.Err() == nil {
		more, err := p.Do(ctx, pass)
		if err != nil && ctx.Err() == nil {
			p.Log.WarnContext(ctx, "a scheduled pass failed; the next one tries again", "job", pass.Name, "error", err)
		}
		if !more {
			_ = sleep.For(ctx, pause()) // or ctx ends
		}
	}
}
