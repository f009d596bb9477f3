package reservations

import (
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/audit"
)

// SweepReport is what a sweep did.
type SweepReport struct {
	// ExpiredCount is how many holds this sweep ended. Not zero in sweep after sweep means: sweep more often.
	ExpiredCount int `json:"expired_count"`
	// ScannedAt is when it last looked, on the database's clock.
	ScannedAt time.Time `json:"scanned_at"`
}

// lockDueSQL passes by what somebody is at work on, so that a sweep waits for nobody, and nobody who has one of these rows
// and wants another can wait for it in a circle. See dueSQL.
const lockDueSQL = `
SELECT ` + columns + `
FROM reservations r
WHERE r.ended_at IS NULL AND r.status = 'held' AND r.expires_at <= (SELECT clock_timestamp()) AND r.resource_kind = $1
ORDER BY r.expires_at
LIMIT $2
FOR NO KEY UPDATE SKIP LOCKED`

// SweepOnce expires holds of this kind that are past their deadline, of every tenant, until none is left or it has
// ended limit of them; a limit of 0 is one batch. It works batch by batch, each in a transaction of its own, so an error
// keeps what the batches before it did. It waits for nobody: a hold that somebody is at work on is left to the next sweep.
// It is right when it is called late, twice or at once: each hold is expired by one of them.
//
// A schedule for it is the caller's: a ticker, a cron job, a queue. Nothing depends on it for being correct.
func (k *Kernel[K, W]) SweepOnce(ctx context.Context, limit int) (report SweepReport, err error) {
	limit = max(limit, 0)
	if limit == 0 {
		limit = k.config.SweepBatch
	}
	err = k.observe(ctx, "sweep", func() error {
		for report.ExpiredCount < limit {
			batch := min(limit-report.ExpiredCount, k.config.SweepBatch)
			var due []Reservation
			err := pgx.BeginFunc(ctx, k.db, func(tx pgx.Tx) (err error) {
				if due, report.ScannedAt, err = lock(ctx, tx, lockDueSQL, k.resource.Kind(), batch); err != nil {
					return err
				}
				return expireTx(ctx, tx, due, report.ScannedAt)
			})
			if err != nil {
				return err
			}
			report.ExpiredCount += len(due)
			if len(due) < batch {
				return nil
			}
		}
		return nil
	})
	return report, err
}

// expireTx expires those of the locked reservations that are due at now, the clock's reading after they were locked.
func expireTx(ctx context.Context, tx pgx.Tx, locked []Reservation, now time.Time) error {
	due := slices.DeleteFunc(slices.Clone(locked), func(r Reservation) bool { return !r.Due(now) })
	return EndTx(ctx, tx, Ending{To: Expired, Reason: TTL, At: now, Origin: audit.Origin{Actor: audit.Job("expiry")}}, due)
}
