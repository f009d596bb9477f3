package queues

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

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
func (d *Drain) RunCareful(ctx context.Context, limit int) (Report, error) {
	claimed, err := requests.Reclaim(ctx, d.db, d.lane, limit, d.config.Careful.ClaimFor)
	if err != nil {
		return Report{}, err
	}
	report, err := d.attempt(ctx, claimed)
	report.More = len(claimed) == limit
	return report, err
}

// attempt does each claimed row alone, in a transaction of its own, guarded by its claim's epoch. Only errors of the row
// itself end it; an outage leaves the claim to lapse.
func (d *Drain) attempt(ctx context.Context, claimed []requests.Request) (total Report, err error) {
	for _, r := range claimed {
		report, failure := d.alone(ctx, r)
		switch {
		case failure == nil, errors.Is(failure, errNotOurs):
		case !isRowsFault(ctx, failure):
			return total, failure
		case int(r.Attempts) >= d.config.Careful.AttemptsMax:
			d.log.ErrorContext(ctx, "a request failed every attempt", "request_id", r.RequestID, "attempts", r.Attempts, "error", failure)
			if err := d.giveUp(ctx, r); err != nil && !errors.Is(err, errNotOurs) {
				return total, err
			}
			report = Report{Claimed: 1, Rejected: 1}
		default:
			if err := requests.Postpone(ctx, d.db, r, d.config.Careful.backoff(r.Attempts)); err != nil {
				return total, err
			}
		}
		report.Careful = 1
		total.add(report)
	}
	return total, nil
}

// alone decides one claimed row.
func (d *Drain) alone(ctx context.Context, r requests.Request) (Report, error) {
	var report Report
	err := d.guarded(ctx, r, func(tx pgx.Tx, b *pgx.Batch, now time.Time) error {
		report = Report{}
		return d.decide(ctx, tx, b, []requests.Request{r}, now, &report)
	})
	if err != nil {
		return Report{}, err
	}
	return report, nil
}

// giveUp ends one claimed row as failed, reason internal_error.
func (d *Drain) giveUp(ctx context.Context, r requests.Request) error {
	return d.guarded(ctx, r, func(_ pgx.Tx, b *pgx.Batch, now time.Time) error {
		requests.QueueFinish(b, []requests.Request{r}, []requests.Reason{requests.InternalError}, now)
		return nil
	})
}

// guarded runs fn and the batch it fills under the row's lock, if the claim is still ours.
func (d *Drain) guarded(ctx context.Context, r requests.Request, fn func(pgx.Tx, *pgx.Batch, time.Time) error) error {
	ctx, cancel := context.WithTimeout(ctx, d.config.TransactionTimeout)
	defer cancel()
	err := pgx.BeginFunc(ctx, d.db, func(tx pgx.Tx) error {
		ours, err := requests.LockClaimTx(ctx, tx, r)
		if err != nil {
			return err
		}
		if len(ours) == 0 {
			return errNotOurs
		}
		b := &pgx.Batch{}
		if err := fn(tx, b, r.UpdatedAt); err != nil {
			return err
		}
		return tx.SendBatch(ctx, b).Close()
	})
	if err == nil {
		d.announce(ctx, []requests.Request{r})
	}
	return err
}
