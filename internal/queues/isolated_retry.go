package queues

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/internal/inventory"
	"github.com/holdfast/holdfast/internal/lanes"
	"github.com/holdfast/holdfast/internal/pg"
	"github.com/holdfast/holdfast/internal/requestrows"
	"github.com/holdfast/holdfast/internal/telemetry"
	"github.com/holdfast/holdfast/requests"
)

// RetryConfig bounds isolated retry. The zero value of a field is its
// default.
type RetryConfig struct {
	// AttemptsMax is how many times a request that fails individually is tried;
	// default 5.
	AttemptsMax int
	// Backoff is the wait after the first attempt, default 500 ms. It doubles
	// after each further attempt, up to BackoffMax, default 10 s.
	Backoff, BackoffMax time.Duration
	// ClaimFor is how long a claim lasts before another process may take the
	// request; default 15 s.
	ClaimFor time.Duration
}

func (c RetryConfig) withDefaults() (RetryConfig, error) {
	c.AttemptsMax = cmp.Or(c.AttemptsMax, 5)
	c.Backoff = cmp.Or(c.Backoff, 500*time.Millisecond)
	c.BackoffMax = cmp.Or(c.BackoffMax, 10*time.Second)
	c.ClaimFor = cmp.Or(c.ClaimFor, 15*time.Second)
	if c.AttemptsMax < 1 || c.Backoff <= 0 || c.BackoffMax < c.Backoff || c.ClaimFor <= 0 {
		return c, fmt.Errorf("want attempts_max (%d) ≥ 1, 0 < backoff (%s) ≤ backoff_max (%s), claim_for (%s) > 0",
			c.AttemptsMax, c.Backoff, c.BackoffMax, c.ClaimFor)
	}
	return c, nil
}

// backoff is the wait after the given number of attempts.
func (c RetryConfig) backoff(attempts int16) time.Duration {
	wait := c.Backoff
	for range attempts - 1 {
		wait *= 2
		if wait >= c.BackoffMax {
			return c.BackoffMax
		}
	}
	return wait
}

// errClaimLost means that another process has claimed the request since.
var errClaimLost = errors.New("queues: another process has claimed the request")

// errLocked means that the request depends on a hold which another transaction
// has locked.
var errLocked = errors.New("queues: another transaction has locked a hold")

// isolate begins the isolated retry of a request that failed individually at a
// slot: it claims the request visibly and decides it alone. For the breaker, the
// request belongs to that slot, and not to the one to which it was admitted
// before its variant moved.
func (d *Drain) isolate(ctx context.Context, slot int16, failed requests.Request) (Report, error) {
	claimed, err := requestrows.MarkProcessing(ctx, d.db, requestrows.RefOf(&failed), d.config.Retry.ClaimFor)
	if err != nil || len(claimed) == 0 {
		return Report{}, err
	}
	claimed[0].Slot = slot
	return d.attempt(ctx, claimed[0])
}

// RunRetries retries up to limit processing requests whose claim has lapsed:
// their backoff is over, or the process that claimed them died. It claims each
// request just before it tries it, so that no claim lapses while others are
// tried, and an outage costs at most one request an attempt. While the lane's
// breaker is open, it tries one request.
func (d *Drain) RunRetries(ctx context.Context, limit int) (total Report, err error) {
	if d.breaker.laneOpen() {
		limit = 1
	}
	for range limit {
		claimed, err := requestrows.Reclaim(ctx, d.db, d.lane, 1, d.config.Retry.ClaimFor)
		if err != nil || len(claimed) == 0 {
			return total, err
		}
		report, err := d.attempt(ctx, claimed[0])
		total.add(report)
		if err != nil {
			return total, err
		}
	}
	total.More = true
	return total, nil
}

