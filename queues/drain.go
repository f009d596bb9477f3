package queues

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/internal/pgerr"
	"github.com/holdfast/holdfast/internal/telemetry"
	"github.com/holdfast/holdfast/inventory"
	"github.com/holdfast/holdfast/requests"
)

// Drain decides the requests of one lane.
type Drain struct {
	db      *pgxpool.Pool
	lane    string
	policy  ClaimPolicy
	config  DrainConfig
	pace    pace
	breaker breaker
	capped  atomic.Bool          // the lane had a rate cap when a lease was last acquired
	due     *inventory.DueExpiry // nil: a batch ends only the due holds whose units it needs
	locked  *deferrals           // nil: a batch waits for the stocks that others have locked
	decided atomic.Int64         // since the last noteRate
	log     *slog.Logger
}

// RunOnce claims what the slot's stream has, up to a full batch, and decides it in one transaction. After a batch that
// failed on data, or ran out of its time, the next one is half its size, so the rows before the bad one are decided in
// order; a row that fails individually goes to isolated retry. Where several in a row do, with one error, their variant or the lane
// waits until one is decided; see breaker. It is safe at any time, in any number of processes.
//
// Errors: ErrBusy, or why the database did not answer. Nothing is lost by either.
func (d *Drain) RunOnce(ctx context.Context, slot int16) (Report, error) {
	limit, skip := d.breaker.claim(slot, d.pace.of(slot, d.config.Batch))
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

// drainUpTo is RunOnce for up to limit requests. Where the lane has a rate cap that has not granted them it is errCapped.
func (d *Drain) drainUpTo(ctx context.Context, slot int16, limit int, granted bool, skip []inventory.Ref) (Report, error) {
	left, only := d.locked.next(slot)
	claimed, report, err := d.once(ctx, slot, limit, granted, append(skip, left...), only)
	if d.locked.waited(slot, only, len(claimed), err) || d.due != nil && pgerr.IsLockTimeout(err) {
		return Report{More: true}, nil
	}
	fault, backlog := isRowsFault(ctx, err), (*inventory.BacklogError)(nil)
	switch {
	case err == nil:
		d.pace.passed(slot, limit, d.config.Batch)
		report.More = report.More || only != nil || len(left) > 0 || len(claimed) == 0 && d.breaker.empty()
		return report, nil
	case errors.As(err, &backlog):
		return Report{More: true}, d.makeRoom(ctx, backlog.Variant)
	case len(claimed) > 1 && (fault || errors.Is(err, context.DeadlineExceeded)):
		d.log.WarnContext(ctx, "a batch failed and is tried in halves", "claimed", len(claimed), "error", err)
		d.pace.failed(slot, len(claimed))
		return Report{More: true}, ctx.Err()
	case len(claimed) == 1 && fault:
		d.log.WarnContext(ctx, "a request failed by itself and goes the careful way", "request_id", claimed[0].RequestID, "error", err)
		report, err := d.begin(ctx, claimed[0])
		report.More = true
		return report, err
	default:
		return Report{}, err
	}
}

// once is one transaction: claim, lock, decide, write. After its commit the finished requests are announced and counted. It
// leaves the variants in skip, or claims those of only, if that is not nil, and waits for the lock of its stock.
func (d *Drain) once(ctx context.Context, slot int16, limit int, granted bool, skip []inventory.Ref, only *inventory.Ref) (claimed []requests.Request, report Report, err error) {
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
		if lease, err = d.policy.AcquireTx(ctx, tx, slot); err != nil || lease.Paused {
			return err
		}
		lease.Skip, lease.Only = skip, only
		if d.capped.Store(lease.RateCap != nil); lease.RateCap != nil && !granted {
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
			if decided, err = d.decide(ctx, tx, b, claimed, lease.Now, d.holdFor(only), &report); err != nil {
				return err
			}
		}
		report.Moving = lease.Moving
		report.More = claim.More || len(decided) < len(claimed)
		queueMark(b, d.lane, &lease, &claim)
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

// decide decides the claimed requests, adds to b all that is to be written, and counts it. It returns those that were
// decided: all but those whose stocks were locked and not waited for.
func (d *Drain) decide(ctx context.Context, tx pgx.Tx, b *pgx.Batch, claimed []requests.Request, now time.Time, hold holdFunc, report *Report) (decided []requests.Request, err error) {
	holding, err := hold(ctx, tx, d.asks(claimed, now), d.config.Terms)
	if err != nil {
		return nil, err
	}
	decided, reasons := d.read(claimed, holding.Verdicts, report)
	if len(decided) == 0 {
		return nil, nil
	}
	holding.Queue(b)
	requests.QueueFinish(b, decided, reasons, holding.Now)
	report.Claimed = len(decided)
	report.outcomes = outcomesOf(d.lane, decided, reasons, holding.Now)
	report.outcomes.holding = holding
	return decided, nil
}
