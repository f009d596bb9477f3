package boot

import (
	"errors"
	"log/slog"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/sethvargo/go-envconfig"

	"github.com/holdfast/holdfast/internal/pg"
	"github.com/holdfast/holdfast/internal/pgdev"
	"github.com/holdfast/holdfast/internal/pgtest"
	"github.com/holdfast/holdfast/migrations"
)

// newTestProgram returns a program with that environment, and its log.
func newTestProgram(t *testing.T, env map[string]string) (*Program, *pgtest.Log) {
	t.Helper()
	var log pgtest.Log
	p, err := NewProgram(t.Context(), "holdfast-test", Process{Env: envconfig.MapLookuper(env), Stderr: &log})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p, &log
}

// connect opens a pool for the test.
func connect(t *testing.T, address string) *pgxpool.Pool {
	t.Helper()
	db, err := pgxpool.New(t.Context(), address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(db.Close)
	return db
}

// Programs refuse a database on which ALTER DATABASE has turned off
// synchronous_commit.
func TestRefusesWithoutDurability(t *testing.T) {
	t.Parallel()
	address := pgtest.URL(t)
	db := connect(t, address)
	if _, err := db.Exec(t.Context(), "ALTER DATABASE "+db.Config().ConnConfig.Database+" SET synchronous_commit = off"); err != nil {
		t.Fatal(err)
	}
	p, _ := newTestProgram(t, map[string]string{"DATABASE_URL": address})
	for name, start := range map[string]func() error{
		"api":     func() error { _, err := NewAPI(t.Context(), p, APIOptions{Host: loopback}); return err },
		"worker":  func() error { _, err := NewWorker(t.Context(), p, WorkerOptions{}); return err },
		"drain":   func() error { _, err := p.RunOnce(t.Context(), "drain"); return err },
		"migrate": func() error { _, err := p.Migrate(t.Context()); return err },
	} {
		if err := start(); err == nil || !strings.Contains(err.Error(), "synchronous_commit = off") ||
			!strings.Contains(err.Error(), "ALLOW_UNSAFE_DATABASE=true") {
			t.Errorf("%s: %v, want a refusal that names the setting and the override", name, err)
		}
	}

	p, log := newTestProgram(t, map[string]string{"DATABASE_URL": address, "ALLOW_UNSAFE_DATABASE": "true"})
	if _, err := p.RunOnce(t.Context(), "drain"); err != nil {
		t.Errorf("allowed: %v", err)
	}
	if !strings.Contains(log.String(), "not durable") {
		t.Errorf("an unsafe database was served without a warning: %s", log)
	}
}

func TestRefusesFsyncOff(t *testing.T) {
	t.Parallel()
	server := pgtest.StartServer(t, pgdev.Options{Settings: map[string]string{"fsync": "off"}})
	p, _ := newTestProgram(t, map[string]string{"DATABASE_URL": server.URL("postgres")})
	if _, err := p.Migrate(t.Context()); err == nil || !strings.Contains(err.Error(), "fsync = off") {
		t.Errorf("%v, want a refusal that names fsync", err)
	}
}

func TestRefusesWithoutMigrations(t *testing.T) {
	t.Parallel()
	address := pgtest.URL(t)
	if err := migrations.Down(t.Context(), connect(t, address), nil); err != nil {
		t.Fatal(err)
	}
	p, _ := newTestProgram(t, map[string]string{"DATABASE_URL": address, "PORT": "0"})
	for name, start := range map[string]func() error{
		"api":    func() error { _, err := NewAPI(t.Context(), p, APIOptions{Host: loopback}); return err },
		"worker": func() error { _, err := NewWorker(t.Context(), p, WorkerOptions{Health: true}); return err },
		"sweep":  func() error { _, err := p.RunOnce(t.Context(), "sweep"); return err },
		"tool":   func() error { _, err := p.OpenTool(t.Context()); return err },
	} {
		if err := start(); !errors.Is(err, ErrPending) {
			t.Errorf("%s: %v, want %v", name, err, ErrPending)
		}
	}
	for _, want := range []bool{true, false} {
		if migrated, err := p.Migrate(t.Context()); err != nil || migrated != want {
			t.Errorf("migrate: %t, %v, want %t", migrated, err, want)
		}
	}
	if _, err := p.RunOnce(t.Context(), "sweep"); err != nil {
		t.Errorf("sweep after migrating: %v", err)
	}
}

// Every connection sets these parameters. A parameter in the URL takes
// precedence.
func TestSessions(t *testing.T) {
	t.Parallel()
	p, _ := newTestProgram(t, map[string]string{"DATABASE_URL": pgtest.URL(t) + "&tcp_keepalives_idle=9"})
	db, err := p.openReady(t.Context(), pool{name: "test", conns: 3, parameters: shortStatements})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	got := map[string]string{}
	for _, name := range []string{
		"application_name", "default_transaction_isolation", "idle_in_transaction_session_timeout", "statement_timeout",
		"client_connection_check_interval", "tcp_keepalives_idle", "tcp_keepalives_interval", "tcp_user_timeout", "jit",
	} {
		var value string
		if err := db.QueryRow(t.Context(), "SELECT current_setting($1)", name).Scan(&value); err != nil {
			t.Fatal(err)
		}
		got[name] = value
	}
	want := map[string]string{
		"application_name": "holdfast-test", "default_transaction_isolation": "read committed",
		"idle_in_transaction_session_timeout": "5s", "statement_timeout": "15s", "client_connection_check_interval": "1s",
		"tcp_keepalives_idle": "9", "tcp_keepalives_interval": "2", "tcp_user_timeout": "10000", "jit": "off",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("session (-want +got):\n%s", diff)
	}
	if db.Config().MaxConns != 3 {
		t.Errorf("%d connections at most, want 3", db.Config().MaxConns)
	}
}

// A program waits for a database that is starting, and not for one that rejects
// it.
func TestAwait(t *testing.T) {
	t.Parallel()
	unknown, err := url.Parse(pgtest.URL(t))
	if err != nil {
		t.Fatal(err)
	}
	unknown.Path = "/holdfast_no_such_database"
	p, _ := newTestProgram(t, map[string]string{"DATABASE_URL": unknown.String(), "DATABASE_WAIT_MAX": "1h"})
	if _, err := p.open(t.Context(), toolPool); pg.Code(err) != "3D000" {
		t.Errorf("an unknown database: %v", err)
	}
	p, log := newTestProgram(t, map[string]string{"DATABASE_URL": "postgres://127.0.0.1:1/none", "DATABASE_WAIT_MAX": "300ms"})
	if _, err := p.open(t.Context(), toolPool); err == nil || !strings.Contains(err.Error(), "DATABASE_URL") {
		t.Errorf("no server: %v", err)
	}
	if strings.Count(log.String(), "\n") != 1 || !strings.Contains(log.String(), "the start waits for it") {
		t.Errorf("the wait is not one line: %s", log)
	}
}

func TestPostgresLog(t *testing.T) {
	t.Parallel()
	const ordinary = "12:00 LOG:  ready\n12:01 FATAL:  the database system is starting up\n"
	const failure = "12:02 ERROR:  division by zero\n"
	const stop = "12:03 FATAL:  terminating connection due to administrator command\n12:04 FATAL:  the database system is shutting down\n"
	for stopping, want := range map[bool]int{false: 3, true: 1} { // a stop by another process is logged
		var log pgtest.Log
		var flag atomic.Bool
		flag.Store(stopping)
		w := postgresLog{slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelInfo})), &flag}
		lines := ordinary + failure + stop
		if n, err := w.Write([]byte(lines)); n != len(lines) || err != nil {
			t.Errorf("%d, %v", n, err)
		}
		if strings.Count(log.String(), "\n") != want || !strings.Contains(log.String(), "division by zero") {
			t.Errorf("stopping %v: logged %s, want %d lines", stopping, &log, want)
		}
	}
}
