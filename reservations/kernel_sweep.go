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

// SweepOnce expires holds of this kind that are past their deadline, of every tenant, until none is left or it has
// ended limit of them; a limit of 0 is one batch. It works batch by batch, each in a transaction of its own, so an error
// keeps what the batches before it did. It is right when it is called late, twice or at once: each hold is expired by
// one of them.
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
			var found, expired int
			err := pgx.BeginFunc(ctx, k.db, func(tx pgx.Tx) error {
				due, err := Due(ctx, tx, k.resource.Kind(), batch)
				if err != nil {
					return err
				}
				found = len(due)
				expired, report.ScannedAt, err = expireTx(ctx, tx, due)
				return err
			})
			if err != nil {
				return err
			}
			report.ExpiredCount += expired
			if found < batch {
				return nil
			}
		}
		return nil
	})
	return report, err
}

// expireTx locks holds that were found due, and expires those that still are. It returns how many, and the reading of the
// clock that says so.
func expireTx(ctx context.Context, tx pgx.Tx, due []Reservation) (int, time.Time, error) {
	locked, now, err := LockTx(ctx, tx, refsOf(due))
	if err != nil {
		return 0, now, err
	}
	still := slices.DeleteFunc(locked, func(r Reservation) bool { return !r.Due(now) })
	ending := Ending{To: Expired, Reason: TTL, At: now, Origin: audit.Origin{Actor: audit.Job("expiry")}}
	return len(still), now, EndTx(ctx, tx, ending, still)
}
