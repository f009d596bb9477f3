package boot

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/holdfast/holdfast/internal/pg"
	"github.com/holdfast/holdfast/internal/sleep"
)

const (
	// retryAfter is the pause between two attempts of a step.
	retryAfter = 250 * time.Millisecond
	// attemptMax bounds one attempt, so that a silent database does not keep it
	// waiting.
	attemptMax = 5 * time.Second
	// minAttempt is the least time for a repeated attempt when the budget is
	// spent.
	minAttempt = time.Second
)

// startBudget is how long all steps of a program's start together may still
// wait for the database.
type startBudget struct {
	mu   sync.Mutex
	left time.Duration
}

// spend subtracts d and reports whether anything was left before.
func (p *startBudget) spend(d time.Duration) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.left <= 0 {
		return false
	}
	p.left -= d
	return true
}

// retryLimit returns the limit for an attempt after the first: at most what is
// left.
func (p *startBudget) retryLimit() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return min(attemptMax, max(minAttempt, p.left))
}

// await runs one step of a program's start, and repeats it while the database
// is unavailable. All steps of one program wait for DATABASE_WAIT_MAX together:
// failed attempts and the pauses between them count, and the step that exceeds
// it returns its last error. An attempt is cut off after attemptMax, a repeated
// attempt when the budget is spent, but not before attemptLeast. A step must be
// safe to repeat, also after a commit of unknown outcome.
//
// A standby counts as unavailable: during a failover it may be promoted within
// that time, or the name may lead to another server. Any other error ends the
// step at once: a wrong password, a missing database, pending migrations.
func (p *Program) await(ctx context.Context, step func(ctx context.Context) error) error {
	limit := func() time.Duration { return attemptMax }
	return p.awaitLong(ctx, func() error {
		attempt, cancel := context.WithTimeout(ctx, limit())
		defer cancel()
		limit = p.startBudget.retryLimit
		return step(attempt)
	})
}

// awaitLong is await for a step that bounds its own attempts.
func (p *Program) awaitLong(ctx context.Context, step func() error) error {
	for began, waiting := time.Now(), false; ; {
		attempt := time.Now()
		err := step()
		switch {
		case err == nil && waiting:
			p.Log.InfoContext(ctx, "the database is available", "waited", time.Since(began).Round(time.Millisecond).String())
			return nil
		case !isUnavailable(err) || ctx.Err() != nil:
			return err
		case !p.startBudget.spend(time.Since(attempt) + retryAfter):
			return err
		case !waiting:
			waiting = true
			p.Log.WarnContext(ctx, "the database is unavailable; the start waits for it",
				"wait_max", p.Config.Database.WaitMax.String(), "error", oneLine(err))
		}
		if sleep.For(ctx, retryAfter) != nil {
			return err
		}
	}
}

// isUnavailable reports whether the error is expected to pass without a change
// of the configuration: no connection, a lost connection, a server that starts
// or stops, a standby before its promotion, too many connections, an object in
// use, an I/O error, a lost race for a lock. Waiting does not help with the
// other classes of pg.IsOutage, such as a wrong password, an unknown
// database or a missing table.
func isUnavailable(err error) bool {
	if errors.Is(err, context.Canceled) {
		return false
	}
	if errors.Is(err, errStandby) {
		return true
	}
	code := pg.Code(err)
	if len(code) < 2 {
		return pg.IsOutage(err)
	}
	switch code[:2] {
	case "08", "25", "53", "55", "57", "58":
		return true
	}
	return pg.IsRetryable(err)
}
