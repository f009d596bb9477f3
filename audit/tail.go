package audit

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// Delivery is a run of records, in the order of their ids.
type Delivery struct {
	Records []Record

	sub          *Subscription
	from, to     int64
	checkpointed bool
}

// Handler takes a delivery. When it returns nil the subscription moves on; when it fails, the same is delivered again.
type Handler func(ctx context.Context, d *Delivery) error

// TailReport is what one look at the record did.
type TailReport struct {
	Delivered int
	// More says that there is more to deliver at once. Busy says that another process delivers.
	More, Busy bool
}

const readSQL = `
SELECT a.tenant_id, a.target_id, a.audit_id, a.created_at, a.action, a.actor_kind, coalesce(a.actor_id, ''),
       coalesce(a.correlation_id, ''), coalesce(a.reason, ''), a.before, a.after
FROM audit_log a
WHERE a.audit_id > $1 AND a.audit_id <= $2
ORDER BY a.audit_id
LIMIT $3`

// RunOnce delivers the next records, if there are any and no other process is at it. The handler runs outside of any
// transaction of the subscription's, so a slow one delays nobody else; its context ends with the lease.
//
// Errors: the handler's, after which the same records come again; ErrLeaseLost; ErrNoSubscription; why the database did
// not answer.
func (s *Subscription) RunOnce(ctx context.Context, handle Handler) (TailReport, error) {
	d, report, err := s.next(ctx)
	if err != nil {
		return report, err
	}
	return s.deliver(ctx, handle, d, report)
}

// deliver hands over what next has read, if there is anything, and moves the subscription past it.
func (s *Subscription) deliver(ctx context.Context, handle Handler, d *Delivery, report TailReport) (TailReport, error) {
	if d == nil {
		return report, nil
	}
	if len(d.Records) > 0 {
		if err := s.handle(ctx, handle, d); err != nil {
			return report, errors.Join(err, s.noteFailure(ctx, err))
		}
	}
	if !d.checkpointed {
		if err := pgx.BeginFunc(ctx, s.db, func(tx pgx.Tx) error { return d.CheckpointTx(ctx, tx) }); err != nil {
			return report, err
		}
	}
	report.Delivered = len(d.Records)
	return report, nil
}

// handle gives the handler as long as nobody else may deliver the same.
func (s *Subscription) handle(ctx context.Context, handle Handler, d *Delivery) error {
	ctx, cancel := context.WithTimeout(ctx, s.config.Lease)
	defer cancel()
	return handle(ctx, d)
}

// next takes the lease and reads what comes next; nil if there is nothing.
func (s *Subscription) next(ctx context.Context) (*Delivery, TailReport, error) {
	fail := func(err error) (*Delivery, TailReport, error) {
		return nil, TailReport{}, fmt.Errorf("read for subscription %q: %w", s.name, err)
	}
	m, err := s.take(ctx)
	if errors.Is(err, errBusy) {
		return nil, TailReport{Busy: true}, nil
	}
	if err != nil {
		return fail(err)
	}
	if m.position == m.settled {
		return nil, TailReport{}, nil
	}
	rows, err := s.db.Query(ctx, readSQL, m.position, m.settled, s.config.Batch)
	if err != nil {
		return fail(err)
	}
	records, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (r Record, err error) {
		return r, row.Scan(&r.TenantID, &r.TargetID, &r.AuditID, &r.CreatedAt, &r.Action, &r.Actor.Kind, &r.Actor.ID,
			&r.CorrelationID, &r.Reason, &r.Before, &r.After)
	})
	if err != nil {
		return fail(err)
	}
	d := &Delivery{Records: records, sub: s, from: m.position, to: m.settled}
	full := len(records) == s.config.Batch
	if full {
		d.to = records[len(records)-1].AuditID
	}
	return d, TailReport{More: full}, nil
}

const checkpointSQL = `
UPDATE audit_subscriptions
SET position = $4, failures = 0, last_error = NULL, delivered_at = clock_timestamp()
WHERE name = $1 AND lease_epoch = $2 AND position = $3`

// CheckpointTx moves the subscription past the delivery in the handler's own transaction: what the handler writes there
// happens exactly once. If the handler does not call it, the subscription moves on by itself after the handler returns.
//
// It is right at every isolation level: the update finds the row as this delivery left it, or fails. Above READ COMMITTED
// a lost lease can also be reported as a serialization failure (SQLSTATE 40001).
//
// Errors: ErrLeaseLost, then the transaction must be rolled back. If it is rolled back for another reason, the handler
// must return an error.
func (d *Delivery) CheckpointTx(ctx context.Context, tx pgx.Tx) error {
	tag, err := tx.Exec(ctx, checkpointSQL, d.sub.name, d.sub.epoch, d.from, d.to)
	if err != nil {
		return fmt.Errorf("checkpoint of subscription %q: %w", d.sub.name, err)
	}
	if tag.RowsAffected() == 0 {
		return fmt.Errorf("checkpoint of subscription %q: %w", d.sub.name, ErrLeaseLost)
	}
	d.checkpointed = true
	return nil
}

const noteFailureSQL = `
UPDATE audit_subscriptions
SET failures = failures + 1, last_error = left($3, 1000)
WHERE name = $1 AND lease_epoch = $2`

// noteFailure makes a failed delivery visible; see Subscriptions. One that failed because the program ends is none.
func (s *Subscription) noteFailure(ctx context.Context, failure error) error {
	if ctx.Err() != nil {
		return nil
	}
	text := strings.ReplaceAll(strings.ToValidUTF8(failure.Error(), "\uFFFD"), "\x00", "\uFFFD") // what a column can hold
	if _, err := s.db.Exec(ctx, noteFailureSQL, s.name, s.epoch, text); err != nil {
		return fmt.Errorf("note a failure of subscription %q: %w", s.name, err)
	}
	return nil
}

// Run delivers until ctx ends, and then gives the lease back and returns nil. After a failure it waits, longer each time,
// and delivers the same again; failed is called with each failure, and may be nil.
//
// Error: [ErrNoSubscription] once the subscription was removed, by [Unsubscribe] in this process or in another. It is not
// passed to failed, and nothing is delivered after it. The same error of a handler, about another subscription, is a
// failure as any other.
func (s *Subscription) Run(ctx context.Context, handle Handler, failed func(error)) error {
	defer s.release(ctx)
	p := pace{every: s.config.PollEvery, max: s.config.BackoffMax}
	for ctx.Err() == nil {
		d, report, err := s.next(ctx)
		if errors.Is(err, ErrNoSubscription) {
			return err
		}
		if err == nil {
			report, err = s.deliver(ctx, handle, d, report)
		}
		if err != nil && ctx.Err() == nil && failed != nil {
			failed(err)
		}
		timer := time.NewTimer(p.after(report, err))
		select {
		case <-ctx.Done():
		case <-timer.C:
		}
		timer.Stop()
	}
	return nil
}

// pace is how long Run waits: not at all after a delivery; after the nth failure since the last one 2ⁿ⁻¹ times as long as
// when there was nothing, up to max.
type pace struct {
	every, max time.Duration
	backoff    time.Duration // after the next failure; 0 is every
}

func (p *pace) after(report TailReport, err error) time.Duration {
	switch {
	case err != nil:
		wait := max(p.backoff, p.every)
		p.backoff = min(2*wait, p.max)
		return wait
	case report.Delivered > 0:
		p.backoff = 0
		return 0
	default:
		return p.every
	}
}
