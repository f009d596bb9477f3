package main

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/holdfast/holdfast/chaos/fault"
	"github.com/holdfast/holdfast/chaos/stage"
	"github.com/holdfast/holdfast/chaos/traffic"
	"github.com/holdfast/holdfast/chaos/wire"
)

// breaker carries out a plan.
type breaker struct {
	*theatre
	recovery  *traffic.Recovery
	upgrading *upgrade // nil: the storm is none

	// server is held by the fault that Postgres has as a whole, until it accepts connections again: it is slow to recover on
	// a busy machine, and a shutdown in the middle of a recovery can take for ever.
	server sync.Mutex

	mu     sync.Mutex
	active map[string]int // faults that last, by the API that feels them
	now    []string       // what lasts
	late   int            // programs that ended with an error in an outage
	// samples is how often the stocks were looked at.
	samples int
}

// run breaks what the plan says when it says so, and returns when all faults have ended. When ctx ends, it begins no more.
func (b *breaker) run(ctx context.Context, plan []fault.Fault) error {
	var faults sync.WaitGroup
	failed := make(chan error, len(plan))
	began := time.Now()
	for _, f := range plan {
		if wait(ctx, time.Until(began.Add(f.At))) != nil {
			break
		}
		faults.Go(func() {
			if err := b.inflict(context.WithoutCancel(ctx), f, began.Add(b.length)); err != nil {
				failed <- fmt.Errorf("%s: %w", f, err)
			}
		})
	}
	faults.Wait()
	select {
	case err := <-failed:
		return err
	default:
		return ctx.Err()
	}
}

// inflict carries out one fault from its beginning to its end. One that had to wait until the storm was over is left out.
func (b *breaker) inflict(ctx context.Context, f fault.Fault, until time.Time) error {
	if f.Kind.OnServer() {
		b.server.Lock()
		defer b.server.Unlock()
		if time.Now().After(until) {
			return nil
		}
	}
	end := b.line.Begin(f)
	b.begin(f)
	err := b.act(ctx, f)
	if err == nil && f.Kind.OnServer() {
		err = b.accepting(ctx)
	}
	end()
	b.end(f)
	return err
}

func (b *breaker) begin(f fault.Fault) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.now = append(b.now, string(f.Kind)+" "+f.Target)
	for _, api := range apis {
		if f.Hits(api) {
			b.active[api]++
			b.recovery.Began(api)
		}
	}
}

func (b *breaker) end(f fault.Fault) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, what := range b.now {
		if what == string(f.Kind)+" "+f.Target {
			b.now = append(b.now[:i], b.now[i+1:]...)
			break
		}
	}
	for _, api := range apis {
		if !f.Hits(api) {
			continue
		}
		if b.active[api]--; b.active[api] == 0 {
			b.recovery.Ended(api)
		}
	}
}

var apis = []string{"api-1", "api-2"}

// lasting names what lasts now.
func (b *breaker) lasting() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.now) == 0 {
		return "quiet"
	}
	return strings.Join(b.now, ", ")
}

var modes = map[fault.Kind]wire.Mode{
	fault.CutBefore: wire.Before, fault.CutMidway: wire.Midway, fault.CutUnheard: wire.Unheard, fault.Swallow: wire.Swallowed,
}

// delay is by how much a slow wire delays each piece.
const delay = 30 * time.Millisecond

