package reservations

import (
	"cmp"
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
	// ExpiredCount is how many holds this sweep ended. If every sweep ends
	// some, sweep more often.
	ExpiredCount int `json:"expired_count"`
	// ScannedAt is the time of its last read, on the database's clock.
	ScannedAt time.Time `json:"scanned_at"`
}

// SweepOnce expires holds of this kind that are past their deadline, of every
// tenant, until none is left or it has ended limit of them; a limit of 0 is one
// batch. It works batch by batch, each in a separate transaction, so an error
// keeps the work of the batches before it. It waits for no lock: a hold that
// another transaction has locked is left to the next sweep. It is correct when
// it is called late, twice or several times at once: each hold is expired by
// one of the calls.
//
// The caller schedules it, with a ticker, a cron job or a queue. No promise
// depends on it. But the sweeps move the mark from which the holds of a key are
// read: without them, each hold reads all reservations of its key that are not
// purged.
func (k *Kernel[K, W]) SweepOnce(ctx context.Context, limit int) (report SweepReport, err error) {
	query, begun := reservationrows.DueQuery{Kind: k.kind}, false
	report.ExpiredCount, err = k.batches(ctx, "sweep", limit, func(batch int) (n int, more bool, err error) {
		if !begun {
			if err := reservationrows.MoveMark(ctx, k.db, k.kind); err != nil {
				return 0, false, err
			}
			begun = true
		}
		var found, locked []Reservation
		var expired int
		err = inTx(ctx, k.db, nil, func(tx pgx.Tx) (err error) {
			found, locked, report.ScannedAt, err = reservationrows.LockDueTx(ctx, tx, query, batch)
			if err != nil {
				return err
			}
			expired, err = expireTx(ctx, tx, locked, report.ScannedAt)
			return err
		})
		if err != nil || len(found) < batch {
			return expired, false, err
		}
		from := query.From
		query.From = found[len(found)-1].ExpiresAt
		return expired, len(locked) > 0 || !query.From.Equal(from), nil
	})
	return report, err
}

// batches runs a verb batch by batch, until there are no more or limit is
// reached, and returns how many rows it changed. A limit of 0 is one batch.
func (k *Kernel[K, W]) batches(ctx context.Context, verb string, limit int, run func(batch int) (n int, more bool, err error)) (done int, err error) {
	limit = cmp.Or(max(limit, 0), k.config.SweepBatch)
	err = observed(ctx, verb, []observer{k.config.Observe}, func() error {
		for done < limit {
			batch := min(limit-done, k.config.SweepBatch)
			n, more, err := run(batch)
			if err != nil {
				return err
			}
			done += n
			if !more {
				return nil
			}
		}
		return nil
	})
	return done, err
}

// PurgeOpts selects what PurgeEnded deletes.
type PurgeOpts struct {
	// Retention is how long an ended hold is kept, after its end and after its
	// deadline. Required. A verb on a purged hold returns ErrNotFound instead of
	// a *ConflictError.
	Retention time.Duration
	// EndedWithin is how long ago the deadline of a hold passed at most, longer
	// than Retention; 0 is without bound. Holds with an earlier deadline are
	// neither deleted nor read. See PurgeEnded for what that saves.
	EndedWithin time.Duration
	// Limit is how many holds are deleted at most; 0 is one batch
	// (Config.SweepBatch).
	Limit int
	// Committed includes committed holds. By default they are kept, because
	// they may count: if a committed hold of a HeldAndCommitted kind is
	// deleted, its units are sold again. Set it if committed holds do not count
	// (HeldOnly), or if Retention is longer than a booking can be ahead, so
	// that the windows of all deleted holds are over.
	Committed bool
}

// PurgeEnded deletes holds of this kind, of every tenant, that ended longer ago
// than the retention, in the order of their deadlines, until none is left or it
// has deleted the limit. Their record in the audit log stays. It works in
// batches, each in a separate transaction, and returns how many it deleted,
// also with an error. It waits for no lock: a hold that another transaction has
// locked is left to the next call.
//
// Each call reads every row with a deadline longer ago than the retention, even
// those it keeps: committed holds, and rows of other kinds. A million kept rows
// are about 200 MB of blocks, and take about one second if they are in memory.
// EndedWithin bounds that: with a retention of 90 days, a daily call with 97
// days reads one week of deadlines. Call it without the bound if it, or
// the sweep, did not run for a week, and from time to time for holds that were locked each time.
//
// The caller schedules it, as SweepOnce. No program of this module purges a
// kernel's kinds.
//
// Errors: ErrInvalid for a retention that is not positive, and for an
// EndedWithin that is neither 0 nor longer than that.
func (k *Kernel[K, W]) PurgeEnded(ctx context.Context, opts PurgeOpts) (deleted int64, err error) {
	purge := reservationrows.Purge{
		Kind: k.kind, Retention: opts.Retention, Within: opts.EndedWithin, Committed: opts.Committed,
	}
	n, err := k.batches(ctx, "purge", opts.Limit, func(batch int) (int, bool, error) {
		if opts.Retention <= 0 {
			return 0, false, fmt.Errorf("%w: purge what ended more than %s ago", ErrInvalid, opts.Retention)
		}
		if opts.EndedWithin != 0 && opts.EndedWithin <= opts.Retention {
			return 0, false, fmt.Errorf("%w: purge what ended within %s, but more than %s ago", ErrInvalid, opts.EndedWithin, opts.Retention)
		}
		purged, err := reservationrows.PurgeEnded(ctx, k.db, purge, batch)
		purge.After = purged.Last
		return int(purged.Count), int(purged.Count) == batch, err
	})
	return int64(n), err
}

// expireTx expires those of the locked reservations that are held and due at
// now, a reading of the clock after they were locked, and returns how many they
// are. The rest were ended or extended before they were locked.
func expireTx(ctx context.Context, tx pgx.Tx, locked []Reservation, now time.Time) (int, error) {
	due := slices.DeleteFunc(slices.Clone(locked), func(r Reservation) bool { return !r.Due(now) })
	return len(due), reservationrows.EndTx(ctx, tx, reservationrows.Ending{To: Expired, Reason: reservationrows.TTL, At: now, Origin: audit.Origin{Actor: audit.Job("expiry")}}, due)
}
