package migrations_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/internal/pgdev"
	"github.com/holdfast/holdfast/internal/pgtest"
	"github.com/holdfast/holdfast/migrations"
)

// While another transaction has read every table, a migration waits, and
// writers pass it: none waits behind it for long. When that transaction ends,
// the migration is applied.
func TestUpLetsWritersPass(t *testing.T) {
	t.Parallel()
	db := behind(t)
	reader := readEverything(t, db)
	logged := &atomic.Int32{}
	config := &migrations.Config{Log: slog.New(slog.NewTextHandler(writerFunc(func(line string) {
		logged.Add(1)
		if !strings.Contains(line, "level=WARN") || !strings.Contains(line, fmt.Sprintf("process %d ", reader.PID)) {
			t.Errorf("it logged %s, want a warning that names process %d", line, reader.PID)
		}
	}), nil))}
	migrated := make(chan error, 1)
	go func() { migrated <- migrations.Up(t.Context(), db, config) }()
	const attemptsSQL = `SELECT virtualtransaction FROM pg_locks WHERE locktype = 'relation' AND NOT granted AND mode = 'AccessExclusiveLock'
		AND relation = 'reservation_requests'::regclass`
	attempts := map[string]bool{} // each is another transaction
	pgtest.Until(t, "the migration waits for the table for the third time", func() bool {
		for _, attempt := range column(t, db, attemptsSQL) {
			attempts[attempt] = true
		}
		write(t, db)
		return len(attempts) == 3
	})
	select {
	case err := <-migrated:
		t.Fatalf("it ended while the tables were locked: %v", err)
	default:
	}
	reader.end(t)
	if err := <-migrated; err != nil {
		t.Fatal(err)
	}
	expectPending(t, db, false, "the migrated database")
	if logged.Load() != 1 {
		t.Errorf("%d lines were logged, want one", logged.Load())
	}
}

// A migration that never gets its lock ends with an error that names the
// transaction, and has changed nothing. The next one is applied.
func TestUpGivesUp(t *testing.T) {
	t.Parallel()
	db := behind(t)
	before := catalogue(t, db)
	reader := readEverything(t, db)
	err := migrations.Up(t.Context(), db, &migrations.Config{LockWaitMax: 1200 * time.Millisecond})
	if err == nil || !strings.Contains(err.Error(), "keeps a table locked") || !strings.Contains(err.Error(), fmt.Sprintf("process %d ", reader.PID)) {
		t.Errorf("%v, want a locked table and process %d", err, reader.PID)
	}
	if diff := cmp.Diff(before, catalogue(t, db)); diff != "" {
		t.Errorf("it left something behind (-before +after):\n%s", diff)
	}
	reader.end(t)
	up(t, db)
	expectPending(t, db, false, "the migrated database")
}

func TestUpIsCancelled(t *testing.T) {
	t.Parallel()
	db := behind(t)
	reader := readEverything(t, db)
	ctx, cancel := context.WithCancel(t.Context())
	config := &migrations.Config{Log: slog.New(slog.NewTextHandler(writerFunc(func(string) { cancel() }), nil))}
	if err := migrations.Up(ctx, db, config); !errors.Is(err, context.Canceled) {
		t.Errorf("%v, want %v", err, context.Canceled)
	}
	expectPending(t, db, true, "a database whose migration was cancelled")
	reader.end(t)
	up(t, db)
	expectPending(t, db, false, "the migrated database")
}

