package queues

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/inventory"
	"github.com/holdfast/holdfast/requests"
)

// CarefulConfig bounds the careful way. The zero value of a field is its default.
type CarefulConfig struct {
	// AttemptsMax is how often a row that fails by itself is tried; default 5.
	AttemptsMax int
	// Backoff is the wait after the first attempt, doubled after each; default 500 ms, at most BackoffMax, default 10 s.
	Backoff, BackoffMax time.Duration
	// ClaimFor is how long a claim lasts before somebody else may take the row; default 15 s.
	ClaimFor time.Duration
}

// backoff is the wait after the given number of attempts.
func (c CarefulConfig) backoff(attempts int16) time.Duration {
	wait := c.Backoff
	for range attempts - 1 {
		if wait *= 2; wait >= c.BackoffMax {
			return c.BackoffMax
		}
	}
	return wait
}

// errNotOurs says that somebody else has claimed the row since.
var errNotOurs = errors.New("queues: the claim is not ours any more")

// begin claims a row that failed by itself visibly, and tries it alone.
func (d *Drain) begin(ctx context.Context, failed requests.Request) (Report, error) {
	claimed, err := requests.MarkProcessing(ctx, d.db, failed.Ref(), d.config.Careful.ClaimFor)
	if err != nil {
		return Report{}, err
	}
	return d.attempt(ctx, claimed)
}

// RunCareful tries up to limit processing rows again whose claim has lapsed: their backoff is over, or who had them died.
// It claims each just before it tries it, so that no claim lapses in a line, and an outage costs one row an attempt at most.
// While the lane's breaker is open it tries one row.
func (d *Drain) RunCareful(ctx context.Context, limit int) (total Report, err error) {
	if d.breaker.broken() {
		limit = 1
	}
	for range limit {
		claimed, err := requests.Reclaim(ctx, d.db, d.lane, 1, d.config.Careful.ClaimFor)
		if err != nil || len(claimed) == 0 {
			return total, err
		}
		report, err := d.attempt(ctx, claimed)
		total.add(report)
		if err != nil {
			return total, err
		}
	}
	total.More = true
	return total, nil
}

// attempt decides each claimed row in a transaction of its own, guarded by its claim's epoch. Only errors of the row itself
// count and end it. After an outage, and while a breaker of it is open, the attempt does not count; if even that cannot be
// written, the claim lapses.
func (d *Drain) attempt(ctx context.Context, claimed []requests.Request) (total Report, err error) {
	for _, r := range claimed {
		report, failure := d.alone(ctx, r)
		if failure == nil {
			d.breaker.forget(r.RequestID)
			report.Careful = 1
			total.add(report)
			continue
		}
		switch {
		case errors.Is(failure, errNotOurs):
		case !isRowsFault(ctx, failure):
			d.giveBack(ctx, r)
			return total, failure
		case !d.failed(ctx, r, report, failure):
			d.giveBack(ctx, r)
		case int(r.Attempts) >= d.config.Careful.AttemptsMax:
			ended, err := d.end(ctx, r, failure)
			if err != nil {
				return total, err
			}
			total.add(ended)
		default:
			if err := requests.Postpone(ctx, d.db, r, d.config.Careful.backoff(r.Attempts)); err != nil {
				return total, err
			}
		}
		total.Careful++
	}
	return total, nil
}

// end ends a request that used up its attempts as failed, or gives it back if its error may be one that hits all requests.
func (d *Drain) end(ctx context.Context, r requests.Request, failure error) (Report, error) {
	ends, err := d.givesUp(ctx, r)
	if err != nil {
		return Report{}, err
	}
	if !ends {
		d.giveBack(ctx, r)
		return Report{}, nil
	}
	d.log.ErrorContext(ctx, "a request failed every attempt", "request_id", r.RequestID, "attempts", r.Attempts, "error", failure)
	if err := d.giveUp(ctx, r); err != nil && !errors.Is(err, errNotOurs) {
		return Report{}, err
	}
	d.breaker.forget(r.RequestID)
	return Report{Claimed: 1, Rejected: 1}, nil
}

// giveBack makes an attempt that an outage ended no attempt.
func (d *Drain) giveBack(ctx context.Context, r requests.Request) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), giveBackTimeout)
	defer cancel()
	if err := requests.GiveBack(ctx, d.db, r, d.config.Careful.Backoff); err != nil {
		d.log.WarnContext(ctx, "a request could not be given back; its claim lapses", "request_id", r.RequestID, "error", err)
	}
}

// giveBackTimeout is short, because it may come out of the time that a process has to stop.
const giveBackTimeout = time.Second

// alone decides one claimed row, making room for it first if need be, as long as its claim lasts. With an error, the report
// is of what would have been written.
func (d *Drain) alone(ctx context.Context, r requests.Request) (report Report, err error) {
	for until := time.Now().Add(d.config.Careful.ClaimFor); ; {
		report, err = d.aloneOnce(ctx, r)
		var backlog *inventory.BacklogError
		if !errors.As(err, &backlog) || time.Now().After(until) {
			return report, err
		}
		if err := d.makeRoom(ctx, backlog.Variant); err != nil {
			return Report{}, err
		}
	}
}

func (d *Drain) aloneOnce(ctx context.Context, r requests.Request) (Report, error) {
	var report Report
	err := d.guarded(ctx, r, func(ctx context.Context, tx pgx.Tx, b *pgx.Batch, now time.Time) error {
		report = Report{}
		_, err := d.decide(ctx, tx, b, []requests.Request{r}, now, inventory.HoldTx, &report)
		return err
	})
	if err == nil {
		d.committed(ctx, []requests.Request{r}, report.outcomes)
	}
	return report, err
}

// giveUp ends one claimed row as failed, reason internal_error.
func (d *Drain) giveUp(ctx context.Context, r requests.Request) error {
	failed, reasons := []requests.Request{r}, []requests.Reason{requests.InternalError}
	var o *outcomes
	err := d.guarded(ctx, r, func(_ context.Context, _ pgx.Tx, b *pgx.Batch, now time.Time) error {
		requests.QueueFinish(b, failed, reasons, now)
		o = outcomesOf(d.lane, failed, reasons, now)
		return nil
	})
	if err == nil {
		o.decided, o.reasons = nil, nil // that it is given up proves nothing to the breaker
		d.committed(ctx, failed, o)
	}
	return err
}

// guarded runs fn and the batch it fills under the row's lock, if the claim is still ours. fn gets the transaction's own
// context, which ends in time.
func (d *Drain) guarded(ctx context.Context, r requests.Request, fn func(context.Context, pgx.Tx, *pgx.Batch, time.Time) error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fromPanic(p)
		}
	}()
	ctx, cancel := context.WithTimeout(ctx, d.config.TransactionTimeout)
	defer cancel()
	err = pgx.BeginFunc(ctx, d.db, func(tx pgx.Tx) error {
		ours, err := requests.LockClaimTx(ctx, tx, r)
		if err != nil {
			return err
		}
		if len(ours) == 0 {
			return errNotOurs
		}
		b := &pgx.Batch{}
		if err := fn(ctx, tx, b, r.UpdatedAt); err != nil {
			return err
		}
		return tx.SendBatch(ctx, b).Close()
	})
	return err
}
