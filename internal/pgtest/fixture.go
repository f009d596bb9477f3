package pgtest

import (
	"context"
	"fmt"
	"regexp"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Must fails the test at once if err is not nil.
func Must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Exec runs a statement. An error fails the test at once. If the statement
// writes deadlines of reservations, Exec also moves back the marks from which due
// holds are searched; see [LowerMarks].
func Exec(t testing.TB, db *pgxpool.Pool, sql string, args ...any) {
	t.Helper()
	if _, err := db.Exec(t.Context(), sql, args...); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	if writesDeadlines.MatchString(sql) {
		LowerMarks(t, db)
	}
}

var writesDeadlines = regexp.MustCompile(`(?s)(UPDATE|INSERT INTO) reservations\s.*expires_at`)

// LowerMarks moves back those of the marks from which due holds are searched that
// are past the deadline of a hold, as is necessary after a change of reservations
// by other means than the product's. A mark that stays locked fails the test.
func LowerMarks(t testing.TB, db *pgxpool.Pool) {
	t.Helper()
	err := pgx.BeginFunc(t.Context(), db, func(tx pgx.Tx) error {
		for _, sql := range []string{
			`SET LOCAL lock_timeout = '10s'`,
			`UPDATE inventory_stocks s
			SET due_from = held.earliest
			FROM (SELECT tenant_id, resource_key, min(expires_at) AS earliest
			      FROM reservations WHERE status = 'held' AND resource_kind = 'inventory.variant' GROUP BY 1, 2) AS held
			WHERE s.tenant_id = held.tenant_id AND s.variant_id = held.resource_key AND s.due_from > held.earliest`,
			`UPDATE reservation_marks m
			SET due_from = held.earliest, noted_xid = '18446744073709551615'
			FROM (SELECT resource_kind, min(expires_at) AS earliest FROM reservations WHERE status = 'held' GROUP BY 1) AS held
			WHERE m.resource_kind = held.resource_kind AND m.due_from > held.earliest`,
		} {
			if _, err := tx.Exec(t.Context(), sql); err != nil {
				return fmt.Errorf("%s: %w", sql, err)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// Lapse runs a statement that makes reservations due, at most a minute ago,
// beside transactions of the product. It locks all stocks, and moves the marks
// back first.
func Lapse(ctx context.Context, db *pgxpool.Pool, sql string, args ...any) error {
	return pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		for _, back := range []string{
			`SELECT FROM inventory_stocks ORDER BY tenant_id, variant_id FOR NO KEY UPDATE`,
			`UPDATE inventory_stocks SET due_from = least(due_from, clock_timestamp() - interval '1 minute')`,
			`UPDATE reservation_marks SET due_from = least(due_from, clock_timestamp() - interval '1 minute'), noted_xid = '18446744073709551615'`,
		} {
			if _, err := tx.Exec(ctx, back); err != nil {
				return err
			}
		}
		_, err := tx.Exec(ctx, sql, args...)
		return err
	})
}

// Int returns the one number that a query selects. An error fails the test at
// once.
func Int(t testing.TB, db *pgxpool.Pool, sql string, args ...any) (n int64) {
	t.Helper()
	if err := db.QueryRow(t.Context(), sql, args...).Scan(&n); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return n
}

// Fixture is a test and its database. The fixtures of the packages embed it.
type Fixture struct {
	TB testing.TB
	DB *pgxpool.Pool
}

// NewFixture makes a fixture on a database of [New].
func NewFixture(t testing.TB) Fixture {
	t.Helper()
	return Fixture{TB: t, DB: New(t)}
}

// Must is [Must].
func (f Fixture) Must(err error) {
	f.TB.Helper()
	Must(f.TB, err)
}

// Exec is [Exec].
func (f Fixture) Exec(sql string, args ...any) {
	f.TB.Helper()
	Exec(f.TB, f.DB, sql, args...)
}

// Int is [Int].
func (f Fixture) Int(sql string, args ...any) int64 {
	f.TB.Helper()
	return Int(f.TB, f.DB, sql, args...)
}

// Until is [Until].
func (f Fixture) Until(what string, holds func() bool) {
	f.TB.Helper()
	Until(f.TB, what, holds)
}

// Blocked is [UntilBlocked] for one session.
func (f Fixture) Blocked() {
	f.TB.Helper()
	UntilBlocked(f.TB, f.DB, 1)
}

// Begin opens a transaction. If it is still open when the test ends, it is
// rolled back.
func (f Fixture) Begin() pgx.Tx {
	f.TB.Helper()
	tx, err := f.DB.Begin(f.TB.Context())
	f.Must(err)
	f.TB.Cleanup(func() { _ = tx.Rollback(context.WithoutCancel(f.TB.Context())) })
	return tx
}

// Locked is a transaction that has locks until Release or the end of the test.
type Locked struct {
	pgx.Tx
	t testing.TB
}

// Lock runs a statement that takes locks, in a separate transaction.
func (f Fixture) Lock(sql string, args ...any) Locked {
	f.TB.Helper()
	tx := f.Begin()
	if _, err := tx.Exec(f.TB.Context(), sql, args...); err != nil {
		f.TB.Fatalf("%s: %v", sql, err)
	}
	return Locked{tx, f.TB}
}

// Release rolls the transaction back.
func (l Locked) Release() {
	l.t.Helper()
	Must(l.t, l.Rollback(l.t.Context()))
}

const (
	pollEvery  = 2 * time.Millisecond
	pollWithin = 5 * time.Minute
)

// Until calls holds every 2 ms until it returns true. After five minutes it fails
// the test with what, the condition in words. Call it from the goroutine of the
// test.
func Until(t testing.TB, what string, holds func() bool) {
	t.Helper()
	until(t, what, pollWithin, holds)
}

func until(t testing.TB, what string, within time.Duration, holds func() bool) {
	t.Helper()
	over, pause := time.NewTimer(within), time.NewTicker(pollEvery)
	defer over.Stop()
	defer pause.Stop()
	for !holds() {
		select {
		case <-pause.C:
		case <-over.C:
			t.Fatalf("not within %s: %s", within, what)
			return
		}
	}
}

const lockWaitsSQL = `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`

// UntilBlocked polls until at least the given number of sessions of the
// database wait for a lock.
func UntilBlocked(t testing.TB, db *pgxpool.Pool, sessions int64) {
	t.Helper()
	Until(t, "sessions wait for a lock", func() bool { return Int(t, db, lockWaitsSQL) >= sessions })
}
