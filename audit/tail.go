package audit

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/internal/horizon"
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

const idleSQL = `
SELECT s.position = ids.last
FROM audit_subscriptions s
CROSS JOIN (SELECT ` + drawn + ` AS last FROM audit_log_audit_id_seq) ids
WHERE s.name = $1`

const lastDrawnSQL = `SELECT ` + drawn + ` FROM audit_log_audit_id_seq`

// leaseSQL takes or keeps the lease, and moves the mark up to which the record is settled. Every id up to next was drawn by
// a transaction below next_horizon; once all of those have ended, all rows up to next are visible or never will be. A
// horizon that lies ahead of our own id comes from the database that this one was restored from, and is taken anew.
const leaseSQL = `
UPDATE audit_subscriptions s
SET lease_epoch = CASE WHEN s.lease_epoch = $2 THEN s.lease_epoch ELSE s.lease_epoch + 1 END,
    lease_expires_at = clock_timestamp() + $3::interval,
    settled = CASE WHEN s.next_horizon <= ` + horizon.Settled + ` THEN s.next ELSE s.settled END,
    next = CASE WHEN s.next_horizon <= ` + horizon.Settled + ` OR s.next_horizon > ` + horizon.Own + ` THEN greatest($4, s.next) ELSE s.next END,
    next_horizon = CASE WHEN s.next_horizon <= ` + horizon.Settled + ` OR s.next_horizon > ` + horizon.Own + `
                        THEN ` + horizon.Own + ` ELSE s.next_horizon END
WHERE s.name = $1 AND (s.lease_epoch = $2 OR s.lease_expires_at <= clock_timestamp())
RETURNING s.lease_epoch, s.position, s.settled`

const readSQL = `
SELECT a.tenant_id, a.target_id, a.audit_id, a.created_at, a.action, a.actor_kind, coalesce(a.actor_id, ''),
       coalesce(a.correlation_id, ''), coalesce(a.reason, ''), a.before, a.after
FROM audit_log a
WHERE a.audit_id > $1 AND a.audit_id <= $2
ORDER BY a.audit_id
LIMIT $3`

// RunOnce delivers the next records, if there are any and no other process is at it. The handler runs outside of any
// transaction of the subscription's, so a slow one delays nobody else.
//
// Errors: the handler's, after which the same records come again; ErrLeaseLost; why the database did not answer.
func (s *Subscription) RunOnce(ctx context.Context, handle Handler) (TailReport, error) {
	d, report, err := s.next(ctx)
	if err != nil || report.Busy || d == nil {
		return report, err
	}
	if len(d.Records) > 0 {
		if err := handle(ctx, d); err != nil {
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

// next takes the lease and reads what comes next; nil if there is nothing.
func (s *Subscription) next(ctx context.Context) (*Delivery, TailReport, error) {
	fail := func(err error) (*Delivery, TailReport, error) {
		return nil, TailReport{}, fmt.Errorf("read for subscription %q: %w", s.name, err)
	}
	var idle bool
	if err := s.db.QueryRow(ctx, idleSQL, s.name).Scan(&idle); err != nil {
		return fail(err)
	}
	if idle {
		return nil, TailReport{}, nil
	}
	var position, settled int64
	err := pgx.BeginFunc(ctx, s.db, func(tx pgx.Tx) error {
		var last int64 // read before the transaction has an id
		if err := tx.QueryRow(ctx, lastDrawnSQL).Scan(&last); err != nil {
			return err
		}
		return tx.QueryRow(ctx, leaseSQL, s.name, s.epoch, s.config.Lease, last).Scan(&s.epoch, &position, &settled)
	})
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, TailReport{Busy: true}, nil
	}
	if err != nil {
		return fail(err)
	}
	if position == settled {
		return nil, TailReport{}, nil
	}
	rows, err := s.db.Query(ctx, readSQL, position, settled, s.config.Batch)
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
	d := &Delivery{Records: records, sub: s, from: position, to: settled}
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

// noteFailure makes a failed delivery visible; see Subscriptions.
func (s *Subscription) noteFailure(ctx context.Context, failure error) error {
	if _, err := s.db.Exec(ctx, noteFailureSQL, s.name, s.epoch, failure.Error()); err != nil {
		return fmt.Errorf("note a failure of subscription %q: %w", s.name, err)
	}
	return nil
}

// Run delivers until ctx ends. After a failure it waits, longer each time, and delivers the same again; failed is told of
// each, and may be nil.
func (s *Subscription) Run(ctx context.Context, handle Handler, failed func(error)) error {
	backoff := s.config.PollEvery
	for ctx.Err() == nil {
		report, err := s.RunOnce(ctx, handle)
		wait := s.config.PollEvery
		switch {
		case err != nil && ctx.Err() == nil:
			if failed != nil {
				failed(err)
			}
			wait = backoff
			backoff = min(2*backoff, s.config.BackoffMax)
		case report.Delivered > 0:
			backoff, wait = s.config.PollEvery, 0
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
		case <-timer.C:
		}
		timer.Stop()
	}
	return nil
}
