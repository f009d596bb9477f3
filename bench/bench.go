package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/internal/pgdev"
	"github.com/holdfast/holdfast/migrations"
)

// suite measures one or more targets.
type suite struct {
	name     string
	run      func(*bench, context.Context) ([]Measure, error)
	measures []string
}

var suites = []suite{
	{"hot", (*bench).hot, []string{"hot_vs_naive", "hot_vs_handwritten", "hot_vs_unit_rows", "hot_vs_microbatch", "hot_vs_redis", "hot_vs_river", "hot_vs_limit", "hot_per_second"}},
	{"spread", (*bench).spread, []string{"spread_vs_naive", "spread_vs_handwritten"}},
	{"admit", (*bench).admit, []string{"admit_and_decide_vs_handwritten"}},
	{"units", (*bench).units, []string{"units_vs_naive"}},
	{"lines", (*bench).lines, []string{"lines_vs_sync"}},
	{"waitlist", (*bench).waitlist, []string{"waitlist_offer_p99_ms"}},
	{"metered", (*bench).metered, []string{"admit_metered_vs_plain", "admit_metered_same_committers"}},
	{"sweep", (*bench).sweep, []string{"sweep_vs_rows"}},
	{"wal", (*bench).wal, []string{"wal_vs_naive"}},
	{"wal_post", (*bench).walPost, []string{"wal_post_to_done_vs_naive"}},
	{"http", (*bench).http, []string{"http_hot_vs_sync", "http_hot_vs_handwritten", "http_hot_vs_microbatch", "http_accept_p99_vs_sync", "rss_api_mb", "rss_worker_mb"}},
	{"wait", (*bench).waiting, []string{"http_wait_vs_sync", "http_wait_vs_microbatch", "http_spread_wait_vs_sync", "http_outcome_p99_vs_microbatch", "lone_p50_vs_microbatch", "lone_p99_vs_microbatch"}},
	{"checkout", (*bench).checkout, []string{"checkout_hot_vs_sync", "checkout_spread_vs_sync", "adds_beside_checkout", "lone_checkout_p50_vs_sync"}},
	{"cycle", (*bench).cycle, []string{"cycle_hot_vs_sync"}},
	{"mixed", (*bench).mixed, []string{"mixed_hot_vs_sync"}},
	{"isolation", (*bench).isolation, []string{"isolation_p99", "isolation_p99_saturated"}},
	{"neighbour", (*bench).neighbour, []string{"neighbour_p99"}},
	{"overload", (*bench).overload, []string{"overload_goodput"}},
	{"growth", (*bench).growth, []string{"growth_hot", "growth_normal", "growth_sweep"}},
	{"year", (*bench).year, []string{"year_drain", "year_reads", "year_bytes", "year_purge_per_second", "year_vacuum_seconds", "year_verify_seconds", "year_index_levels"}},
	{"sustained", (*bench).sustained, []string{"sustained_end_vs_start", "sustained_due_seconds", "sustained_read_p99_ms"}},
	{"ledger", (*bench).ledger, []string{"ledger_cpu_us", "ledger_wal_bytes", "ledger_statements", "ledger_statement_us", "ledger_wait_cpu_us", "ledger_wait_statement_us", "ledger_bare_us", "ledger_microbatch_us"}},
	{"cells", (*bench).cells, []string{"cells_vs_one", "cells_cpu", "cells_rss_api_mb", "cells_rss_worker_mb"}},
	{"projections", (*bench).projections, []string{"projection_vs_drain", "drain_with_projections"}},
}

func suiteNames() (names []string) {
	for _, s := range suites {
		names = append(names, s.name)
	}
	return names
}

// expected are the measures of all suites.
func expected() (names []string) {
	for _, s := range suites {
		names = append(names, s.measures...)
	}
	return names
}

// bench is one run.
type bench struct {
	options
	postgres *pgdev.Server
	timed    bool // it can measure the time of statements
	// log is the server's log.
	log *statementLog
	// admin is a connection for what is not measured.
	admin  *pgxpool.Pool
	stderr io.Writer
	began  time.Time
	// rates is the rate per second of each contender when it was last measured.
	// It determines how much work the next repetition prepares.
	rates map[string]float64
	// rawRates are the raw statement's rates per second, one for each
	// repetition of the run.
	rawRates []float64
	// bars are the contenders of the plot.
	bars  []bar
	named int
	// writesOn is true while a suite runs all its repetitions between two
	// checkpoints.
	writesOn bool
	// shared serves all suites of a run without warm-up.
	shared *deployment
	// self is the path of this program. built is the folder of the programs
	// that it has built.
	self, built string
}

