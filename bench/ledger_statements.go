package main

import (
	"context"
	"errors"
	"fmt"
	"maps"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/internal/pgdev"
	"github.com/holdfast/holdfast/internal/sleep"
)

// startPostgres starts the private Postgres, with pg_stat_statements if a ledger
// is asked for. timed is false if the extension is not installed.
func startPostgres(ctx context.Context, options pgdev.Options, wanted bool) (_ *pgdev.Server, timed bool, err error) {
	if wanted {
		tracking := options
		tracking.Settings = map[string]string{
			"shared_preload_libraries": "pg_stat_statements", "pg_stat_statements.track_planning": "on", "pg_stat_statements.track_utility": "on",
		}
		maps.Copy(tracking.Settings, options.Settings)
		if server, err := pgdev.Start(ctx, tracking); err == nil {
			return server, true, nil
		}
	}
	server, err := pgdev.Start(ctx, options)
	return server, false, err
}

// trackStatements switches the statistics of every session's statements on, from
// zero, or off.
func (b *bench) trackStatements(ctx context.Context, on bool) error {
	changes := []string{`ALTER SYSTEM SET pg_stat_statements.track = 'none'`, `SELECT pg_reload_conf()`}
	if on {
		changes[0] = `ALTER SYSTEM RESET pg_stat_statements.track`
		changes = append(changes, `CREATE EXTENSION IF NOT EXISTS pg_stat_statements`, `SELECT pg_stat_statements_reset()`)
	}
	for _, change := range changes {
		if _, err := b.admin.Exec(ctx, change); err != nil {
			return fmt.Errorf("track statements: %w", err)
		}
	}
	return nil
}

// timedStatements has the time of the statements of a database in µs, with
// planning.
const timedStatements = `
SELECT left(regexp_replace(trim(s.query), '\s+', ' ', 'g'), 60) AS statement, sum(s.calls)::bigint, sum(s.rows)::bigint,
       1000 * sum(s.total_exec_time + s.total_plan_time), 1000 * sum(s.total_plan_time)
FROM pg_stat_statements s
JOIN pg_database d ON d.oid = s.dbid
WHERE d.datname = $1
GROUP BY statement`

// statementTimes is how long Postgres takes for the statements of a load,
// measured by the server: their time, not their CPU time.
func (b *bench) statementTimes(ctx context.Context, f *deployment, name string, s *contender) (m Measure, err error) {
	if !b.timed {
		return skipped(name, "the extension pg_stat_statements is not installed"), nil
	}
	if err := b.trackStatements(ctx, true); err != nil {
		return m, err
	}
	defer func() { err = errors.Join(err, b.trackStatements(ctx, false)) }()
	if err := sleep.For(ctx, b.long/10); err != nil { // until every session knows
		return m, err
	}
	loaded, err := s.run(ctx, b.long)
	if err != nil {
		return m, err
	}
	type statement struct {
		Text        string
		Calls, Rows int64
		Total, Plan float64
	}
	rows, err := b.admin.Query(ctx, timedStatements, f.db.Config().ConnConfig.Database)
	if err != nil {
		return m, err
	}
	found, err := pgx.CollectRows(rows, pgx.RowToStructByPos[statement])
	if err != nil {
		return m, err
	}
	entries := make(map[string]float64)
	for _, s := range found {
		calls := float64(max(s.Calls, 1))
		entries[fmt.Sprintf("%s (%.0f µs and %.1f rows a call, %.0f µs of it planning)", s.Text, s.Total/calls, float64(s.Rows)/calls, s.Plan/calls)] += s.Total
	}
	return b.ledgerMeasure(name, "µs", entries, loaded.count), nil
}
