package queues

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/internal/inventory"
	"github.com/holdfast/holdfast/internal/pg"
	"github.com/holdfast/holdfast/internal/requestrows"
	"github.com/holdfast/holdfast/internal/sleep"
	"github.com/holdfast/holdfast/requests"
)

// Units that were freed or added are offered to the requests that wait in line
// for them. While requests wait, each process polls for such units many times a
// second, so no call that frees units has to notify it, and a hold that lapses is
// found too. Otherwise it polls each tick.

const (
	// offerEvery is how often a process polls while requests wait. With many waiting
	// lists it polls less often: for one part in offerShare of its time.
	offerEvery = 50 * time.Millisecond
	offerShare = 20
	// offerLockTimeout bounds the wait for a lock of an offer. It is tried again
	// at the next poll.
	offerLockTimeout = "200ms"
)

// followOffers offers units until ctx ends. Its transactions end when work does.
func (l *Lane) followOffers(ctx, work context.Context) {
	for wait := time.Duration(0); sleep.For(ctx, wait) == nil; {
		report, lines, look, err := l.offer(work)
		wait = l.config.TickEvery
		switch {
		case err != nil:
			if ctx.Err() == nil {
				l.log.WarnContext(ctx, "units were not offered to the requests in line; the next poll tries again", "error", err)
			}
		case report.Claimed > 0:
			wait = 0 // there may be more
		case lines > 0:
			wait = min(max(offerEvery, offerShare*look), wait)
		}
		if report.Claimed > 0 {
			signal(l.changed)
		}
	}
}

// offer offers what is free to the requests that wait in line, and returns how
// many waiting lists there were, and how long the poll took.
func (l *Lane) offer(ctx context.Context) (total Report, lines int, look time.Duration, err error) {
	began := time.Now()
	reading, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	variants, lines, err := inventory.Offerable(reading, l.drain.db)
	if err != nil {
		return total, lines, look, err
	}
	look = time.Since(began)
	rand.Shuffle(len(variants), func(i, j int) { //nolint:gosec // other processes begin with other variants
		variants[i], variants[j] = variants[j], variants[i]
	})
	for _, variant := range variants {
		report, offering := l.drain.offerTo(ctx, variant)
		total.add(report)
		err = errors.Join(err, offering)
		if ctx.Err() != nil {
			break
		}
	}
	total.More = total.Claimed > 0
	l.drain.decided.Add(int64(total.Claimed))
	return total, lines, look, err
}

// offerTo offers what is free of a variant, as far as one transaction goes. If the
// transaction fails on data, the next one is half its size; a request that fails
// on its own goes to isolated retry.
func (d *Drain) offerTo(ctx context.Context, variant inventory.Ref) (Report, error) {
	skipLocked := false
	for limit := d.config.Batch; ; {
		claimed, report, err := d.offerOnce(ctx, variant, limit, skipLocked)
		var backlog *inventory.BacklogError
		switch {
		case err == nil:
			return report, nil
		case errors.As(err, &backlog):
			return Report{}, d.expireBacklog(ctx, backlog.Variant)
		case pg.IsLockTimeout(err) && !skipLocked:
			skipLocked = true // a request that stays locked is passed
		case pg.IsLockTimeout(err), pg.IsRetryable(err):
			return Report{}, nil
		case !isRowError(ctx, err):
			return Report{}, fmt.Errorf("offer variant %s: %w", variant.VariantID, err)
		case len(claimed) > 1:
			d.log.WarnContext(ctx, "an offer failed; the next one is half its size", "claimed", len(claimed), "error", err)
			limit = len(claimed) / 2
		case len(claimed) == 1:
			d.log.WarnContext(ctx, "a request in line failed individually and goes to isolated retry", "request_id", claimed[0].RequestID, "error", err)
			return d.isolate(ctx, claimed[0].Slot, claimed[0])
		default:
			return Report{}, fmt.Errorf("offer variant %s: %w", variant.VariantID, err)
		}
	}
}

// offerOnce claims and decides requests that wait in line for the variant, in one
// transaction.
func (d *Drain) offerOnce(ctx context.Context, variant inventory.Ref, limit int, skipLocked bool) (claimed []requests.Request, report Report, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fromPanic(p)
		}
	}()
	ctx, cancel := context.WithTimeout(ctx, d.config.TransactionTimeout)
	defer cancel()
	var decided []requests.Request
	err = pgx.BeginFunc(ctx, d.db, func(tx pgx.Tx) (err error) {
		if _, err := tx.Exec(ctx, lockTimeoutSQL, offerLockTimeout); err != nil {
			return err
		}
		claimed, err = requestrows.ClaimWaitingTx(ctx, tx, variant, limit, skipLocked)
		if err != nil || len(claimed) == 0 {
			return err
		}
		linkTo(ctx, claimed)
		b := &pgx.Batch{}
		decided, err = d.decide(ctx, tx, b, claimed, time.Time{}, inventory.HoldTx, requestrows.QueueFinish, &report)
		if err != nil {
			return err
		}
		inventory.QueueUnmarkLine(b, variant)
		return tx.SendBatch(ctx, b).Close()
	})
	if err != nil || len(decided) == 0 {
		return claimed, Report{}, err
	}
	d.committed(ctx, decided, report.outcomes)
	return claimed, report, nil
}
