package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/holdfast/holdfast/internal/sleep"
)

const (
	idleFor   = time.Minute
	idleShort = 500 * time.Millisecond // if only the machinery is tried
	// idleSettle is how long the all-in-one rests first. A session of Postgres
	// reports what it did within ten seconds.
	idleSettle = 15 * time.Second
)

// idle counts the statements and fsyncs that an all-in-one with a hot variant
// causes while no call comes.
func (b *bench) idle(ctx context.Context) (measures []Measure, err error) {
	f, err := b.newAllInOne(ctx)
	if err != nil {
		return nil, err
	}
	defer f.close()
	long, settle := idleFor, idleSettle
	if b.cold {
		long, settle = idleShort, idleShort
	}
	if err := b.logStatements(ctx, true); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, b.logStatements(ctx, false)) }()
	if err := sleep.For(ctx, settle); err != nil {
		return nil, err
	}
	before, err := b.written(ctx)
	if err != nil {
		return nil, err
	}
	b.log.record()
	began := time.Now()
	if err := sleep.For(ctx, long); err != nil {
		return nil, err
	}
	found, elapsed := b.log.stop(f.db.Config().ConnConfig.Database), time.Since(began)
	after, err := b.written(ctx)
	if err != nil {
		return nil, err
	}
	if b.verbose {
		for text, n := range tallied(found, func(s logged) string { return s.program + ": " + s.text }) {
			b.progress("%5d times %s", n, text)
		}
	}
	return idleMeasures(found, after.since(before), elapsed), nil
}

// logStatements switches the statement log of every session on or off.
func (b *bench) logStatements(ctx context.Context, on bool) error {
	change := `ALTER SYSTEM RESET log_statement`
	if on {
		change = `ALTER SYSTEM SET log_statement = 'all'`
	}
	if _, err := b.admin.Exec(ctx, change); err != nil {
		return fmt.Errorf("log statements: %w", err)
	}
	_, err := b.admin.Exec(ctx, `SELECT pg_reload_conf()`)
	return err
}

// written is what the server has written: syncs of the log, transactions that
// drew an id.
type written struct{ syncs, transactions int64 }

func (w written) since(before written) written {
	return written{w.syncs - before.syncs, w.transactions - before.transactions}
}

const (
	// writtenSQL has no syncs where pg_stat_wal does not count them.
	writtenSQL = `
SELECT (SELECT (to_jsonb(w) ->> 'wal_sync')::bigint FROM pg_stat_wal AS w),
       pg_snapshot_xmax(pg_current_snapshot())::text::bigint`
	// syncedByIO is for Postgres 18 and later.
	syncedByIO = `SELECT coalesce(sum(fsyncs), 0)::bigint FROM pg_stat_io WHERE object = 'wal'`
)

func (b *bench) written(ctx context.Context) (w written, err error) {
	var syncs *int64
	if err := b.admin.QueryRow(ctx, writtenSQL).Scan(&syncs, &w.transactions); err != nil {
		return w, fmt.Errorf("read the log's statistics: %w", err)
	}
	if syncs != nil {
		w.syncs = *syncs
		return w, nil
	}
	err = b.admin.QueryRow(ctx, syncedByIO).Scan(&w.syncs)
	return w, err
}

// idleMeasures are the counts per minute.
func idleMeasures(found []logged, w written, elapsed time.Duration) []Measure {
	perMinute := func(n int64) float64 { return float64(n) * time.Minute.Seconds() / elapsed.Seconds() }
	statements := newMeasure("idle_statements", "per minute", []float64{perMinute(int64(len(found)))})
	kinds := tallied(found, kindOf)
	for _, kind := range statementKinds {
		statements.note("%s %.0f", kind, perMinute(kinds[kind]))
	}
	syncs := newMeasure("idle_fsyncs", "per minute", []float64{perMinute(w.syncs)})
	syncs.note("of the log, by all processes of the server; %.0f transactions drew an id, %.0f of them to renew River's leader",
		perMinute(w.transactions), perMinute(kinds[kindLeader]))
	return []Measure{statements, syncs}
}

// The kinds of statements of an idle system.
const (
	kindLeader  = "renewals of River's leader"
	kindRiver   = "River's others"
	kindBegin   = "BEGIN, COMMIT and ROLLBACK"
	kindSession = "pings and settings of sessions"
	kindOthers  = "ticks and maintenance"
)

var statementKinds = []string{kindLeader, kindRiver, kindBegin, kindSession, kindOthers}

// kindOf is a statement's kind, by its text.
func kindOf(s logged) string {
	text := strings.ToLower(strings.TrimSpace(s.text))
	first := strings.TrimRight(strings.SplitN(text+" ", " ", 2)[0], ";")
	switch {
	case strings.Contains(text, "river_leader") && strings.Contains(text, "update"):
		return kindLeader
	case strings.Contains(text, "river"):
		return kindRiver
	case first == "begin" || first == "commit" || first == "rollback":
		return kindBegin
	case text == "-- ping" || slices.Contains([]string{"", "set", "reset", "discard", "listen", "unlisten", "deallocate"}, first):
		return kindSession
	default:
		return kindOthers
	}
}

// tallied counts statements.
func tallied(found []logged, of func(logged) string) map[string]int64 {
	n := make(map[string]int64)
	for _, s := range found {
		n[of(s)]++
	}
	return n
}

// newAllInOne starts the all-in-one on a separate database, with a hot variant.
func (b *bench) newAllInOne(ctx context.Context) (*deployment, error) {
	return b.startDeployment(ctx, func(f *deployment, start startProgram) (err error) {
		f.api, err = start(nil, "holdfast", "run")
		return err
	})
}
