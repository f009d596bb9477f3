package admission_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/holdfast/holdfast/internal/admission"
	"github.com/holdfast/holdfast/internal/inventory"
	"github.com/holdfast/holdfast/internal/lanes"
	"github.com/holdfast/holdfast/internal/pgtest"
	"github.com/holdfast/holdfast/internal/queues"
	"github.com/holdfast/holdfast/internal/requestrows"
	"github.com/holdfast/holdfast/internal/testkit"
)

// Callers with keys of both kinds of call, drains and sweeps run concurrently.
// This is normal operation, and Postgres logs no error.
func TestNormalOperationLogsNoError(t *testing.T) {
	t.Parallel()
	db, log := pgtest.NewLogged(t)
	b := testkit.On(t, db, lanes.Normal)
	b.Stock("shoe", 1000)
	b.Exec(`UPDATE inventory_stocks SET hold_ttl_seconds = 1`)
	var callers sync.WaitGroup
	for caller := range 8 {
		in := b.Intake(admission.IntakeConfig{GroupMax: 6, QueueMax: 100})
		callers.Go(func() {
			for i := range 18 {
				crosswise(t, b, in, fmt.Sprint("key-", caller%2, "-", i/3))
			}
		})
	}
	callers.Wait()
	if n := b.Int(`SELECT count(*) FROM idempotency_keys`); n == 0 {
		t.Fatal("no key belongs to a call that finishes at once")
	}

	lane := b.Lane(queues.LaneConfig{})
	b.Tick(lane)
	held := b.Int(`SELECT count(*) FROM reservations WHERE status = 'held'`)
	pgtest.Until(t, "all holds are due", func() bool {
		return b.Int(`SELECT count(*) FROM reservations WHERE status = 'held' AND expires_at > clock_timestamp()`) == 0
	})
	var sweeps sync.WaitGroup
	for range 4 {
		sweeps.Go(func() {
			if _, err := inventory.ExpireDue(t.Context(), b.DB, 500); err != nil {
				t.Error(err)
			}
		})
	}
	sweeps.Wait()
	if n := b.Int(`SELECT count(*) FROM reservations WHERE status = 'expired'`); n != held || n == 0 {
		t.Errorf("%d of %d holds are expired", n, held)
	}
	for _, line := range log.Errors() {
		t.Errorf("the server logged: %s", line)
	}
}

// A request waits for a call that finishes at once and takes the same key. The
// request is withdrawn, and the other rows of its group stay. Postgres logs no
// error.
func TestKeyClaimedWhileItsGroupWaits(t *testing.T) {
	t.Parallel()
	db, log := pgtest.NewLogged(t)
	b := testkit.On(t, db, lanes.Normal)
	tx := b.Begin()
	pgtest.Must(t, finishAtOnce(t.Context(), tx, b.Tenant, "key"))
	pgtest.Must(t, keep(t.Context(), tx, b.Tenant, "key"))
	group := gather(t, b, admission.IntakeConfig{Committers: 1, CommitTimeout: time.Minute}, []requestrows.Submission{
		add("a", "shoe", "key"), add("a", "shoe", "other"), add("a", "shoe", "key"), add("b", "shoe", ""),
	})
	var answers []answer
	over := make(chan struct{})
	go func() { answers = group.run(); close(over) }()
	b.Blocked()
	pgtest.Must(t, tx.Commit(t.Context()))
	<-over
	for i, want := range []error{requestrows.ErrKeyReused, nil, requestrows.ErrKeyReused, nil} {
		if answers[i].err != want {
			t.Errorf("caller %d: %v, want %v", i, answers[i].err, want)
		}
	}
	if n := b.Int(`SELECT count(*) FROM reservation_requests`); n != 2 {
		t.Errorf("%d rows, want 2", n)
	}
	for _, line := range log.Errors() {
		t.Errorf("the server logged: %s", line)
	}
}
