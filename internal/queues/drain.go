package queues

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/internal/inventory"
	"github.com/holdfast/holdfast/internal/lanes"
	"github.com/holdfast/holdfast/internal/pg"
	"github.com/holdfast/holdfast/internal/requestrows"
	"github.com/holdfast/holdfast/internal/telemetry"
	"github.com/holdfast/holdfast/requests"
)

// decider decides requests of one lane, however they were claimed.
type decider struct {
	db      *pgxpool.Pool
	lane    lanes.Lane
	traits  traits
	config  DrainConfig
	decided atomic.Int64 // since the last recordRate
	log     *slog.Logger
}

// Drain claims and decides the requests of one lane.
type Drain struct {
	decider
	policy    ClaimPolicy
	batchSize batchSize
	breaker   breaker
	capped    atomic.Bool // the lane had a rate cap when a lease was last acquired
	locked    deferrals
}

// RunOnce claims the requests of the slot's stream, up to a full batch, and
// decides them in one transaction. After a batch that failed on data or ran out
// of time, the next one is half its size, so the rows before the bad one are
// decided in order. A request that fails individually goes to isolated retry.
// If several in a row fail with one error, their variant or the lane waits
// until a request is decided; see breaker. RunOnce may be called at any time,
// in any number of processes.
//
// Errors: lanes.ErrBusy, or the reason why the database did not answer. No
// request is lost by either.
func (d *Drain) RunOnce(ctx context.Context, slot int16) (Report, error) {
	limit, skip := d.breaker.claimLimit(slot, d.batchSize.next(slot, d.config.Batch))
	if limit == 0 {
		return Report{}, nil
	}
	if !d.capped.Load() {
		if report, err := d.drainUpTo(ctx, slot, limit, false, skip); !errors.Is(err, errCapped) {
			return report, err
		}
	}
	return d.withinCap(ctx, slot, limit, skip)
}

// drainUpTo is RunOnce for up to limit requests. It returns errCapped if the
// lane has a rate cap that has not granted them.
func (d *Drain) drainUpTo(ctx context.Context, slot int16, limit int, granted bool, skip []requestrows.Skip) (Report, error) {
	left, only := d.locked.next(slot)
	claimed, report, err := d.once(ctx, slot, limit, granted, append(skip, left...), only)
	if stock := lockedStock(err); stock != nil {
		return Report{More: true, locked: stock}, nil
	}
	if d.locked.waited(slot, only, len(claimed), err) || d.traits.waits && pg.IsLockTimeout(err) {
		return Report{More: true}, nil
	}
	rowError := isRowError(ctx, err)
	var backlog *inventory.BacklogError
	switch {
	case err == nil:
		d.batchSize.increase(slot, limit, d.config.Batch)
		report.More = report.More || only != nil || len(left) > 0 || len(claimed) == 0 && d.breaker.recordEmpty()
		return report, d.isolateAll(ctx, slot, report.scattered)
	case errors.As(err, &backlog):
		return Report{More: true}, d.expireBacklog(ctx, backlog.Variant)
	case len(claimed) > 1 && (rowError || errors.Is(err, context.DeadlineExceeded)):
		d.log.WarnContext(ctx, "a batch failed; the next one is half its size", "claimed", len(claimed), "error", err)
		d.batchSize.decrease(slot, len(claimed))
		return Report{More: true}, ctx.Err()
	case len(claimed) == 1 && rowError:
		d.log.WarnContext(ctx, "a request failed individually and goes to isolated retry", "request_id", claimed[0].RequestID, "error", err)
		report, err := d.isolate(ctx, slot, claimed[0])
		report.More = true
		return report, err
	default:
		return Report{}, err
	}
}

// once runs one transaction: claim, lock, decide, write. After the commit it
// counts the finished requests and notifies waiters. It does not claim what is
// in skip. If only is not nil, it claims only that variant's requests,
// and waits for the lock of its stock.
func (d *Drain) once(ctx context.Context, slot int16, limit int, granted bool, skip []requestrows.Skip, only *inventory.Ref) (claimed []requests.Request, report Report, err error) {
	ctx, done := telemetry.Verb(ctx, "queues.drain")
	defer func() {
		if p := recover(); p != nil {
			err = fromPanic(p)
		}
		done(report.outcome(err), err)
	}()
	ctx, cancel := context.WithTimeout(ctx, d.config.TransactionTimeout)
	defer cancel()
	var lease Lease
	var decided []requests.Request
	err = pgx.BeginFunc(ctx, d.db, func(tx pgx.Tx) (err error) {
		lease, err = d.policy.AcquireTx(ctx, tx, lanes.Stream{Lane: d.lane, Slot: slot})
		if err != nil || lease.Paused {
			return err
		}
		lease.Skip, lease.Only = skip, only
		d.capped.Store(lease.RateCap != nil)
		if lease.RateCap != nil && !granted {
			return errCapped
		}
		claim, err := d.policy.ClaimTx(ctx, tx, lease, limit)
		if err != nil {
			return err
		}
		claimed = claim.Requests
		b := &pgx.Batch{}
		if len(claimed) > 0 {
			linkTo(ctx, claimed)
			together, err := d.splitScattered(ctx, tx, claimed, &report)
			if err != nil {
				return err
			}
			decided, err = d.decide(ctx, tx, b, together, lease.Now, d.holdFuncFor(only), requestrows.QueueFinish, &report)
			if err != nil {
				return err
			}
			d.locked.record(slot, report.left, decided)
		}
		if len(decided) < len(claimed) {
			claim.More, claim.InOrder = true, false // no mark passes a request that is left
		}
		report.Moving, report.More = lease.Moving, claim.More
		queueMark(b, &lease, &claim)
		d.policy.QueueCheckpoint(b, lease)
		return tx.SendBatch(ctx, b).Close()
	})
	if err != nil {
		return claimed, Report{}, fmt.Errorf("drain slot %d: %w", slot, err)
	}
	if lease.Behind > 0 {
		d.reportBehind(ctx, lease)
	}
	d.committed(ctx, decided, report.outcomes)
	return claimed, report, nil
}

// decide decides the claimed requests, adds the writes to b, and counts them in
// the report. It returns the requests that were decided, those that begin to
// wait in line included: all but those that depend on a row which another transaction has locked,
// and those in line that still come up short.
func (d *decider) decide(ctx context.Context, tx pgx.Tx, b *pgx.Batch, claimed []requests.Request, now time.Time, hold holdFunc, finish finishFunc, report *Report) (decided []requests.Request, err error) {
	if len(claimed) == 0 {
		return nil, nil
	}
	asks, several := d.holdRequests(claimed, now)
	holding, err := hold(ctx, tx, asks, d.config.Terms)
	if err != nil {
		return nil, err
	}
	outcomes := holding.Outcomes
	if several != nil {
		outcomes = several.outcomes(holding)
	}
	decided, reasons, waiting := d.readOutcomes(claimed, outcomes, report)
	if len(decided)+len(waiting) == 0 {
		return nil, nil
	}
	holding.Queue(b)
	if len(decided) > 0 {
		finish(b, decided, reasons, holding.Now)
	}
	requestrows.QueueWait(b, waiting, holding.Now)
	if several != nil {
		several.queueParts(b, holding)
	}
	report.Claimed = len(decided) + len(waiting)
	report.outcomes = outcomesOf(d.lane, decided, reasons, holding.Now)
	report.outcomes.holding = holding
	return slices.Concat(decided, waiting), nil
}
