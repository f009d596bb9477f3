package audit

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/internal/sleep"
)

// Delivery is a run of records, in the order of their ids.
type Delivery struct {
	Records []Record
	// More means that there is more to deliver at once.
	More bool

	sub          *Subscription
	from, to     int64
	checkpointed bool
}

type handler = func(ctx context.Context, d *Delivery) error

// TailReport is the result of one RunOnce.
type TailReport struct {
	Delivered int
	// More means that there is more to deliver at once. Busy means that another
	// process delivers.
	More, Busy bool
}

const readSQL = `
SELECT ` + recordColumns + `
FROM audit_log a
WHERE a.audit_id > $1 AND a.audit_id <= $2
ORDER BY a.audit_id
FETCH FIRST ($3) ROWS WITH TIES`

// RunOnce calls handle with the next records, if there are any and no other
// process is delivering. When handle returns nil, the subscription moves on.
// When it returns an error, the same records are delivered again. It runs
// outside of any transaction of the subscription, so a slow handler delays no
// other reader or writer. Its context ends with the lease.
//
// Errors: the handler's, after which the same records are delivered again;
// ErrLeaseLost; ErrNoSubscription; ErrSequenceBehind; the database's.
func (s *Subscription) RunOnce(ctx context.Context, handle func(ctx context.Context, d *Delivery) error) (TailReport, error) {
	d, report, err := s.next(ctx)
	if err != nil {
		return report, err
	}
	return s.deliver(ctx, handle, d, report)
}

// deliver calls the handler with what next has read, if anything, and moves the
// subscription past it.
func (s *Subscription) deliver(ctx context.Context, handle handler, d *Delivery, report TailReport) (TailReport, error) {
	if d == nil {
		return report, nil
	}
	if len(d.Records) > 0 {
		if err := s.handle(ctx, handle, d); err != nil {
			return report, errors.Join(err, s.recordFailure(ctx, err))
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

// handle runs the handler while no other process may deliver the same records,
// and adapts the size of the next delivery to the lease.
func (s *Subscription) handle(ctx context.Context, handle handler, d *Delivery) error {
	ctx, cancel := context.WithTimeout(ctx, s.config.Lease)
	defer cancel()
	err := handle(ctx, d)
	switch {
	case err == nil:
		s.batch = min(s.config.Batch, s.batch+max(1, s.config.Batch/16))
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		s.batch = max(1, len(d.Records)/2)
	}
	return err
}

// next takes the lease and reads the next delivery, nil if there is nothing.
func (s *Subscription) next(ctx context.Context) (*Delivery, TailReport, error) {
	fail := func(err error) (*Delivery, TailReport, error) {
		return nil, TailReport{}, fmt.Errorf("read for subscription %q: %w", s.name, err)
	}
	m, err := s.takeLease(ctx)
	if errors.Is(err, errBusy) {
		return nil, TailReport{Busy: true}, nil
	}
	if err != nil {
		return fail(err)
	}
	if m.position == m.settled {
		return nil, TailReport{}, nil
	}
	rows, _ := s.db.Query(ctx, readSQL, m.position, m.settled, s.batch)
	records, err := pgx.CollectRows(rows, toRecord)
	if err != nil {
		return fail(err)
	}
	d := &Delivery{Records: records, More: len(records) >= s.batch, sub: s, from: m.position, to: m.settled}
	if d.More {
		d.to = records[len(records)-1].AuditID
	}
	return d, TailReport{More: d.More}, nil
}

const checkpointSQL = `
UPDATE audit_subscriptions
SET position = $4, failures = 0, last_error = NULL, delivered_at = clock_timestamp()
WHERE name = $1 AND lease_epoch = $2 AND position = $3`

// CheckpointTx moves the subscription past the delivery in the handler's own
// transaction: what the handler writes there happens exactly once. If the
// handler does not call it, the subscription moves on automatically after the
// handler returns.
//
// It is correct at every isolation level: the update finds the row as this
// delivery left it, or fails. Above READ COMMITTED a lost lease can also be
// reported as a serialization failure (SQLSTATE 40001).
//
// Errors: ErrLeaseLost, after which the caller must roll the transaction back.
// If the caller rolls it back for another reason, the handler must return an
// error.
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

const recordFailureSQL = `
UPDATE audit_subscriptions
SET failures = failures + 1, last_error = left($3, 1000)
WHERE name = $1 AND lease_epoch = $2`

// recordFailure makes a failed delivery visible; see Subscriptions. A delivery
// that failed because the program ends does not count.
func (s *Subscription) recordFailure(ctx context.Context, failure error) error {
	if ctx.Err() != nil {
		return nil
	}
	text := strings.ReplaceAll(strings.ToValidUTF8(failure.Error(), "\uFFFD"), "\x00", "\uFFFD") // what a column can hold
	if _, err := s.db.Exec(ctx, recordFailureSQL, s.name, s.epoch, text); err != nil {
		return fmt.Errorf("record a failure of subscription %q: %w", s.name, err)
	}
	return nil
}

// Run delivers until ctx ends, then releases the lease and returns nil. After a
// failure it waits, longer each time, and delivers the same records again. It
// calls failed with each failure; failed may be nil.
//
// Error: [ErrNoSubscription] once the subscription was removed, by
// [Unsubscribe] in this process or in another. Run does not pass it to failed,
// and delivers nothing after it. The same error from a handler, about another
// subscription, is a failure like any other.
func (s *Subscription) Run(ctx context.Context, handle func(ctx context.Context, d *Delivery) error, failed func(error)) error {
	defer s.release(ctx)
	wait := backoff{poll: s.config.PollEvery, max: s.config.BackoffMax}
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
		_ = sleep.For(ctx, wait.after(report, err)) // or ctx ends
	}
	return nil
}

// backoff is how long Run waits: 0 after a delivery, poll when there was
// nothing to deliver, and 2ⁿ⁻¹ × poll after the nth failure since the last
// delivery, up to max.
type backoff struct {
	poll, max time.Duration
	next      time.Duration // after the next failure; 0 is poll
}

func (b *backoff) after(report TailReport, err error) time.Duration {
	switch {
	case err != nil:
		wait := max(b.next, b.poll)
		b.next = min(2*wait, b.max)
		return wait
	case report.Delivered > 0:
		b.next = 0
		return 0
	default:
		return b.poll
	}
}
