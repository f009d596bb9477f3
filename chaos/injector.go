package main

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/holdfast/holdfast/internal/chaos/check"
	"github.com/holdfast/holdfast/internal/chaos/stage"
	"github.com/holdfast/holdfast/internal/chaos/traffic"
	"github.com/holdfast/holdfast/internal/sleep"
)

// injector carries out a plan.
type injector struct {
	*harness
	recovery  *traffic.Recovery
	upgrading *upgrade // nil: there is no upgrade

	// server is locked by a fault of the whole Postgres server until the server
	// accepts connections again. A recovery is slow on a busy machine, and a
	// shutdown during a recovery can block for ever.
	server sync.Mutex

	// replacing is locked while a program is replaced: a rollout replaces one
	// after the other, however long each takes.
	replacing sync.Mutex

	// moving is locked while a tenant is moved: a move that is due meanwhile is left
	// out.
	moving sync.Mutex

	mu     sync.Mutex
	active map[string]int // active faults, by the API that they affect
	now    []string       // the active faults
	moved  int            // the number of moves of tenants
	late   int            // the number of programs that ended with an error in an outage
	// samples is the number of times that the stocks were read
	samples int
	locks   []check.Lock // of stocks, and of holds of their variants
}

// run carries out each fault of the plan at its time, and returns when all
// faults have ended. After ctx ends it begins no fault.
func (b *injector) run(ctx context.Context, plan []stage.Fault) error {
	var faults sync.WaitGroup
	failed := make(chan error, len(plan))
	began := time.Now()
	for _, f := range plan {
		if sleep.For(ctx, time.Until(began.Add(f.At))) != nil {
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

// inflict carries out one fault from its beginning to its end. A fault that
// could not begin before the end of the storm is left out.
func (b *injector) inflict(ctx context.Context, f stage.Fault, until time.Time) error {
	if f.Kind.OnServer() {
		b.server.Lock()
		defer b.server.Unlock()
		if time.Now().After(until) {
			return nil
		}
	}
	if f.Kind == stage.Move {
		if !b.moving.TryLock() {
			return nil
		}
		defer b.moving.Unlock()
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

func (b *injector) begin(f stage.Fault) {
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

func (b *injector) end(f stage.Fault) {
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

// lasting names the active faults.
func (b *injector) lasting() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.now) == 0 {
		return "quiet"
	}
	return strings.Join(b.now, ", ")
}

var modes = map[stage.Kind]stage.Mode{
	stage.CutBefore: stage.Before, stage.CutMidway: stage.Midway, stage.CutUnheard: stage.Unheard, stage.Swallow: stage.Swallowed,
}

// delay is the delay of each piece on a slow connection.
const delay = 30 * time.Millisecond

func (b *injector) act(ctx context.Context, f stage.Fault) error {
	p := b.programs[f.Target]
	switch f.Kind {
	case stage.Kill:
		if err := p.Kill(); err != nil {
			return err
		}
		_ = sleep.For(ctx, f.For)
		return p.Start()
	case stage.Stop:
		if b.rollout {
			return b.replace(ctx, p, f.For)
		}
		if b.upgrading != nil {
			return b.renew(ctx, p, f.For)
		}
		if err := b.stop(p); err != nil {
			return err
		}
		_ = sleep.For(ctx, f.For)
		return p.Start()
	case stage.Freeze:
		if frozen, err := p.Freeze(); err != nil || !frozen {
			return err
		}
		_ = sleep.For(ctx, f.For)
		_, err := p.Thaw()
		return err
	case stage.CutBefore, stage.CutMidway, stage.CutUnheard, stage.Swallow:
		b.onRoutes(ctx, f, func(r *stage.Route) func() { return r.Cut(modes[f.Kind], f.Count) })
	case stage.Reset:
		b.onRoutes(ctx, f, func(r *stage.Route) func() { r.Reset(); return func() {} })
	case stage.Silence:
		b.onRoutes(ctx, f, (*stage.Route).Silence)
	case stage.Slow:
		b.onRoutes(ctx, f, func(r *stage.Route) func() { return r.Slow(delay) })
	case stage.RestartFast:
		return b.restart(ctx, f, syscall.SIGINT)
	case stage.RestartCrash:
		return b.restart(ctx, f, syscall.SIGQUIT)
	case stage.KillBackend:
		return b.killBackend(ctx)
	case stage.EndSessions:
		_, err := b.db().Exec(ctx, endSessionsSQL)
		return ignoreOutage(err)
	case stage.LockStock:
		return b.lockStock(ctx, f)
	case stage.LockRows:
		return b.lockRows(ctx, f)
	case stage.Sweeps:
		return b.sweep(ctx)
	case stage.Migrate:
		return b.migrate(ctx, f)
	case stage.Move:
		return b.move(ctx)
	}
	return nil
}

// onRoutes breaks the target's routes while the fault lasts.
func (b *injector) onRoutes(ctx context.Context, f stage.Fault, act func(*stage.Route) (end func())) {
	var ends []func()
	for name, route := range b.routes {
		if f.Target == stage.All || f.Target == name {
			ends = append(ends, act(route))
		}
	}
	_ = sleep.For(ctx, f.For)
	for _, end := range ends {
		end()
	}
}

// replace stops a program and starts it again after the given time, as a
// rollout does. From SIGTERM until it is ready again, no call is sent to it.
func (b *injector) replace(ctx context.Context, p *stage.Program, after time.Duration) error {
	b.replacing.Lock()
	defer b.replacing.Unlock()
	b.closed[p.Name].Store(true)
	if err := b.stop(p); err != nil {
		return err
	}
	_ = sleep.For(ctx, after)
	if err := p.Start(); err != nil {
		return err
	}
	client := &http.Client{Timeout: time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	for ask(ctx, client, p.Address) != nil && sleep.For(ctx, 20*time.Millisecond) == nil {
	}
	b.closed[p.Name].Store(false)
	return nil
}

// stop sends SIGTERM to a program. It is a finding if the program does not end
// in time, or if it ends with an error although it had its database.
func (b *injector) stop(p *stage.Program) error {
	began := time.Now()
	stopped, err := p.Stop()
	if err != nil {
		return err
	}
	troubled := b.troubled(p.Name, began)
	switch {
	case stopped.Late:
		b.findings.Add(ruleStop, "%s did not end within %.0fs of SIGTERM (other faults meanwhile: %t); its last lines:\n      %s",
			p.Name, stopped.Took.Seconds(), troubled, strings.Join(p.Log.Last(), "\n      "))
	case stopped.Code != 0 && !troubled:
		b.findings.Add(ruleStop, "%s ended with code %d, %.1fs after SIGTERM, and had its database all the time; its last lines:\n      %s",
			p.Name, stopped.Code, stopped.Took.Seconds(), strings.Join(p.Log.Last(), "\n      "))
	case stopped.Code != 0:
		b.mu.Lock()
		b.late++
		b.mu.Unlock()
	}
	return nil
}

// troubled reports whether a program has had a fault other than its stop since
// the given moment, or shortly before it.
func (b *injector) troubled(name string, since time.Time) bool {
	for _, w := range b.line.Windows() {
		over := !w.End.IsZero() && w.End.Add(5*time.Second).Before(since)
		if !over && w.Kind != stage.Stop && (w.Hits(name) || w.Kind.OnRows()) {
			return true
		}
	}
	return false
}

func (b *injector) restart(ctx context.Context, f stage.Fault, signal syscall.Signal) error {
	if err := b.postgres.Stop(signal); err != nil {
		return err
	}
	_ = sleep.For(ctx, f.For)
	return b.postgres.Start(ctx)
}