// settings are those of the private Postgres in addition to pgdev's: the bench
// starts the checkpoints, and the cache has a quarter of the memory, as on a
// dedicated server.
func settings() map[string]string {
	return map[string]string{
		"max_wal_size": "16GB", "checkpoint_timeout": "1h", "shared_buffers": fmt.Sprintf("%dMB", max(memory()/4, 256)),
		"log_line_prefix": statementPrefix,
	}
}

// newBench starts the private Postgres. close must follow.
func newBench(ctx context.Context, o options, stderr io.Writer) (_ *bench, err error) {
	b := &bench{options: o, stderr: stderr, began: time.Now(), rates: make(map[string]float64), log: new(statementLog)}
	if b.self, err = os.Executable(); err != nil {
		return nil, err
	}
	b.postgres, b.timed, err = startPostgres(ctx, pgdev.Options{Settings: settings(), Log: b.log}, slices.Contains(o.suites, "ledger"))
	if err != nil {
		return nil, err
	}
	if b.admin, err = pgxpool.New(ctx, b.postgres.SocketURL("postgres")); err != nil {
		return nil, errors.Join(err, b.postgres.Stop())
	}
	if b.timed {
		err = b.trackStatements(ctx, false)
	}
	return b, err
}

func (b *bench) close() error {
	if b.shared != nil {
		b.shared.close()
	}
	b.admin.Close()
	err := b.postgres.Stop()
	if b.built != "" {
		err = errors.Join(err, os.RemoveAll(b.built))
	}
	return err
}

// measure runs the suites that were asked for. With an error it returns what
// was measured before.
func measure(ctx context.Context, o options, stderr io.Writer) (all []Measure, a about, err error) {
	b, err := newBench(ctx, o, stderr)
	if err != nil {
		return nil, a, err
	}
	defer func() { err = errors.Join(err, b.close()) }()
	if a, err = describe(ctx, b); err != nil {
		return nil, a, err
	}
	cpu, known := readCPU()
	defer func() {
		a.bars, a.host.StealPercent = b.bars, stealSince(cpu, known)
		a.host.markNoisy(all)
	}()
	for _, s := range suites {
		if !slices.Contains(o.suites, s.name) {
			continue
		}
		b.progress("suite %s", s.name)
		found, err := s.run(b, ctx)
		all = append(all, found...)
		if err != nil {
			return all, a, fmt.Errorf("suite %s: %w", s.name, err)
		}
	}
	a.host.RawPerSecond, err = b.rawRate(ctx)
	return all, a, err
}

func (b *bench) progress(format string, args ...any) {
	fmt.Fprintf(b.stderr, "%6.1fs  %s\n", time.Since(b.began).Seconds(), fmt.Sprintf(format, args...))
}

func (b *bench) checkpoint(ctx context.Context) error {
	_, err := b.admin.Exec(ctx, `CHECKPOINT`)
	return err
}

// newDatabase makes a database with Holdfast's schema and returns its URL.
func (b *bench) newDatabase(ctx context.Context) (string, error) {
	b.named++
	name := fmt.Sprintf("bench_%d", b.named)
	if _, err := b.admin.Exec(ctx, `CREATE DATABASE `+pgx.Identifier{name}.Sanitize()); err != nil {
		return "", fmt.Errorf("create database %s: %w", name, err)
	}
	url := b.postgres.SocketURL(name)
	db, err := openPool(ctx, url, 2, nil)
	if err != nil {
		return "", err
	}
	defer db.Close()
	return url, migrations.Up(ctx, db, nil)
}

// openPool opens connections with the given parameters.
func openPool(ctx context.Context, url string, conns int, parameters map[string]string, also ...func(*pgxpool.Config)) (*pgxpool.Pool, error) {
	c, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, err
	}
	maps.Copy(c.ConnConfig.RuntimeParams, parameters)
	for _, change := range also {
		change(c)
	}
	c.MaxConns, c.MinConns = int32(conns), int32(conns)
	return pgxpool.NewWithConfig(ctx, c)
}

func newID() uuid.UUID { return uuid.Must(uuid.NewV7()) }