func TestConfigIsChecked(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	for _, c := range []migrations.Config{{LockTimeout: -time.Second}, {LockTimeout: time.Microsecond}, {LockWaitMax: -1}} {
		if err := migrations.Up(t.Context(), db, &c); err == nil || !strings.Contains(err.Error(), "lock_timeout") {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

// An autovacuum that would last for minutes is ended. Postgres does that only
// for a lock that waits for deadlock_timeout, a second, and no statement of a
// migration waits that long.
func TestUpEndsAutovacuum(t *testing.T) {
	t.Parallel()
	server := pgtest.StartServer(t, pgdev.Options{Settings: map[string]string{"autovacuum_naptime": "1s"}})
	db := pgtest.Open(t, server.URL("postgres"))
	up(t, db)
	if err := migrations.DownToBaseline(t.Context(), db); err != nil {
		t.Fatal(err)
	}
	for _, sql := range []string{
		// A page each 100 ms: a vacuum lasts for a minute at least.
		`ALTER TABLE reservation_requests SET (autovacuum_vacuum_cost_delay = 100, autovacuum_vacuum_cost_limit = 1,
			autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1)`,
		`INSERT INTO reservation_requests (tenant_id, request_id, lane, cart_id, variant_id, quantity)
		 SELECT gen_random_uuid(), gen_random_uuid(), 'normal', 'cart', 'shirt', 1 FROM generate_series(1, 20000)`,
		`UPDATE reservation_requests SET status = 'done' WHERE sequence <= 10000`,
	} {
		if _, err := db.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	const vacuumsSQL = `SELECT count(*)::text FROM pg_stat_progress_vacuum WHERE relid = 'reservation_requests'::regclass`
	pgtest.Until(t, "the table is vacuumed", func() bool { return column(t, db, vacuumsSQL)[0] != "0" })
	up(t, db)
	const finishedSQL = `SELECT autovacuum_count::text FROM pg_stat_user_tables WHERE relname = 'reservation_requests'`
	if n := column(t, db, finishedSQL)[0]; n != "0" {
		t.Errorf("%s vacuums were finished before the migration, want none", n)
	}
	expectPending(t, db, false, "the migrated database")
}

// No migration after the baseline rewrites a table, which would be locked until
// all its rows are written.
func TestMigrationsRewriteNothing(t *testing.T) {
	t.Parallel()
	db := behind(t)
	const filesSQL = `
SELECT relname || ' ' || pg_relation_filenode(oid)
FROM pg_class
WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace
ORDER BY relname`
	before := column(t, db, filesSQL)
	up(t, db)
	after := map[string]bool{}
	for _, file := range column(t, db, filesSQL) {
		after[file] = true
	}
	for _, file := range before {
		if !after[file] {
			t.Errorf("%s, the table with its file, is not there any more", file)
		}
	}
}

// behind is a database that has the baseline only.
func behind(t *testing.T) *pgxpool.Pool {
	t.Helper()
	db := pgtest.New(t)
	if err := migrations.DownToBaseline(t.Context(), db); err != nil {
		t.Fatal(err)
	}
	return db
}

// reader is a transaction that has read every table, as a dump does.
type reader struct {
	tx  pgx.Tx
	PID uint32
}

func readEverything(t *testing.T, db *pgxpool.Pool) *reader {
	t.Helper()
	tx, err := db.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	r := &reader{tx, tx.Conn().PgConn().PID()}
	t.Cleanup(func() { r.end(t) })
	for _, table := range column(t, db, `SELECT quote_ident(tablename) FROM pg_tables WHERE schemaname = 'public'`) {
		if _, err := tx.Exec(t.Context(), `LOCK TABLE `+table+` IN ACCESS SHARE MODE`); err != nil {
			t.Fatal(err)
		}
	}
	return r
}

func (r *reader) end(t *testing.T) {
	t.Helper()
	if err := r.tx.Rollback(context.Background()); err != nil && !errors.Is(err, pgx.ErrTxClosed) {
		t.Error(err)
	}
}

// write admits a request. It fails the test if it waits behind a migration that
// waits for LockWaitMax.
func write(t *testing.T, db *pgxpool.Pool) {
	t.Helper()
	err := pgx.BeginFunc(t.Context(), db, func(tx pgx.Tx) error {
		if _, err := tx.Exec(t.Context(), `SET LOCAL lock_timeout = '30s'`); err != nil {
			return err
		}
		_, err := tx.Exec(t.Context(), `INSERT INTO reservation_requests (tenant_id, request_id, lane, cart_id, variant_id, quantity)
			VALUES (gen_random_uuid(), gen_random_uuid(), 'normal', 'cart', 'shirt', 1)`)
		return err
	})
	if err != nil {
		t.Fatalf("a write beside the migration: %v", err)
	}
}

// writerFunc takes the lines of a log.
type writerFunc func(string)

var _ io.Writer = writerFunc(nil)

func (f writerFunc) Write(p []byte) (int, error) {
	f(string(p))
	return len(p), nil
}