// attempt decides a claimed request, guarded by the epoch of its claim. Only
// errors of the request itself count as attempts and end it. An attempt does
// not count after an outage, while another transaction has locked a hold on
// which it depends, or while a breaker is open and the request is not too old; one
// that may wait in line never is. If even that cannot be written, the claim lapses.
func (d *Drain) attempt(ctx context.Context, r requests.Request) (report Report, err error) {
	decided, failure := d.decideOne(ctx, r)
	switch {
	case failure == nil:
		d.breaker.forget(r.RequestID)
		report.add(decided)
	case errors.Is(failure, errClaimLost):
	case errors.Is(failure, errLocked):
		d.requeue(ctx, r)
	case !isRowError(ctx, failure):
		d.requeue(ctx, r)
		return Report{}, failure
	case !d.recordFailure(ctx, r, decided, failure) && (r.Kind == requests.Wait || !d.isTooOld(&r, r.UpdatedAt)):
		d.requeue(ctx, r)
	case int(r.Attempts) >= d.config.Retry.AttemptsMax && r.OpenParts == nil: // its parts may hold units
		report, err = d.end(ctx, r, failure)
	default:
		err = requestrows.Postpone(ctx, d.db, r, d.config.Retry.backoff(r.Attempts))
	}
	if err != nil {
		return Report{}, err
	}
	report.Retried = 1
	return report, nil
}

// end ends a request that used up its attempts as failed, or requeues it if its
// error may be one that fails all requests.
func (d *Drain) end(ctx context.Context, r requests.Request, failure error) (Report, error) {
	ends, err := d.endsAsFailed(ctx, r)
	if err != nil {
		return Report{}, err
	}
	if !ends {
		d.requeue(ctx, r)
		return Report{}, nil
	}
	d.log.ErrorContext(ctx, "a request failed every attempt", "request_id", r.RequestID, "attempts", r.Attempts, "error", failure)
	if err := d.fail(ctx, r); err != nil && !errors.Is(err, errClaimLost) {
		return Report{}, err
	}
	d.breaker.forget(r.RequestID)
	return Report{Claimed: 1, Rejected: 1}, nil
}

// requeue ends an attempt that an outage interrupted, without counting it.
func (d *Drain) requeue(ctx context.Context, r requests.Request) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), requeueTimeout)
	defer cancel()
	if err := requestrows.Requeue(ctx, d.db, r, d.config.Retry.Backoff); err != nil {
		d.log.WarnContext(ctx, "a request could not be requeued; its claim lapses", "request_id", r.RequestID, "error", err)
	}
}

// requeueTimeout is short, because a stopping process may wait for it.
const requeueTimeout = time.Second

// decideOne decides one claimed request. If the due holds of its variant must
// expire first, it expires them and tries again until the claim lapses. With an
// error, the report contains what would have been written.
func (d *Drain) decideOne(ctx context.Context, r requests.Request) (report Report, err error) {
	until := time.Now().Add(d.config.Retry.ClaimFor)
	for {
		report, err = d.decideOneOnce(ctx, r)
		var backlog *inventory.BacklogError
		if !errors.As(err, &backlog) || time.Now().After(until) {
			return report, err
		}
		if err := d.expireBacklog(ctx, backlog.Variant); err != nil {
			return Report{}, err
		}
	}
}

func (d *Drain) decideOneOnce(ctx context.Context, r requests.Request) (Report, error) {
	var report Report
	err := d.guarded(ctx, r, func(ctx context.Context, tx pgx.Tx, b *pgx.Batch, now time.Time) error {
		report = Report{}
		if scattered, err := d.isScattered(ctx, tx, r); err != nil || scattered {
			if err != nil {
				return err
			}
			return d.decideParts(ctx, tx, b, r, now, &report)
		}
		decided, err := d.decide(ctx, tx, b, []requests.Request{r}, now, holdAlone(r), requestrows.QueueFinish, &report)
		if err == nil && len(decided) == 0 {
			return errLocked
		}
		return err
	})
	switch {
	case err != nil:
	case len(report.streams) > 0:
		d.wake(ctx, report.streams)
	case report.outcomes != nil:
		d.committed(ctx, []requests.Request{r}, report.outcomes)
	}
	return report, err
}

