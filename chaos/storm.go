package main

import (
	"context"
	"errors"
	"io"
	"strings"
	"time"

	"github.com/holdfast/holdfast/internal/chaos/check"
	"github.com/holdfast/holdfast/internal/chaos/stage"
	"github.com/holdfast/holdfast/internal/chaos/traffic"
	"github.com/holdfast/holdfast/internal/sleep"
)

const (
	// settleMax bounds the time until the calls that are open at the end of the
	// storm are answered.
	settleMax = 60 * time.Second
	// drainMax bounds the time until the remaining requests are decided after
	// that.
	drainMax    = 60 * time.Second
	sampleEvery = 250 * time.Millisecond
	// spotChecks is the number of final requests that are read from every API
	// at the end.
	spotChecks = 1000
)

// runStorm runs a storm and returns its report.
func runStorm(ctx context.Context, o options, stderr io.Writer) (_ *report, err error) {
	plan := o.plan()
	t, err := open(ctx, o, stderr)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, t.close()) }()
	shops, err := t.shops(ctx)
	if err != nil {
		return nil, err
	}
	calls := traffic.New(traffic.Config{Tenants: shops, APIs: t.apis(), Shoppers: o.shoppers, Seed: o.seed, Slowdown: o.slowdown, Findings: t.findings})
	if err := calls.Prepare(ctx); err != nil {
		return nil, err
	}
	r := &report{options: o, plan: plan, began: time.Now(), findings: t.findings}
	t.printf("the storm with seed %d begins: %d faults in %s", o.seed, len(plan), o.length)
	t.findings.Begin()
	t.postgres.Log.Forget() // what the programs gave up and tried again while they started
	b := &injector{harness: t, recovery: &calls.Recovery, active: make(map[string]int)}
	if o.upgrade != "" {
		b.upgrading = newUpgrade(calls)
	}
	if err := t.runTraffic(ctx, b, calls, plan); err != nil {
		return nil, err
	}
	r.storm = time.Since(r.began)
	if b.upgrading != nil {
		b.checkUpgrade()
	}
	if err := t.after(ctx, r, b, calls, shops); err != nil {
		return nil, err
	}
	if err := t.stopAll(b); err != nil {
		return nil, err
	}
	t.readLogs(r)
	if o.rollout || o.upgrade != "" {
		t.served(calls)
	}
	r.gather(t, b, calls)
	return r, nil
}

// served adds a finding if, in a rollout, more calls than allowed were not
// answered or were answered 503.
func (t *harness) served(calls *traffic.Traffic) {
	attempts, unserved := 0, 0
	for _, verb := range calls.Calls() {
		attempts += verb.Attempts
		for answer, n := range verb.Answers {
			if answer == "none" || strings.HasPrefix(answer, "503") {
				unserved += n
			}
		}
	}
	if 100*unserved > attempts {
		t.findings.Add(ruleServed, "%d of %d calls were not served", unserved, attempts)
	}
}

func (t *harness) apis() (list []*traffic.API) {
	for _, name := range apis {
		p := t.programs[name]
		closed := t.closed[name]
		list = append(list, &traffic.API{Name: name, Address: p.Address, Down: p.Down, Open: func() bool { return !closed.Load() }})
	}
	return list
}

// runTraffic runs the traffic and the injector while the storm lasts, and then
// waits until every call is settled.
func (t *harness) runTraffic(ctx context.Context, b *injector, calls *traffic.Traffic, plan []stage.Fault) error {
	calling, stopCalling := context.WithCancel(context.WithoutCancel(ctx))
	defer stopCalling()
	called := make(chan struct{})
	go func() {
		calls.Run(calling)
		close(called)
	}()
	watching, stopWatching := context.WithCancel(context.WithoutCancel(ctx))
	watched := make(chan struct{})
	go func() {
		t.watch(watching, b, calls)
		close(watched)
	}()
	storm, over := context.WithTimeout(ctx, t.length)
	defer over()
	broken := b.run(ctx, plan)
	<-storm.Done()
	calls.End()
	t.printf("the faults are over; waiting for the open calls")
	settle := time.AfterFunc(t.timeout(settleMax), stopCalling)
	defer settle.Stop()
	<-called
	stopWatching()
	<-watched
	return broken
}

