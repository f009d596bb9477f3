package verify

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"
)

const (
	// brokenMax is where a check stops counting rows: the count means "at
	// least brokenMax" when it equals brokenMax.
	brokenMax = 10_000
	// sampleMax is the largest number of rows in a sample.
	sampleMax = 20
)

// Config describes the data that a run may expect. The zero value of a field
// is its default.
type Config struct {
	// Retention is the shortest time for which finished requests, ended
	// reservations and audit rows are kept; default 168 hours. A row that ended
	// before that may lack its counterparts, because they may be pruned. So may
	// a row that ended before the last purge's retention, if that was shorter.
	Retention time.Duration
	// LifetimeMax is the cap on a hold with all its extensions. 0 leaves the
	// check out. The rows do not record the cap under which they were made.
	LifetimeMax time.Duration
	// QueueAgeMax is the age at which drains fail a queued request. 0 leaves the
	// check out.
	QueueAgeMax time.Duration
	// StatementTimeout bounds each statement; default 2 minutes, at least 1 ms.
	StatementTimeout time.Duration
	// Since limits the run to what the record has changed since that time, or
	// AfterID to what it has changed after that audit id. The run then checks
	// these reservations and requests with their audit rows, the undecided
	// requests, the stocks, the numbers and the rows that control the service.
	// It leaves out the checks that need whole tables; [Report.Checks] has those
	// that were made. The zero values check everything; give one of the two.
	Since   time.Time
	AfterID int64
	// Progress is called as each step of the run begins, by the goroutine that
	// makes it: two goroutines call it, one after the other. nil for none.
	Progress func(Progress)
}

// Progress is how far a run is.
type Progress struct {
	// Step is the name of the check that begins, or "targets" for a piece of the
	// pass over reservations, requests and their audit rows.
	Step string
	// Done counts the steps that have begun. Steps is how many there are, as
	// estimated from the planner's statistics. Neither decreases.
	Done, Steps int64
}

// Report is the result of a run.
type Report struct {
	// OK is true if no row breaks a check.
	OK bool `json:"ok"`
	// CheckedAt is the database's clock at the run's snapshot.
	CheckedAt time.Time `json:"checked_at"`
	// Since is CheckedAt less the retention, or the time up to which a purge has
	// deleted rows, if that is later: rows that ended earlier may lack their
	// counterparts.
	Since time.Time `json:"since"`
	// AfterID is the audit id after which the run has checked what changed, if
	// it was limited to that.
	AfterID int64 `json:"after_id,omitempty"`
	// Checks has every check of the run, in a fixed order, broken or not.
	Checks []Check `json:"checks"`
	// Notes explains rows that seem broken but are valid: the database's clock
	// was set back. A note without rows is left out.
	Notes []Note `json:"notes"`
}

// Check is the result of one check.
type Check struct {
	// Name identifies the check. It is stable: the documentation names it.
	Name string `json:"name"`
	// Meaning is the invariant in one sentence.
	Meaning string `json:"meaning"`
	// Broken is the number of rows that break the invariant, counted up to
	// 10,000. Sample has the first 20 of them.
	Broken int64             `json:"broken"`
	Sample []json.RawMessage `json:"sample"`
}

// tableCheck is one statement that selects the rows which break the invariant.
// The statement may use the parameters of [run.args].
type tableCheck struct {
	name, meaning, sql string
	// changed means that a run which is limited to changes makes the check too,
	// because it reads little or only the audit rows after @after; changedSQL is
	// its statement for such a run, if that differs.
	changed    bool
	changedSQL string
}

// shareSQL exports the snapshot. The transaction that ends its work first is
// idle until the other has made its last check.
const shareSQL = `SELECT pg_export_snapshot(), set_config('idle_in_transaction_session_timeout', '0', true)`

// Run makes every check on one snapshot of the database, in read-only
// REPEATABLE READ transactions on one or two connections of db. The second
// connection shares the snapshot of the first and halves the time. The run does
// not wait for it: without a free connection, the first makes all checks.
//
// Rows that break a check are an outcome and are in the report, with a nil
// error. An error means that a check could not be made: c is invalid, the
// database is unreachable, or a statement exceeded c.StatementTimeout.
func Run(ctx context.Context, db *pgxpool.Pool, c Config) (report Report, err error) {
	err = pgx.BeginTxFunc(ctx, db, readOnly, func(tx pgx.Tx) error {
		r, err := c.begin(ctx, tx)
		if err != nil {
			return err
		}
		var snapshot string
		if err := tx.QueryRow(ctx, shareSQL).Scan(&snapshot, nil); err != nil {
			return fmt.Errorf("verify: export the snapshot: %w", err)
		}
		both, working := errgroup.WithContext(ctx)
		waiting, stop := context.WithCancel(working)
		both.Go(func() error {
			defer stop()
			return work(working, tx, r.targets, r.table)
		})
		both.Go(func() error { return r.help(working, waiting, db, snapshot) })
		err = both.Wait()
		report = r.finish()
		return err
	})
	if err != nil {
		return Report{}, err
	}
	return report, nil
}

var readOnly = pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}

// help works on the run on another connection, if there is one before waiting
// ends. It returns the errors of checks only: a connection that cannot share the
// snapshot, as that of another server, is not needed.
func (r *run) help(ctx, waiting context.Context, db *pgxpool.Pool, snapshot string) error {
	conn, err := db.Acquire(waiting)
	if err != nil {
		return nil //nolint:nilerr // see above
	}
	defer conn.Release()
	tx, err := conn.BeginTx(ctx, readOnly)
	if err != nil {
		return nil //nolint:nilerr // see above
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
	if _, err := tx.Exec(ctx, `SET TRANSACTION SNAPSHOT '`+snapshot+`'`); err != nil {
		return nil //nolint:nilerr // see above
	}
	if err := r.settle(ctx, tx); err != nil {
		return err
	}
	return work(ctx, tx, r.table, r.targets)
}

// margin is the largest difference between two clocks that one transaction
// reads after each other.
const margin = time.Minute

// validate sets the defaults.
func (c *Config) validate() error {
	c.Retention = cmp.Or(c.Retention, 168*time.Hour)
	c.StatementTimeout = cmp.Or(c.StatementTimeout, 2*time.Minute)
	if c.Progress == nil {
		c.Progress = func(Progress) {}
	}
	if c.Retention < 0 || c.LifetimeMax < 0 || c.QueueAgeMax < 0 || c.StatementTimeout < time.Millisecond || c.AfterID < 0 {
		return fmt.Errorf("verify: want retention (%s), lifetime_max (%s), queue_age_max (%s) and after_id (%d) ≥ 0, statement_timeout (%s) ≥ 1ms",
			c.Retention, c.LifetimeMax, c.QueueAgeMax, c.AfterID, c.StatementTimeout)
	}
	if c.AfterID > 0 && !c.Since.IsZero() {
		return errors.New("verify: want since or after_id, not both")
	}
	return nil
}
