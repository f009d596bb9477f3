package verify

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

const (
	// BrokenMax is where a check stops counting rows: the count means "at
	// least BrokenMax" when it equals BrokenMax.
	BrokenMax = 10_000
	// SampleMax is the largest number of rows in a sample.
	SampleMax = 20
)

// Config describes the data that a run may expect. The zero value of a field
// is its default.
type Config struct {
	// Retention is the shortest time for which finished requests, ended
	// reservations and audit rows are kept; default 168 hours. A row that ended
	// before that may lack its counterparts, because they may be pruned.
	Retention time.Duration
	// LifetimeMax is the cap on a hold with all its extensions. 0 leaves the
	// check out. The rows do not record the cap under which they were made.
	LifetimeMax time.Duration
	// StatementTimeout bounds each check; default 2 minutes, at least 1 ms.
	StatementTimeout time.Duration
}

// Report is the result of a run.
type Report struct {
	// OK is true if no row breaks a check.
	OK bool `json:"ok"`
	// CheckedAt is the database's clock at the run's snapshot.
	CheckedAt time.Time `json:"checked_at"`
	// Since is CheckedAt less the retention: rows that ended earlier may lack
	// their counterparts.
	Since time.Time `json:"since"`
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
	// Broken is the number of rows that break the invariant, at most
	// BrokenMax. Sample has the first SampleMax of them.
	Broken int64             `json:"broken"`
	Sample []json.RawMessage `json:"sample"`
}

// check is one statement that selects the rows which break the invariant. The
// statement may use @since, the cut-off; @margin; @now, the clock at the
// snapshot; and @lifetime_max.
type check struct{ name, meaning, sql string }

// Run makes every check with the defaults of [Config]. See [Config.Run].
func Run(ctx context.Context, db *pgxpool.Pool) (Report, error) {
	return Config{}.Run(ctx, db)
}

// Run makes every check on one snapshot of the database, in a read-only
// REPEATABLE READ transaction on one connection of db.
//
// Rows that break a check are an outcome and are in the report, with a nil
// error. An error means that a check could not be made: c is invalid, the
// database is unreachable, or a statement exceeded c.StatementTimeout.
func (c Config) Run(ctx context.Context, db *pgxpool.Pool) (report Report, err error) {
	err = pgx.BeginTxFunc(ctx, db, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
		report, err = c.RunTx(ctx, tx)
		return err
	})
	return report, err
}

// settleSQL bounds each statement and forbids nested loops. The checks read
// whole tables, which may be newly filled and not yet analysed: one misjudged
// nested loop takes longer than all checks by hashing.
const settleSQL = `
SELECT set_config('statement_timeout', $1, true), set_config('enable_nestloop', 'off', true), set_config('jit', 'off', true)`

// sinceSQL is the transaction's first statement that reads, so the snapshot is
// taken no later than the time it returns. A row that was pruned by age before
// that snapshot was therefore older than the cut-off.
const sinceSQL = `
SELECT clock.now, clock.now - $1::interval
FROM (SELECT clock_timestamp() AS now) AS clock`

// margin is the largest difference between two clocks that one transaction
// reads after each other.
const margin = time.Minute

// RunTx is [Config.Run] in the caller's transaction, and sees the rows that
// transaction sees. It sets statement_timeout, enable_nestloop and jit until
// the transaction ends.
//
// The isolation level should be REPEATABLE READ or SERIALIZABLE. At READ
// COMMITTED each check has its own snapshot, and rows that other transactions
// commit in between may look broken.
func (c Config) RunTx(ctx context.Context, tx pgx.Tx) (Report, error) {
	if c.Retention == 0 {
		c.Retention = 168 * time.Hour
	}
	if c.StatementTimeout == 0 {
		c.StatementTimeout = 2 * time.Minute
	}
	if c.Retention < 0 || c.LifetimeMax < 0 || c.StatementTimeout < time.Millisecond {
		return Report{}, fmt.Errorf("verify: want retention (%s) and lifetime_max (%s) ≥ 0, statement_timeout (%s) ≥ 1ms",
			c.Retention, c.LifetimeMax, c.StatementTimeout)
	}
	report := Report{OK: true, Notes: []Note{}}
	if _, err := tx.Exec(ctx, settleSQL, fmt.Sprint(c.StatementTimeout.Milliseconds())); err != nil {
		return Report{}, fmt.Errorf("verify: set up the transaction: %w", err)
	}
	if err := tx.QueryRow(ctx, sinceSQL, c.Retention).Scan(&report.CheckedAt, &report.Since); err != nil {
		return Report{}, fmt.Errorf("verify: read the clock: %w", err)
	}
	args := pgx.NamedArgs{"since": report.Since, "margin": margin, "now": report.CheckedAt, "lifetime_max": c.LifetimeMax}
	for _, check := range c.checks() {
		found, err := check.run(ctx, tx, args)
		if err != nil {
			return Report{}, fmt.Errorf("verify: check %s: %w", check.name, err)
		}
		report.OK = report.OK && found.Broken == 0
		report.Checks = append(report.Checks, found)
	}
	for _, check := range clockNotes {
		found, err := check.note(ctx, tx, args)
		if err != nil {
			return Report{}, fmt.Errorf("verify: note %s: %w", check.name, err)
		}
		if found.Rows > 0 {
			report.Notes = append(report.Notes, found)
		}
	}
	return report, nil
}

// checks lists the checks in the order of the report.
func (c Config) checks() []check {
	all := slices.Concat(stockChecks, requestChecks, keyChecks, reservationChecks, recordChecks, laneChecks, unitChecks, checkoutChecks)
	if c.LifetimeMax > 0 {
		all = append(all, lifetimeCheck)
	}
	return all
}

// The statement of a check is placed between these two.
const (
	boundedHead = `
WITH broken AS MATERIALIZED (
    SELECT *
    FROM (`
	boundedTail = `) AS found
    LIMIT @broken_max
)
SELECT (SELECT count(*) FROM broken), to_jsonb(shown)
FROM (SELECT * FROM broken LIMIT @sample_max) AS shown`
)

// run counts the rows that break the check, up to BrokenMax, and takes a
// sample of them.
func (c check) run(ctx context.Context, tx pgx.Tx, args pgx.NamedArgs) (Check, error) {
	found := Check{Name: c.name, Meaning: c.meaning, Sample: []json.RawMessage{}}
	args["broken_max"], args["sample_max"] = BrokenMax, SampleMax
	rows, err := tx.Query(ctx, boundedHead+c.sql+boundedTail, args)
	if err != nil {
		return found, err
	}
	shown, err := pgx.CollectRows(rows, pgx.RowToStructByPos[struct {
		Broken int64
		Row    json.RawMessage
	}])
	if err != nil {
		return found, err
	}
	for _, s := range shown {
		found.Broken = s.Broken
		found.Sample = append(found.Sample, s.Row)
	}
	return found, nil
}