// watch samples the stocks and prints the progress, until ctx ends.
func (t *harness) watch(ctx context.Context, b *injector, calls *traffic.Traffic) {
	began, reported := time.Now(), time.Now()
	for sleep.For(ctx, sampleEvery) == nil {
		for _, db := range t.dbs {
			if check.Sample(ctx, db, t.findings) {
				b.mu.Lock()
				b.samples++
				b.mu.Unlock()
			}
		}
		if time.Since(reported) < time.Second {
			continue
		}
		reported = time.Now()
		sent, acked, finished := calls.Record.Counts()
		_, _, worst := calls.Recovery.Sum()
		t.printf("%4.0fs  %3d faults  %6d sent  %6d acknowledged  %6d decided  worst add %.1fs  worst recovery %.1fs  violations %d  [%s]",
			time.Since(began).Seconds(), len(t.line.Windows()), sent, acked, finished, calls.WorstAdd().Seconds(), worst.Seconds(), t.findings.Count(), b.lasting())
	}
}

// after waits until no work is left and makes all checks.
func (t *harness) after(ctx context.Context, r *report, b *injector, calls *traffic.Traffic, shops []*traffic.Tenant) (err error) {
	if err := t.ready(ctx); err != nil {
		t.findings.Add(ruleReady, "%v", err)
	}
	began := time.Now()
	if err := t.drain(ctx); err != nil {
		return err
	}
	r.drained = time.Since(began)
	t.printf("decided after %.1fs; checking", r.drained.Seconds())
	r.reread = calls.RereadAll(ctx, spotChecks)
	r.Decisions = make(map[string]check.Decisions)
	for i, db := range t.dbs {
		check.Sample(ctx, db, t.findings)
		lanes, err := check.DecisionTimes(ctx, db, shops, b.locks)
		if err != nil {
			return err
		}
		for lane, times := range lanes {
			if t.cells > 0 {
				lane = t.databases()[i] + " " + lane
			}
			r.Decisions[lane] = times
		}
	}
	if t.cells > 0 {
		if out, err := t.command(ctx, newVersion, "holdfast", "cells", "verify"); err != nil {
			t.findings.Add(ruleCells, "%v: %s", err, out)
		}
	}
	r.Checked, err = check.All(ctx, t.dbs, calls.Record.Facts(), shops, t.findings)
	return err
}

// drain waits until every request is decided.
func (t *harness) drain(ctx context.Context) error {
	for deadline := time.Now().Add(t.timeout(drainMax)); ; {
		left, stuck, err := t.unfinished(ctx)
		if err != nil || left == 0 {
			return err
		}
		if time.Now().After(deadline) {
			t.findings.Add(ruleDrain, "%d requests are not decided %s after the storm, such as:\n      %s", left, t.timeout(drainMax), strings.Join(stuck, "\n      "))
			return nil
		}
		if err := sleep.For(ctx, 50*time.Millisecond); err != nil {
			return err
		}
	}
}

// unfinished counts the requests that are not decided, and describes some.
func (t *harness) unfinished(ctx context.Context) (left int, stuck []string, err error) {
	for _, db := range t.dbs {
		n, err := check.Unfinished(ctx, db)
		if err != nil {
			return 0, nil, err
		}
		if n > 0 {
			some, err := check.Stuck(ctx, db)
			if err != nil {
				return 0, nil, err
			}
			left, stuck = left+n, append(stuck, some...)
		}
	}
	return left, stuck, nil
}

// stopAll asks every program to end.
func (t *harness) stopAll(b *injector) error {
	for _, name := range stage.Programs {
		if err := b.stop(t.programs[name]); err != nil {
			return err
		}
	}
	return nil
}

// readLogs checks that faults explain the errors in the logs of Postgres and of
// the programs.
func (t *harness) readLogs(r *report) {
	r.errors = t.postgres.Log.Errors()
	unexplained := stage.Unexplained(r.errors, &t.line, t.slowdown)
	for _, e := range unexplained {
		t.findings.Add(ruleLog, "%s", e)
	}
	r.unexplained = stage.CountErrors(unexplained)
	faults := len(t.line.Windows())
	for _, name := range stage.Programs {
		v := t.programs[name].Log.Volume()
		for _, alarm := range v.Alarms {
			t.findings.Add(ruleCrash, "%s: %s", name, alarm)
		}
		if most := linesMax(faults, t.programs[name].Starts(), r.storm); v.Lines > most {
			t.findings.Add(ruleVolume, "%s logged %d lines, up to %d in one second; %d faults, %d starts and %.0fs allow for %d. Most of them: %s",
				name, v.Lines, v.Worst, faults, t.programs[name].Starts(), r.storm.Seconds(), most, most3(v.Counts))
		}
	}
}

// linesMax is the largest number of lines that a program may log: one per
// fault, some per start, and one per two seconds.
func linesMax(faults, starts int, storm time.Duration) int {
	return faults + 8*starts + int(storm.Seconds()/2)
}