func (b *breaker) act(ctx context.Context, f fault.Fault) error {
	p := b.programs[f.Target]
	switch f.Kind {
	case fault.Kill:
		if err := p.Kill(); err != nil {
			return err
		}
		_ = wait(ctx, f.For)
		return p.Start()
	case fault.Stop:
		if b.rollout {
			return b.replace(ctx, p, f.For)
		}
		if b.upgrading != nil {
			return b.renew(ctx, p, f.For)
		}
		if err := b.stop(p); err != nil {
			return err
		}
		_ = wait(ctx, f.For)
		return p.Start()
	case fault.Freeze:
		if frozen, err := p.Freeze(); err != nil || !frozen {
			return err
		}
		_ = wait(ctx, f.For)
		_, err := p.Thaw()
		return err
	case fault.CutBefore, fault.CutMidway, fault.CutUnheard, fault.Swallow:
		b.onRoutes(ctx, f, func(r *wire.Route) func() { return r.Cut(modes[f.Kind], f.Count) })
	case fault.Reset:
		b.onRoutes(ctx, f, func(r *wire.Route) func() { r.Reset(); return func() {} })
	case fault.Silence:
		b.onRoutes(ctx, f, (*wire.Route).Silence)
	case fault.Slow:
		b.onRoutes(ctx, f, func(r *wire.Route) func() { return r.Slow(delay) })
	case fault.RestartFast:
		return b.restart(ctx, f, syscall.SIGINT)
	case fault.RestartCrash:
		return b.restart(ctx, f, syscall.SIGQUIT)
	case fault.KillBackend:
		return b.killBackend(ctx)
	case fault.EndSessions:
		_, err := b.db.Exec(ctx, endSessionsSQL)
		return ignoreOutage(err)
	case fault.LockStock:
		return b.lockStock(ctx, f)
	case fault.Sweeps:
		return b.sweep(ctx)
	case fault.Migrate:
		return b.migrate(ctx, f)
	}
	return nil
}

// onRoutes breaks the target's routes for as long as the fault lasts.
func (b *breaker) onRoutes(ctx context.Context, f fault.Fault, act func(*wire.Route) (end func())) {
	var ends []func()
	for name, route := range b.routes {
		if f.Target == fault.All || f.Target == name {
			ends = append(ends, act(route))
		}
	}
	_ = wait(ctx, f.For)
	for _, end := range ends {
		end()
	}
}

// replace stops a program and starts it again after the time, as a rollout does: no call is sent to it from SIGTERM on until
// it is ready again.
func (b *breaker) replace(ctx context.Context, p *stage.Program, after time.Duration) error {
	b.closed[p.Name].Store(true)
	if err := b.stop(p); err != nil {
		return err
	}
	_ = wait(ctx, after)
	if err := p.Start(); err != nil {
		return err
	}
	client := &http.Client{Timeout: time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	for ask(ctx, client, p.Address) != nil && wait(ctx, 20*time.Millisecond) == nil {
	}
	b.closed[p.Name].Store(false)
	return nil
}

// stop asks a program to end. One that does not end in time, or ends with an error while it had its database, is a finding.
func (b *breaker) stop(p *stage.Program) error {
	began := time.Now()
	stopped, err := p.Stop()
	if err != nil {
		return err
	}
	troubled := b.troubled(p.Name, began)
	switch {
	case stopped.Late:
		b.findings.Add(ruleStop, "%s did not end within %.0fs of SIGTERM (other faults meanwhile: %t); it logged last:\n      %s",
			p.Name, stopped.Took.Seconds(), troubled, strings.Join(p.Log.Last(), "\n      "))
	case stopped.Code != 0 && !troubled:
		b.findings.Add(ruleStop, "%s ended with code %d, %.1fs after SIGTERM, and had its database all the time; it logged last:\n      %s",
			p.Name, stopped.Code, stopped.Took.Seconds(), strings.Join(p.Log.Last(), "\n      "))
	case stopped.Code != 0:
		b.mu.Lock()
		b.late++
		b.mu.Unlock()
	}
	return nil
}

// troubled reports whether a program has felt another fault than its stop since a moment, or shortly before.
func (b *breaker) troubled(name string, since time.Time) bool {
	for _, w := range b.line.Windows() {
		over := !w.End.IsZero() && w.End.Add(5*time.Second).Before(since)
		if !over && w.Kind != fault.Stop && (w.Hits(name) || w.Kind == fault.LockStock) {
			return true
		}
	}
	return false
}

func (b *breaker) restart(ctx context.Context, f fault.Fault, signal syscall.Signal) error {
	if err := b.postgres.Stop(signal); err != nil {
		return err
	}
	_ = wait(ctx, f.For)
	return b.postgres.Start(ctx)
}