// holdAlone returns how one request is decided. One that has a place in line keeps
// it.
func holdAlone(r requests.Request) holdFunc {
	if r.Kind != requests.Wait {
		return inventory.HoldTx
	}
	return func(ctx context.Context, tx pgx.Tx, asks []inventory.HoldRequest, terms inventory.Terms) (*inventory.Holding, error) {
		waits, err := requestrows.IsInLine(ctx, tx, r)
		if err != nil {
			return nil, err
		}
		if waits {
			asks[0].Offered, asks[0].Stale = true, false
		}
		return inventory.HoldTx(ctx, tx, asks, terms)
	}
}

// fail ends one claimed request as failed, with reason internal_error.
func (d *Drain) fail(ctx context.Context, r requests.Request) error {
	failed, reasons := []requests.Request{r}, []requests.Reason{requests.InternalError}
	var o *outcomes
	err := d.guarded(ctx, r, func(_ context.Context, _ pgx.Tx, b *pgx.Batch, now time.Time) error {
		requestrows.QueueFinish(b, failed, reasons, now)
		o = outcomesOf(d.lane, failed, reasons, now)
		return nil
	})
	if err == nil {
		o.decided, o.reasons = nil, nil // a request that ends this way proves nothing to the breaker
		d.committed(ctx, failed, o)
	}
	return err
}

// guarded runs fn, and the batch that fn fills, under the row's lock if the
// claim is still valid. The context that fn receives ends after
// TransactionTimeout.
func (d *Drain) guarded(ctx context.Context, r requests.Request, fn func(context.Context, pgx.Tx, *pgx.Batch, time.Time) error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fromPanic(p)
		}
	}()
	ctx, cancel := context.WithTimeout(ctx, d.config.TransactionTimeout)
	defer cancel()
	err = pgx.BeginFunc(ctx, d.db, func(tx pgx.Tx) error {
		locked, err := requestrows.LockClaimTx(ctx, tx, r)
		if err != nil {
			return err
		}
		if len(locked) == 0 {
			return errClaimLost
		}
		b := &pgx.Batch{}
		if err := fn(ctx, tx, b, r.UpdatedAt); err != nil {
			return err
		}
		return tx.SendBatch(ctx, b).Close()
	})
	return err
}

// isRowError reports whether a row of the transaction may have caused its
// failure: a poison request. An error of the database or its connection, a
// conflict, and due holds that must expire first prove nothing about the rows.
func isRowError(ctx context.Context, err error) bool {
	return err != nil && ctx.Err() == nil && !errors.Is(err, lanes.ErrBusy) && !errors.Is(err, context.DeadlineExceeded) &&
		!errors.As(err, new(*inventory.BacklogError)) && !pg.IsRetryable(err) && !pg.IsOutage(err)
}

// panicError is the error of a transaction that panicked and was rolled back.
// It counts as an error of a row: the request that causes the panic is
// isolated, and neither its lane nor the process stops.
type panicError struct {
	value any
	stack []byte
}

func fromPanic(p any) error { return &panicError{value: p, stack: debug.Stack()} }

func (e *panicError) Error() string { return fmt.Sprintf("panic: %v\n%s", e.value, e.stack) }

const (
	// backlogBatch is how many due holds one transaction expires.
	// backlogBatches is how many such transactions run before the drain tries
	// again.
	backlogBatch   = 1000
	backlogBatches = 10
)

// expireBacklog expires some of a variant's due holds in transactions of its
// own, so that the drain can go on. Those that are committed remain, even if it
// returns an error.
func (d *Drain) expireBacklog(ctx context.Context, variant inventory.Ref) error {
	ctx, cancel := context.WithTimeout(ctx, d.config.TransactionTimeout)
	defer cancel()
	for range backlogBatches {
		expired, err := inventory.ExpireVariant(ctx, d.db, variant, backlogBatch)
		telemetry.Expired(ctx, "drain", expired)
		if err != nil || expired < backlogBatch {
			return err
		}
	}
	return nil
}
