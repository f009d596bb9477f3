package audit

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/internal/horizon"
)

// ErrLeaseLost says that another process has taken the subscription over. Whatever was delivered is delivered again.
var ErrLeaseLost = errors.New("audit: the subscription's lease was lost")

// ErrNoSubscription means that [Unsubscribe] removed the subscription, in this process or another. [Subscribe] makes a new
// one of that name.
var ErrNoSubscription = errors.New("audit: no such subscription")

// ErrSequenceBehind says that ids which the subscription is past would be drawn again, and not be delivered: the database
// was copied without the last value of the sequence audit_log_audit_id_seq, which must be set.
var ErrSequenceBehind = errors.New("audit: the sequence of audit_log lies behind the subscription")

var errBusy = errors.New("audit: another process has the lease")

// noLease is the epoch of a process that never had the lease. No row has it: two new processes must not take each other's
// lease for their own.
const noLease = -1

// marks is how far a subscription has come.
type marks struct{ position, settled int64 }

// idleSQL finds out without writing whether there is nothing to do: nothing was drawn, or what was drawn is not settled. A
// horizon that no transaction of this database can have given is the matter of leaseSQL.
const idleSQL = `
SELECT s.position, s.settled, s.position > ids.last,
       s.position = ids.last OR (s.position = s.settled
           AND s.next_horizon > ` + horizon.Settled + ` AND s.next_horizon < ` + horizon.Given + `)
FROM audit_subscriptions s
CROSS JOIN (SELECT ` + horizon.Drawn + ` AS last FROM audit_log_audit_id_seq) ids
WHERE s.name = $1`

const lastDrawnSQL = `SELECT ` + horizon.Drawn + ` FROM audit_log_audit_id_seq`

// lockSQL does not wait: another process that has locked the row takes the lease, or writes its checkpoint. A lease that
// begins in the future was taken before the clock was set back and is free, so no lease lasts longer than its length,
// whatever the clock does.
const lockSQL = `
SELECT true
FROM audit_subscriptions
WHERE name = $1 AND (lease_epoch = $2 OR lease_expires_at <= clock_timestamp() OR leased_at > clock_timestamp())
FOR NO KEY UPDATE SKIP LOCKED`

// leaseSQL takes or keeps the lease, and moves the mark up to which the record is settled. Every id up to next was drawn by
// a transaction below next_horizon; once all of those have ended, all rows up to next are visible or never will be. A
// horizon above every transaction that has ended comes from the database that this one was restored from, and is taken
// anew. The row is locked before the statement has its snapshot, so the snapshot knows who wrote the horizon.
const leaseSQL = `
UPDATE audit_subscriptions s
SET lease_epoch = CASE WHEN s.lease_epoch = $2 THEN s.lease_epoch ELSE s.lease_epoch + 1 END,
    leased_at = clock_timestamp(), lease_expires_at = clock_timestamp() + $3::interval,
    settled = CASE WHEN ended THEN s.next ELSE s.settled END,
    next = CASE WHEN ended OR foreign_born THEN greatest($4, s.next) ELSE s.next END,
    next_horizon = CASE WHEN ended OR foreign_born THEN ` + horizon.Own + ` ELSE s.next_horizon END
FROM (
    SELECT name, next_horizon <= ` + horizon.Settled + ` AS ended, next_horizon >= ` + horizon.Given + ` AS foreign_born
    FROM audit_subscriptions
) mark
WHERE s.name = $1 AND mark.name = s.name
RETURNING s.lease_epoch, s.position, s.settled`

// take looks for something to deliver and takes the lease if there is something to do. A mark that it set is looked at
// once more at once: if nobody else is writing, it is settled by then.
func (s *Subscription) take(ctx context.Context) (m marks, err error) {
	for range 2 {
		var idle, ahead bool
		err := s.db.QueryRow(ctx, idleSQL, s.name).Scan(&m.position, &m.settled, &ahead, &idle)
		switch {
		case errors.Is(err, pgx.ErrNoRows):
			return m, ErrNoSubscription
		case err != nil:
			return m, err
		case ahead: // also while a mark waits for others' transactions
			return m, ErrSequenceBehind
		case idle:
			return m, nil
		}
		if m, err = s.lease(ctx); err != nil || m.position < m.settled {
			return m, err
		}
	}
	return m, nil
}

func (s *Subscription) lease(ctx context.Context) (m marks, err error) {
	epoch := s.epoch
	err = pgx.BeginFunc(ctx, s.db, func(tx pgx.Tx) error {
		var last int64 // read before the transaction has an id
		var ours bool
		b := &pgx.Batch{}
		b.Queue(lastDrawnSQL).QueryRow(func(row pgx.Row) error { return row.Scan(&last) })
		b.Queue(lockSQL, s.name, s.epoch).QueryRow(func(row pgx.Row) error { return row.Scan(&ours) })
		if err := tx.SendBatch(ctx, b).Close(); err != nil {
			return err
		}
		return tx.QueryRow(ctx, leaseSQL, s.name, s.epoch, s.config.Lease, last).Scan(&epoch, &m.position, &m.settled)
	})
	if errors.Is(err, pgx.ErrNoRows) {
		return m, errBusy
	}
	if err == nil {
		s.epoch = epoch
	}
	return m, err
}

const releaseSQL = `
UPDATE audit_subscriptions
SET lease_expires_at = clock_timestamp()
WHERE name = $1 AND lease_epoch = $2`

// releaseWithin is how long a program that ends takes to give the lease back. If it fails, the lease runs out.
const releaseWithin = time.Second

func (s *Subscription) release(ctx context.Context) {
	if s.epoch == noLease {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseWithin)
	defer cancel()
	_, _ = s.db.Exec(ctx, releaseSQL, s.name, s.epoch)
}
