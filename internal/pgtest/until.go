package pgtest

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

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
