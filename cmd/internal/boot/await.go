package boot

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/holdfast/holdfast/internal/pgerr"
)

const (
	// retryAfter is the pause between two attempts of a step.
	retryAfter = 250 * time.Millisecond
	// attemptMax bounds one attempt of a step that a silent database would keep waiting.
	attemptMax = 5 * time.Second
	// attemptLeast is what a repeated attempt may take when the time is up.
	attemptLeast = time.Second
)

// patience is how long the steps of a program's start may still wait for the database, all together.
type patience struct {
	mu   sync.Mutex
	left time.Duration
}

// take subtracts d and reports whether anything was left before.
func (p *patience) take(d time.Duration) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.left <= 0 {
		return false
	}
	p.left -= d
	return true
}

// again is how long an attempt may take that is not the first: no longer than what is left.
func (p *patience) again() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return min(attemptMax, max(attemptLeast, p.left))
}

// await runs one step of a program's start, and runs it again while the database is unavailable. The steps of one
// program wait for DATABASE_WAIT_MAX in all: their failed attempts and the pauses between them count, and the step that
// exceeds it returns its last error. An attempt is cut off after attemptMax, a repeated one when the time is up, but not
// before attemptLeast. A step must be safe to repeat, also after a commit of unknown outcome.
//
// A standby counts as unavailable: during a failover it may be promoted within that time, or the name may lead to another
// server. Any other error ends the step at once: a wrong password, a missing database, pending migrations.
func (p *Program) await(ctx context.Context, step func(ctx context.Context) error) error {
	limit := func() time.Duration { return attemptMax }
	return p.awaitLong(ctx, func() error {
		attempt, cancel := context.WithTimeout(ctx, limit())
		defer cancel()
		limit = p.patience.again
		return step(attempt)
	})
}

// awaitLong is await for a step that bounds its attempts itself.
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
		case !p.patience.take(time.Since(attempt) + retryAfter):
			return err
		case !waiting:
			waiting = true
			p.Log.WarnContext(ctx, "the database is unavailable; the start waits for it",
				"wait_max", p.Config.Database.WaitMax.String(), "error", oneLine(err))
		}
		if sleep(ctx, retryAfter) != nil {
			return err
		}
	}
}

// isUnavailable reports whether the error is expected to pass without a change of the configuration: no connection, a
// lost one, a server that starts or stops, a standby that is to be promoted, too many connections, an object in use, an
// I/O error, a lost race for a lock. Of the other classes that pgerr.IsOutage knows, a wrong password, an unknown database
// and a missing table among them, waiting mends none.
func isUnavailable(err error) bool {
	if errors.Is(err, context.Canceled) {
		return false
	}
	if errors.Is(err, errStandby) {
		return true
	}
	code := pgerr.Code(err)
	if len(code) < 2 {
		return pgerr.IsOutage(err)
	}
	switch code[:2] {
	case "08", "25", "53", "55", "57", "58":
		return true
	}
	return pgerr.IsRetryable(err)
}
