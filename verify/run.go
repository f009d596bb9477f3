package verify

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
)

// run is the state of one run.
type run struct {
	Config

	tx     pgx.Tx
	report Report
	// args are the parameters of the statements: @since, the cut-off; @margin;
	// @now, the clock at the snapshot; @latest, the latest time that the clock
	// has had; @worked, a time at which the service worked, and a minute ago;
	// @after, the audit id after which the record is checked; and the bounds of
	// Config.
	args        pgx.NamedArgs
	limited     bool // to what changed
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
// clock was set back; then it selects an earlier one.
const afterSQL = `
SELECT coalesce((SELECT min(a.audit_id) - 1 FROM audit_log AS a WHERE a.created_at >= $1), (SELECT max(a.audit_id) FROM audit_log AS a), 0)`

// stepsSQL estimates the pieces of the pass over the targets.
const stepsSQL = `
SELECT coalesce(sum(greatest(c.reltuples, 0)), 0)::bigint / $1
FROM pg_class AS c
WHERE c.oid IN ('reservations'::regclass, 'reservation_requests'::regclass)`

// begin sets up the transaction and reads the clock and the bounds of the run.
func (r *run) begin(ctx context.Context) error {
	if _, err := r.tx.Exec(ctx, settleSQL, fmt.Sprint(r.StatementTimeout.Milliseconds())); err != nil {
		return fmt.Errorf("verify: set up the transaction: %w", err)
	}
	if err := r.tx.QueryRow(ctx, sinceSQL, r.Retention).Scan(&r.report.CheckedAt, &r.report.Since); err != nil {
		return fmt.Errorf("verify: read the clock: %w", err)
	}
	r.limited = r.AfterID > 0 || !r.Config.Since.IsZero()
	r.report.AfterID = r.AfterID
	if !r.Config.Since.IsZero() {
		if err := r.tx.QueryRow(ctx, afterSQL, r.Config.Since).Scan(&r.report.AfterID); err != nil {
			return fmt.Errorf("verify: find the first audit row since %s: %w", r.Config.Since.Format(time.RFC3339), err)
		}
	}
	r.args = pgx.NamedArgs{
		"since": r.report.Since, "margin": margin, "now": r.report.CheckedAt, "after": r.report.AfterID,
		"lifetime_max": r.LifetimeMax, "queue_age_max": r.QueueAgeMax, "broken_max": BrokenMax, "sample_max": SampleMax,
	}
	for name, sql := range map[string]string{"latest": latestSQL, "worked": workedSQL} {
		rows, err := r.tx.Query(ctx, sql, r.args)
		if err != nil {
			return fmt.Errorf("verify: read the record's times: %w", err)
		}
		if r.args[name], err = pgx.CollectExactlyOneRow(rows, pgx.RowTo[*time.Time]); err != nil {
			return fmt.Errorf("verify: read the record's times: %w", err)
		}
	}
	if err := r.tx.QueryRow(ctx, stepsSQL, targetsMax).Scan(&r.steps); err != nil {
		return fmt.Errorf("verify: estimate the rows: %w", err)
	}
	return nil
}

// targets makes the checks of each reservation and request.
func (r *run) targets(ctx context.Context) (err error) {
	checks := slices.Concat(requestChecks, reservationChecks, recordChecks, laneChecks)
	if r.LifetimeMax > 0 {
		checks = append(checks, lifetimeCheck)
	}
	if r.QueueAgeMax > 0 {
		checks = append(checks, queueAgeCheck)
	}
	p := newTargetPass(r.tx, append(checks, targetNotes...), r.args, func() { r.step("targets") })
	if r.limited {
		err = p.changed(ctx, r.report.AfterID)
	} else {
		err = p.all(ctx)
	}
	if err != nil {
		return fmt.Errorf("verify: check the reservations and requests: %w", err)
	}
	for _, found := range p.found[:len(checks)] {
		r.add(found)
	}
	for _, found := range p.found[len(checks):] {
		r.note(found)
	}
	return nil
}

// tables makes the checks that are one statement each.
func (r *run) tables(ctx context.Context) error {
	metered, err := r.meteredChecks(ctx)
	if err != nil {
		return err
	}
	checks := slices.Concat(stockChecks, requestTableChecks, keyChecks, auditChecks, laneTableChecks, unitChecks, checkoutChecks, metered)
	notes := slices.Concat(clockNotes, unitNotes)
	r.steps = r.done + int64(len(checks)+len(notes))
	for i, check := range slices.Concat(checks, notes) {
		if !check.in(r.limited) {
			continue
		}
		r.step(check.name)
		found, err := check.make(ctx, r.tx, r.args, r.limited)
		if err != nil {
			return fmt.Errorf("verify: check %s: %w", check.name, err)
		}
		if i < len(checks) {
			r.add(found)
		} else {
			r.note(found)
		}
	}
	return nil
}

// step reports the progress.
func (r *run) step(name string) {
	r.done++
	r.steps = max(r.steps, r.done)
	r.Progress(Progress{Step: name, Done: r.done, Steps: r.steps})
}

func (r *run) add(found Check) {
	r.report.OK = r.report.OK && found.Broken == 0
	r.report.Checks = append(r.report.Checks, found)
}

func (r *run) note(found Check) {
	if found.Broken > 0 {
		r.report.Notes = append(r.report.Notes, found.note())
	}
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
    LIMIT @broken_max
)
SELECT (SELECT count(*) FROM broken), to_jsonb(shown)
FROM (SELECT * FROM broken LIMIT @sample_max) AS shown`
)

// make counts the rows that break the check, up to BrokenMax, and takes a
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
