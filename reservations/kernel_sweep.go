package reservations

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/audit"
	"github.com/holdfast/holdfast/internal/reservationrows"
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
// keeps what the batches before it did. It waits for nobody: a hold that somebody is at work on is left to the next sweep.
// It is right when it is called late, twice or at once: each hold is expired by one of them.
//
// A schedule for it is the caller's: a ticker, a cron job, a queue. Nothing depends on it for being correct.
func (k *Kernel[K, W]) SweepOnce(ctx context.Context, limit int) (report SweepReport, err error) {
	limit = max(limit, 0)
	if limit == 0 {
		limit = k.config.SweepBatch
	}
	err = observed(ctx, "sweep", []observer{k.config.Observe}, func() error {
		for report.ExpiredCount < limit {
			batch := min(limit-report.ExpiredCount, k.config.SweepBatch)
			var due []Reservation
			err := inTx(ctx, k.db, func(tx pgx.Tx) (err error) {
				if due, report.ScannedAt, err = reservationrows.LockDueTx(ctx, tx, k.kind, batch); err != nil {
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

// PurgeOpts says what PurgeEnded deletes.
type PurgeOpts struct {
	// Retention is how long ago a hold ended at least. Required. A verb on a purged hold is ErrNotFound; before, it was a
	// *ConflictError.
	Retention time.Duration
	// EndedWithin is how long ago a hold ended at most, longer than Retention; 0 is without bound. What ended before is
	// neither deleted nor read. See PurgeEnded for what that saves.
	EndedWithin time.Duration
	// Limit is how many holds are deleted at most; 0 is one batch (Config.SweepBatch).
	Limit int
	// Committed includes committed holds. By default they are kept, because they may count: a committed hold of a
	// HeldAndCommitted kind that is deleted is sold again. Set it if committed holds count no longer (HeldOnly), or if
	// Retention is longer than one can book ahead, so that the windows of all that is deleted are over.
	Committed bool
}

// PurgeEnded deletes holds of this kind, of every tenant, that ended longer ago than the retention, those that ended first
// first, until none is left or it has deleted the limit. Their record in the audit log stays. It works in batches, each in
// a transaction of its own, and returns how many it deleted, also with an error. It waits for no lock: a hold that another
// transaction has locked is left to the next call.
//
// Each call reads every row that ended longer ago than the retention, also those it keeps: committed holds, and rows of
// other kinds. A million kept rows are some 200 MB of blocks, about one second if they are in memory. EndedWithin bounds
// that: with a retention of 90 days, a daily call with 97 days reads what ended in one week. Call it without the bound if it
// did not run for that week, and now and then for holds that were locked each time.
//
// A schedule for it is the caller's, as for SweepOnce. No program of this module purges a kernel's kinds.
//
// Errors: ErrInvalid for a retention that is not positive, and for an EndedWithin that is neither 0 nor longer.
func (k *Kernel[K, W]) PurgeEnded(ctx context.Context, opts PurgeOpts) (deleted int64, err error) {
	limit := int64(max(opts.Limit, 0))
	if limit == 0 {
		limit = int64(k.config.SweepBatch)
	}
	err = observed(ctx, "purge", []observer{k.config.Observe}, func() error {
		if opts.Retention <= 0 {
			return fmt.Errorf("%w: purge what ended more than %s ago", ErrInvalid, opts.Retention)
		}
		if opts.EndedWithin != 0 && opts.EndedWithin <= opts.Retention {
			return fmt.Errorf("%w: purge what ended within %s, but more than %s ago", ErrInvalid, opts.EndedWithin, opts.Retention)
		}
		purge := reservationrows.Purge{
			Kind: k.kind, Retention: opts.Retention, Within: opts.EndedWithin, Committed: opts.Committed,
		}
		for deleted < limit {
			batch := min(limit-deleted, int64(k.config.SweepBatch))
			purged, err := reservationrows.PurgeEnded(ctx, k.db, purge, int(batch))
			if err != nil {
				return err
			}
			deleted += purged.Count
			purge.After = purged.Last
			if purged.Count < batch {
				return nil
			}
		}
		return nil
	})
	return deleted, err
}

// expireTx expires those of the locked reservations that are due at now, the clock's reading after they were locked.
func expireTx(ctx context.Context, tx pgx.Tx, locked []Reservation, now time.Time) error {
	due := slices.DeleteFunc(slices.Clone(locked), func(r Reservation) bool { return !r.Due(now) })
	return reservationrows.EndTx(ctx, tx, reservationrows.Ending{To: Expired, Reason: TTL, At: now, Origin: audit.Origin{Actor: audit.Job("expiry")}}, due)
}
