package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/internal/sleep"
)

// ledger is the cost of one request from POST to done by stage, with 64 clients
// over HTTP on one hot variant.
func (b *bench) ledger(ctx context.Context) ([]Measure, error) {
	return b.withDeployment(ctx, func(f *deployment) ([]Measure, error) { return b.ledgerOf(ctx, f) })
}

func (b *bench) ledgerOf(ctx context.Context, f *deployment) ([]Measure, error) {
	queued := f.contender()
	f.untilQuiet(queued)
	if err := b.checkpoint(ctx); err != nil {
		return nil, err
	}
	if _, err := queued.run(ctx, b.long); err != nil { // the warm-up
		return nil, err
	}
	inspectable, err := b.inspectLog(ctx)
	if err != nil {
		return nil, err
	}
	var position string
	if err := b.admin.QueryRow(ctx, positionSQL).Scan(&position); err != nil {
		return nil, err
	}
	var loaded sample
	cpu, err := b.cpuOf(ctx, f, "ledger_cpu_us", func() (sample, error) {
		err := b.profiled(ctx, f, func() (err error) {
			loaded, err = queued.run(ctx, 2*b.long)
			return err
		})
		return loaded, err
	})
	if err != nil {
		return nil, err
	}
	wal := skipped("ledger_wal_bytes", "the extension pg_walinspect is not installed")
	if inspectable {
		log, err := b.walByRelation(ctx, f, position)
		if err != nil {
			return nil, err
		}
		wal = b.ledgerMeasure("ledger_wal_bytes", "bytes", log, loaded.count)
	}
	statements, err := b.statements(ctx, f, queued)
	if err != nil {
		return nil, err
	}
	times, err := b.statementTimes(ctx, f, "ledger_statement_us", queued)
	if err != nil {
		return nil, err
	}
	waiting, err := b.waitingLedger(ctx, f)
	if err != nil {
		return nil, err
	}
	bare, err := b.bareCPU(ctx)
	if err != nil {
		return nil, err
	}
	return slices.Concat([]Measure{cpu, wal, statements, times}, waiting, bare), f.checkRows(ctx, sample{})
}

// waitingLedger is the ledger of callers that wait for the outcome.
func (b *bench) waitingLedger(ctx context.Context, f *deployment) ([]Measure, error) {
	waiting := f.waitingContender(waitName, "HTTP: Holdfast, 64 clients that wait", httpClients, toHot)
	if _, err := waiting.run(ctx, b.long); err != nil { // the warm-up
		return nil, err
	}
	cpu, err := b.cpuOf(ctx, f, "ledger_wait_cpu_us", func() (sample, error) { return waiting.run(ctx, 2*b.long) })
	if err != nil {
		return nil, err
	}
	times, err := b.statementTimes(ctx, f, "ledger_wait_statement_us", waiting)
	return []Measure{cpu, times}, err
}

// cpuOf is the CPU time of a load, by stage.
func (b *bench) cpuOf(ctx context.Context, f *deployment, name string, run func() (sample, error)) (m Measure, err error) {
	before, err := b.stages(ctx, f)
	if err != nil && !errors.Is(err, errNoCPU) {
		return m, err
	}
	loaded, err := run()
	if err != nil || before == nil {
		return skipped(name, errNoCPU.Error()), err
	}
	after, err := b.stages(ctx, f)
	if err != nil {
		return m, err
	}
	return b.ledgerMeasure(name, "µs", microseconds(after.since(before)), loaded.count), nil
}

func microseconds(used map[string]time.Duration) map[string]float64 {
	all := make(map[string]float64)
	for stage, d := range used {
		all[stage] = float64(d.Microseconds())
	}
	return all
}

// ledgerMeasure is the sum of an account's entries per request. Its note has
// each entry, the largest first.
func (b *bench) ledgerMeasure(name, unit string, entries map[string]float64, requests int64) Measure {
	var sum float64
	for _, amount := range entries {
		sum += amount / float64(max(requests, 1))
	}
	m := newMeasure(name, unit, []float64{sum})
	m.note("per request, of %d", requests)
	for _, entry := range slices.SortedFunc(maps.Keys(entries), func(x, y string) int {
		return cmp.Or(cmp.Compare(entries[y], entries[x]), cmp.Compare(x, y))
	}) {
		each := entries[entry] / float64(max(requests, 1))
		b.progress("%-50s %10.3f %s", entry, each, unit)
		if each >= 0.01*sum && each > 0 {
			m.note("%s %.3g", entry, each)
		}
	}
	return m
}

