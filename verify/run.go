package verify

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// run is the state of one run, which one or two transactions work on.
type run struct {
	Config

	report Report
	// args are the parameters of the statements: @since, the cut-off; @margin;
	// @now, the clock at the snapshot; @latest, the latest time that the clock
	// has had; @worked, a time at which the service worked, and a minute ago;
	// @after, the audit id after which the record is checked; @elsewhere, the
	// tenants that are about to arrive here or are gone, whose rows are not
	// complete; @arrived, those that came from another cell; and the bounds of
	// Config.
	args    pgx.NamedArgs
	limited bool // to what changed
	pass    *targetPass
	// elsewhere are the tenants of @elsewhere.
	elsewhere []uuid.UUID
	tables    []*tableCheck // and after checks, the notes
	checks    int

	mu          sync.Mutex // for all below, and the results of pass
	found       []Check    // of tables
	begun       int        // of tables
	done, steps int64
}

// settleSQL bounds each statement and forbids nested loops, except where a
// statement has no other plan. The checks read whole tables, which may be newly
// filled and not yet analysed: one misjudged nested loop takes longer than all
// checks by hashing.
const settleSQL = `
SELECT set_config('statement_timeout', $1, true), set_config('enable_nestloop', 'off', true), set_config('jit', 'off', true),
       set_config('work_mem', '64MB', true)`

// sinceSQL is the transaction's first statement that reads, so the snapshot is
// taken no later than the time it returns. A row that was pruned by age before
// that snapshot was therefore older than the cut-off.
const sinceSQL = `
SELECT clock.now, greatest(clock.now - $1::interval, (SELECT max(p.purged_before) FROM purge_mark AS p))
FROM (SELECT clock_timestamp() AS now) AS clock`

// afterSQL selects the last audit id before a time, or the last of all if
// nothing was recorded since. Ids and times may be in another order where the
// clock was set back; then it selects an earlier one. The sum keeps the planner
// from reading the ids in their order up to the first of that time, which is
// most of the log; it reads the index of times instead.
const afterSQL = `
SELECT coalesce((SELECT min(a.audit_id + 0) - 1 FROM audit_log AS a WHERE a.created_at >= $1), (SELECT max(a.audit_id) FROM audit_log AS a), 0)`

// movedSQL selects the tenants whose rows are not complete here, and those that
// have come from another cell.
const movedSQL = `
SELECT coalesce(array_agg(s.tenant_id) FILTER (WHERE s.state IN ('arriving', 'gone')), '{}'),
       coalesce(array_agg(s.tenant_id) FILTER (WHERE s.arrived_at IS NOT NULL), '{}')
FROM tenant_state AS s`

// stepsSQL estimates the pieces of the pass over the targets: most requests
// have a reservation, which has their id.
const stepsSQL = `
SELECT coalesce(max(greatest(c.reltuples, 0)), 0)::bigint / $1
FROM pg_class AS c
WHERE c.oid IN ('reservations'::regclass, 'reservation_requests'::regclass)`

// settle sets up a transaction that makes checks.
func (c *Config) settle(ctx context.Context, tx pgx.Tx) error {
	if _, err := tx.Exec(ctx, settleSQL, fmt.Sprint(c.StatementTimeout.Milliseconds())); err != nil {
		return fmt.Errorf("verify: set up the transaction: %w", err)
	}
	return nil
}

// begin sets up the first transaction, reads the clock and the bounds of the
// run, and selects its checks.
func (c Config) begin(ctx context.Context, tx pgx.Tx) (*run, error) {
	if err := c.validate(); err != nil {
		return nil, err
	}
	if err := c.settle(ctx, tx); err != nil {
		return nil, err
	}
	r := &run{Config: c, report: Report{OK: true, Notes: []Note{}}}
	if err := r.bounds(ctx, tx); err != nil {
		return nil, err
	}
	r.pass = newTargetPass(r)
	metered, err := meteredChecks(ctx, tx)
	if err != nil {
		return nil, err
	}
	r.checks = r.choose(stockChecks, requestTableChecks, keyChecks, auditChecks, laneTableChecks, unitChecks, checkoutChecks, metered)
	r.choose(clockNotes, unitNotes)
	r.found = make([]Check, len(r.tables))
	if err := tx.QueryRow(ctx, stepsSQL, targetsMax).Scan(&r.steps); err != nil {
		return nil, fmt.Errorf("verify: estimate the rows: %w", err)
	}
	r.steps += int64(len(r.tables))
	return r, nil
}

// choose adds the checks that the run makes to its tables, and returns how many
// it has then.
func (r *run) choose(lists ...[]tableCheck) int {
	for _, list := range lists {
		for i := range list {
			if list[i].in(r.limited) {
				r.tables = append(r.tables, &list[i])
			}
		}
	}
	return len(r.tables)
}

