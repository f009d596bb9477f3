package audit

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/internal/horizon"
)

// ErrLeaseLost means that another process has taken the subscription over. The
// records of the delivery are delivered again.
var ErrLeaseLost = errors.New("audit: the subscription's lease was lost")

// ErrNoSubscription means that [Unsubscribe] removed the subscription, in this
// process or another. [Subscribe] makes a new one of that name.
var ErrNoSubscription = errors.New("audit: no such subscription")

// ErrSequenceBehind means that the sequence audit_log_audit_id_seq is below the
// subscription's position: new records would draw ids that the subscription is
// past, and would not be delivered. The cause is a copy of the database without
// the sequence's last value. Set the sequence.
var ErrSequenceBehind = errors.New("audit: the sequence of audit_log lies behind the subscription")

var errBusy = errors.New("audit: another process has the lease")

// noLease is the epoch of a process that never had the lease. No row has it, so
// a new process never takes another one's lease for its own.
const noLease = -1

// progress is how far a subscription has come: the last id delivered, and the
// last one that is settled.
type progress struct{ position, settled int64 }

// idleSQL reads, without writing, whether the subscription has nothing to do:
// no id was drawn since, or those that were drawn are not settled. leaseSQL
// handles a horizon that no transaction of this database can have written.
const idleSQL = `
SELECT s.position, s.settled, s.position > ids.last,
       s.position = ids.last OR (s.position = s.settled
           AND s.next_horizon > ` + horizon.Xmin + ` AND s.next_horizon < ` + horizon.Xmax + `)
FROM audit_subscriptions s
CROSS JOIN (SELECT ` + horizon.Drawn + ` AS last FROM audit_log_audit_id_seq) ids
WHERE s.name = $1`

const lastDrawnSQL = `SELECT ` + horizon.Drawn + ` FROM audit_log_audit_id_seq`

// lockSQL does not wait: another process that has locked the row is taking the
// lease, or writing its checkpoint. A lease that begins in the future was taken
// before the clock was set back, and counts as free. So no lease lasts longer
// than its length, whatever the clock does.
const lockSQL = `
SELECT true
FROM audit_subscriptions
WHERE name = $1 AND (lease_epoch = $2 OR lease_expires_at <= clock_timestamp() OR leased_at > clock_timestamp())
FOR NO KEY UPDATE SKIP LOCKED`

// leaseSQL takes or keeps the lease, and moves settled, the id up to which the
// record can be delivered. Every id up to next was drawn by a transaction below
// next_horizon. Once all of those have ended, all rows up to next are visible
// or never will be. A horizon above every transaction that has ended comes from
// the database that this one was restored from, and is set again. The row is
// locked before the statement has its snapshot, so the snapshot includes the
// transaction that wrote the horizon.
const leaseSQL = `
UPDATE audit_subscriptions s
SET lease_epoch = CASE WHEN s.lease_epoch = $2 THEN s.lease_epoch ELSE s.lease_epoch + 1 END,
    leased_at = clock_timestamp(), lease_expires_at = clock_timestamp() + $3::interval,
    settled = CASE WHEN ended THEN s.next ELSE s.settled END,
    next = CASE WHEN ended OR other_database THEN greatest($4, s.next) ELSE s.next END,
    next_horizon = CASE WHEN ended OR other_database THEN ` + horizon.CurrentXID + ` ELSE s.next_horizon END
FROM (
    SELECT name, next_horizon <= ` + horizon.Xmin + ` AS ended, next_horizon >= ` + horizon.Xmax + ` AS other_database
    FROM audit_subscriptions
) mark
WHERE s.name = $1 AND mark.name = s.name
RETURNING s.lease_epoch, s.position, s.settled`

// takeLease checks whether there is something to deliver, and takes the lease
// if so. It runs twice if it has set a new next: if no other transaction is
// writing, that one is settled by the second run.
func (s *Subscription) takeLease(ctx context.Context) (m progress, err error) {
	for range 2 {
		var idle, ahead bool
		err := s.db.QueryRow(ctx, idleSQL, s.name).Scan(&m.position, &m.settled, &ahead, &idle)
		switch {
		case errors.Is(err, pgx.ErrNoRows):
			return m, ErrNoSubscription
		case err != nil:
			return m, err
		case ahead: // also while next waits for other transactions
			return m, ErrSequenceBehind
		case idle:
			return m, nil
		}
		m, err = s.lease(ctx)
		if err != nil || m.position < m.settled {
			return m, err
		}
	}
	return m, nil
}

func (s *Subscription) lease(ctx context.Context) (m progress, err error) {
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

// releaseTimeout bounds the release of the lease by a program that ends. If the
// release fails, the lease runs out.
const releaseTimeout = time.Second

func (s *Subscription) release(ctx context.Context) {
	if s.epoch == noLease {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout)
	defer cancel()
	_, _ = s.db.Exec(ctx, releaseSQL, s.name, s.epoch)
}