// walRecords has the bytes of the log by the file of the relation that a record
// names first, 0 for a relation of another database, and NULL with the kind of
// record for those that name none. It needs pg_walinspect.
const walRecords = `
SELECT CASE named[1] WHEN (SELECT oid::text FROM pg_database WHERE datname = $2) THEN named[2]::bigint
                     ELSE 0 * named[2]::bigint END,
       resource_manager, sum(record_length)::bigint
FROM pg_get_wal_records_info($1::text::pg_lsn, pg_current_wal_flush_lsn()),
     LATERAL (SELECT regexp_match(block_ref, 'rel \d+/(\d+)/(\d+)') AS named) AS first
GROUP BY 1, 2`

const relationsSQL = `
SELECT pg_relation_filenode(c.oid)::bigint, n.nspname || '.' || c.relname
FROM pg_class c
JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE pg_relation_filenode(c.oid) IS NOT NULL`

const inspectableSQL = `SELECT EXISTS (SELECT FROM pg_available_extensions WHERE name = 'pg_walinspect')`

// inspectLog makes the server's WAL readable. It returns false if the extension
// for it is not installed.
func (b *bench) inspectLog(ctx context.Context) (bool, error) {
	var there bool
	if err := b.admin.QueryRow(ctx, inspectableSQL).Scan(&there); err != nil || !there {
		return false, err
	}
	if _, err := b.admin.Exec(ctx, `CREATE EXTENSION IF NOT EXISTS pg_walinspect`); err != nil {
		return false, fmt.Errorf("create pg_walinspect: %w", err)
	}
	return true, nil
}

// walByRelation is the bytes of WAL since a position, by table and index. A
// record counts for the first of them that it names.
func (b *bench) walByRelation(ctx context.Context, f *deployment, position string) (map[string]float64, error) {
	type relation struct {
		Node int64
		Name string
	}
	rows, err := f.db.Query(ctx, relationsSQL)
	if err != nil {
		return nil, err
	}
	relations, err := pgx.CollectRows(rows, pgx.RowToStructByPos[relation])
	if err != nil {
		return nil, err
	}
	names := make(map[int64]string, len(relations))
	for _, r := range relations {
		names[r.Node] = r.Name
	}
	type record struct {
		File *int64
		Kind string
		Size int64
	}
	if rows, err = b.admin.Query(ctx, walRecords, position, f.db.Config().ConnConfig.Database); err != nil {
		return nil, err
	}
	records, err := pgx.CollectRows(rows, pgx.RowToStructByPos[record])
	if err != nil {
		return nil, err
	}
	bytes := make(map[string]float64)
	for _, r := range records {
		entry := "no relation: " + r.Kind
		if r.File != nil {
			entry = cmp.Or(names[*r.File], "other relations")
		}
		bytes[entry] += float64(r.Size)
	}
	return bytes, nil
}

// statements counts the statements of a load by program. Those that are sent in
// one batch count each.
func (b *bench) statements(ctx context.Context, f *deployment, s *contender) (m Measure, err error) {
	if err := b.logStatements(ctx, true); err != nil {
		return m, err
	}
	defer func() { err = errors.Join(err, b.logStatements(ctx, false)) }()
	if err := sleep.For(ctx, b.long/10); err != nil { // until every session knows
		return m, err
	}
	before, err := b.written(ctx)
	if err != nil {
		return m, err
	}
	b.log.record()
	loaded, err := s.run(ctx, b.long)
	found := b.log.stop(f.db.Config().ConnConfig.Database)
	if err != nil {
		return m, err
	}
	after, err := b.written(ctx)
	if err != nil {
		return m, err
	}
	byProgram := make(map[string]float64)
	for program, count := range tallied(found, func(s logged) string { return s.program }) {
		if strings.HasPrefix(program, "holdfast") {
			byProgram[program] = float64(count)
		}
	}
	m = b.ledgerMeasure("ledger_statements", "statements", byProgram, loaded.count)
	n, requests := after.since(before), float64(max(loaded.count, 1))
	m.note("%.3g fsyncs of the log, %.3g transactions that wrote", float64(n.syncs)/requests, float64(n.transactions)/requests)
	return m, nil
}