// bounds reads the clock and sets the parameters of the statements.
func (r *run) bounds(ctx context.Context, tx pgx.Tx) error {
	if err := tx.QueryRow(ctx, sinceSQL, r.Retention).Scan(&r.report.CheckedAt, &r.report.Since); err != nil {
		return fmt.Errorf("verify: read the clock: %w", err)
	}
	r.limited = r.AfterID > 0 || !r.Config.Since.IsZero()
	r.report.AfterID = r.AfterID
	if !r.Config.Since.IsZero() {
		if err := tx.QueryRow(ctx, afterSQL, r.Config.Since).Scan(&r.report.AfterID); err != nil {
			return fmt.Errorf("verify: find the first audit row since %s: %w", r.Config.Since.Format(time.RFC3339), err)
		}
	}
	r.args = pgx.NamedArgs{
		"since": r.report.Since, "margin": margin, "now": r.report.CheckedAt, "after": r.report.AfterID,
		"lifetime_max": r.LifetimeMax, "queue_age_max": r.QueueAgeMax, "broken_max": brokenMax, "sample_max": sampleMax,
	}
	var arrived []uuid.UUID
	if err := tx.QueryRow(ctx, movedSQL).Scan(&r.elsewhere, &arrived); err != nil {
		return fmt.Errorf("verify: read the states of the tenants: %w", err)
	}
	r.args["arrived"], r.args["elsewhere"] = arrived, uuid.UUIDs(r.elsewhere).Strings()
	for name, sql := range map[string]string{"latest": latestSQL, "worked": workedSQL} {
		rows, err := tx.Query(ctx, sql, r.args)
		if err != nil {
			return fmt.Errorf("verify: read the record's times: %w", err)
		}
		if r.args[name], err = pgx.CollectExactlyOneRow(rows, pgx.RowTo[*time.Time]); err != nil {
			return fmt.Errorf("verify: read the record's times: %w", err)
		}
	}
	return nil
}

// part makes the next check of a part of the run, and reports whether there was
// one left.
type part func(ctx context.Context, tx pgx.Tx) (made bool, err error)

// work makes the checks of the parts, one part after the other, and shares them
// with the run's other transaction.
func work(ctx context.Context, tx pgx.Tx, parts ...part) error {
	for _, next := range parts {
		for made := true; made; {
			var err error
			if made, err = next(ctx, tx); err != nil {
				return err
			}
		}
	}
	return nil
}

// targets is the part of the run that checks each reservation and request.
func (r *run) targets(ctx context.Context, tx pgx.Tx) (made bool, err error) {
	made, err = r.pass.piece(ctx, tx)
	if err != nil {
		return false, fmt.Errorf("verify: check the reservations and requests: %w", err)
	}
	return made, nil
}

// table is the part of the run whose checks are one statement each.
func (r *run) table(ctx context.Context, tx pgx.Tx) (made bool, err error) {
	r.mu.Lock()
	i := r.begun
	r.begun++
	r.mu.Unlock()
	if i >= len(r.tables) {
		return false, nil
	}
	check := r.tables[i]
	r.step(check.name)
	if r.found[i], err = check.make(ctx, tx, r.args, r.limited); err != nil {
		return false, fmt.Errorf("verify: check %s: %w", check.name, err)
	}
	return true, nil
}

// step reports the progress.
func (r *run) step(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.done++
	r.steps = max(r.steps, r.done)
	r.Progress(Progress{Step: name, Done: r.done, Steps: r.steps})
}

// finish is the report of a run whose checks are all made.
func (r *run) finish() Report {
	targetChecks := len(r.pass.found) - len(targetNotes)
	r.report.Checks = slices.Concat(r.pass.found[:targetChecks], r.found[:r.checks])
	for _, found := range r.report.Checks {
		r.report.OK = r.report.OK && found.Broken == 0
	}
	for _, found := range slices.Concat(r.pass.found[targetChecks:], r.found[r.checks:]) {
		if found.Broken > 0 {
			r.report.Notes = append(r.report.Notes, found.note())
		}
	}
	return r.report
}

// in reports whether a run makes the check.
func (c *tableCheck) in(limited bool) bool { return !limited || c.changed || c.changedSQL != "" }

// The statement of a check is placed between these two.
const (
	boundedHead = `
WITH broken AS MATERIALIZED (
    SELECT *
    FROM (`
	boundedTail = `) AS found
    WHERE coalesce(to_jsonb(found)->>'tenant_id', '') <> ALL (@elsewhere::text[])
    LIMIT @broken_max
)
SELECT (SELECT count(*) FROM broken), to_jsonb(shown)
FROM (SELECT * FROM broken LIMIT @sample_max) AS shown`
)

// make counts the rows that break the check, up to brokenMax, and takes a
// sample of them.
func (c *tableCheck) make(ctx context.Context, tx pgx.Tx, args pgx.NamedArgs, limited bool) (Check, error) {
	found := Check{Name: c.name, Meaning: c.meaning, Sample: []json.RawMessage{}}
	sql := c.sql
	if limited && c.changedSQL != "" {
		sql = c.changedSQL
	}
	rows, err := tx.Query(ctx, boundedHead+sql+boundedTail, args)
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
