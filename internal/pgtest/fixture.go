package pgtest

import (
	"context"
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
// writes deadlines of reservations, Exec also resets the marks from which due
// holds are searched; see [ResetMarks].
func Exec(t testing.TB, db *pgxpool.Pool, sql string, args ...any) {
	t.Helper()
	if _, err := db.Exec(t.Context(), sql, args...); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	if writesDeadlines.MatchString(sql) {
		ResetMarks(t, db)
	}
}

var writesDeadlines = regexp.MustCompile(`(?s)(UPDATE|INSERT INTO) reservations\s.*expires_at`)

// ResetMarks resets the marks from which due holds are searched, as the comments
// of the schema ask after a change of reservations by other means than the
// product's. A stock that is locked is left out.
func ResetMarks(t testing.TB, db *pgxpool.Pool) {
	t.Helper()
	for _, sql := range []string{
		`UPDATE inventory_stocks s
		SET due_from = '-infinity'
		FROM (SELECT ctid FROM inventory_stocks WHERE due_from <> '-infinity' FOR NO KEY UPDATE SKIP LOCKED) AS free
		WHERE s.ctid = free.ctid`,
		`DELETE FROM reservation_marks`,
	} {
		if _, err := db.Exec(t.Context(), sql); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
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
	pollWithin = time.Minute
)

// Until calls holds every 2 ms until it returns true. After a minute it fails
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
