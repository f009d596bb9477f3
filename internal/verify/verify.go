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
	// BrokenMax is the highest number of broken rows told for a check; it stands for itself and more.
	BrokenMax = 10_000
	// SampleMax is how many of them are shown.
	SampleMax = 20
)

// Config says what may be expected of the data. The zero value of a field is its default.
type Config struct {
	// Retention is the shortest time for which finished requests, ended reservations and audit rows are kept; default 168
	// hours. What ended before is not asked for its counterparts, because they may have been pruned.
	Retention time.Duration
	// LifetimeMax is the cap on a hold with all its extensions; the check is left out when 0, because the rows don't say
	// under which cap they were made.
	LifetimeMax time.Duration
	// StatementTimeout bounds each check; default 2 minutes.
	StatementTimeout time.Duration
}

// Report is what a run found.
type Report struct {
	// OK says that no check found anything.
	OK bool `json:"ok"`
	// CheckedAt is the database's clock at the run's snapshot; what ended before Since was not asked for its counterparts.
	CheckedAt time.Time `json:"checked_at"`
	Since     time.Time `json:"since"`
	Checks    []Check   `json:"checks"`
	// Notes is what breaks no check and explains what else may look broken: a database clock that was set back. A note
	// without rows is left out.
	Notes []Note `json:"notes"`
}

// Check is what one check found.
type Check struct {
	Name string `json:"name"`
	// Meaning is what holds of every row, in one sentence.
	Meaning string `json:"meaning"`
	// Broken is how many rows break it, at most BrokenMax; Sample shows the first SampleMax of them.
	Broken int64             `json:"broken"`
	Sample []json.RawMessage `json:"sample"`
}

// check is one statement that selects the rows which break it. The statement may use @since, the cut-off; @margin;
// @now, the clock at the snapshot; and @lifetime_max.
type check struct{ name, meaning, sql string }

// Run checks everything with the defaults of Config. See [Config.Run].
func Run(ctx context.Context, db *pgxpool.Pool) (Report, error) {
	return Config{}.Run(ctx, db)
}

// Run checks everything on one snapshot of the database. Rows that break a check are an outcome and stand in the report;
// an error says that a check could not be made.
func (c Config) Run(ctx context.Context, db *pgxpool.Pool) (report Report, err error) {
	err = pgx.BeginTxFunc(ctx, db, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
		report, err = c.RunTx(ctx, tx)
		return err
	})
	return report, err
}

// settleSQL bounds each statement. The checks read whole tables, perhaps just filled and not analysed yet: one misjudged
// nested loop would take longer than all of them by hashing.
const settleSQL = `
SELECT set_config('statement_timeout', $1, true), set_config('enable_nestloop', 'off', true), set_config('jit', 'off', true)`

// sinceSQL is the transaction's first statement that reads, so the snapshot is not younger than the clock it returns:
// whatever was pruned by age before that snapshot was older than the cut-off.
const sinceSQL = `
SELECT clock.now, clock.now - $1::interval
FROM (SELECT clock_timestamp() AS now) AS clock`

// margin is left between two clocks that one transaction reads one after the other.
const margin = time.Minute

// RunTx is [Config.Run] in the caller's transaction, and sees what that sees. It sets the transaction's statement
// timeout and how it joins. Without REPEATABLE READ each check has a snapshot of its own, and what is written meanwhile
// may look broken.
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
		return Report{}, fmt.Errorf("verify: set the transaction up: %w", err)
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

// checks lists what is to be checked, in the order it is told.
func (c Config) checks() []check {
	all := slices.Concat(stockChecks, requestChecks, keyChecks, reservationChecks, recordChecks, laneChecks)
	if c.LifetimeMax > 0 {
		all = append(all, lifetimeCheck)
	}
	return all
}

// What a check selects stands between these two.
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

// run counts what breaks the check, up to BrokenMax, and takes a sample of it.
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
