package admission_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/internal/admission"
	"github.com/holdfast/holdfast/internal/pgtest"
	"github.com/holdfast/holdfast/internal/queues"
	"github.com/holdfast/holdfast/internal/requestrows"
	"github.com/holdfast/holdfast/internal/testkit"
	"github.com/holdfast/holdfast/requests"
)

// directSteps is the minimum number of steps of a direct decision: the batch
// that begins, locks and reads; the read of the cart's holds; the batch that
// inserts, writes the decision and commits; and the moment after it.
const directSteps = 4

// decideOn admits a request through a new intake on db, which decides the
// request if it can.
func decideOn(t *testing.T, b *testkit.Fixture, db *pgxpool.Pool, s requestrows.Submission, config admission.IntakeConfig) (requests.View, error) {
	t.Helper()
	config.Decider = b.Decider
	return submitOn(t, db, b.Inserter, config, s, admission.Credentials{})
}

// oneEffect drains, and fails the test unless n requests exist, each with one
// hold of one unit and one audit row.
func oneEffect(t *testing.T, b *testkit.Fixture, what string, n int64) {
	t.Helper()
	lane := b.Lane(queues.LaneConfig{ServeFor: 50 * time.Millisecond})
	b.Until("nothing is queued", func() bool {
		b.Tick(lane)
		return b.Int(`SELECT count(*) FROM reservation_requests WHERE status = 'queued'`) == 0
	})
	b.CheckInvariants()
	got := [...]int64{
		b.Int(`SELECT count(*) FROM reservation_requests WHERE status = 'done'`), b.Int(`SELECT count(*) FROM reservation_requests`),
		b.Int(`SELECT count(*) FROM reservations WHERE status = 'held'`), b.Int(`SELECT reserved FROM inventory_stocks`),
		b.Int(`SELECT count(*) FROM audit_log WHERE action = 'reservation.held'`), b.Int(`SELECT count(*) FROM audit_log WHERE tenant_id = $1 AND action <> 'stock.set'`, b.Tenant),
	}
	if want := [...]int64{n, n, n, n, n, n}; got != want {
		t.Errorf("%s: done, requests, holds, reserved, audit rows of holds, audit rows are %d, want %d", what, got, n)
	}
}

// newDying returns a fixture whose cart is read before it is decided, and a
// submission under a key.
func newDying(t *testing.T) (*testkit.Fixture, func(key string) requestrows.Submission) {
	t.Helper()
	b, _ := newDeciding(t)
	b.Stock("shoe", 1000)
	b.Exec(`UPDATE inventory_stocks SET max_per_cart = 1000`)
	return b, func(key string) requestrows.Submission {
		s := waiting("a", "shoe", key)
		s.TenantID = b.Tenant
		return s
	}
}

// The session of a direct decision ends between any two of its steps. The
// intake repeats the group without the decision, and reads back the rows of the
// first attempt. There is one effect. The caller's repetition has none.
func TestSessionOfDirectDecisionEnds(t *testing.T) {
	t.Parallel()
	b, keyed := newDying(t)
	for last := 1; ; last++ {
		db, ended := pgtest.NewEnded(t, b.DB, last)
		what := fmt.Sprint("ended ahead of step ", last)
		s := keyed(fmt.Sprint("key-", last))
		v, err := decideOn(t, b, db, s, admission.IntakeConfig{})
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if n := b.Int(`SELECT count(*) FROM reservation_requests WHERE status = 'done'`); n < int64(last-1) || n > int64(last) {
			t.Fatalf("%s: %d are done", what, n)
		}
		oneEffect(t, b, what, int64(last))
		again, err := decideOn(t, b, b.DB, s, admission.IntakeConfig{})
		if err != nil || again.RequestID != v.RequestID || again.Status != requests.Done {
			t.Errorf("%s: repeated as %s %s, %v, want %s done", what, again.RequestID, again.Status, err, v.RequestID)
		}
		oneEffect(t, b, what+", repeated", int64(last))
		if !ended.Load() || t.Failed() {
			if last <= directSteps {
				t.Errorf("it has %d steps", last-1)
			}
			if !ended.Load() && (v.Status != requests.Done || v.Reservation == nil) {
				t.Errorf("without a fault it is %s", v.Status)
			}
			return
		}
	}
}

// whole fails the test unless the nth request is decided completely or has no
// row. It reports whether it is decided.
func whole(t *testing.T, b *testkit.Fixture, what string, n int64) (decided bool) {
	t.Helper()
	b.Until("the broken session has ended", func() bool {
		return b.Int(`SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND xact_start IS NOT NULL AND pid <> pg_backend_pid()`) == 0
	})
	got := b.Int(`SELECT count(*) FROM reservation_requests`)
	for _, sql := range []string{
		`SELECT count(*) FROM reservation_requests WHERE status = 'done'`, `SELECT count(*) FROM reservations`,
		`SELECT reserved FROM inventory_stocks`, `SELECT count(*) FROM audit_log WHERE tenant_id = (SELECT tenant_id FROM inventory_stocks) AND action <> 'stock.set'`,
	} {
		if rows := b.Int(sql); rows != got || got < n-1 || got > n {
			t.Errorf("%s: %d requests, but %s is %d; want %d of each, or one less", what, got, sql, rows, n)
		}
	}
	return got == n
}

var errNoConnection = errors.New("no further connection")

// The connection breaks at each message: before the server has received it, or
// after that, so that the answer is lost. No other connection can be made. The
// decision is complete or absent, and the caller's repetition under its key has
// no second effect.
func TestConnectionOfDirectDecisionBreaks(t *testing.T) {
	t.Parallel()
	for name, breakAt := range map[string]func(*pgtest.Wire, int){
		"before it is sent": (*pgtest.Wire).CutAt, "before it is answered": (*pgtest.Wire).LoseAt,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, keyed := newDying(t)
			wire := pgtest.NewWire(t, b.DB.Config().ConnString())
			decided := 0 // decisions of attempts without an answer
			for attempt, piece := 1, 1; ; attempt, piece = attempt+1, piece+1 {
				armed := atomic.Bool{}
				config, err := pgxpool.ParseConfig(wire.URL)
				pgtest.Must(t, err)
				config.MaxConns = 1
				config.BeforeConnect = func(context.Context, *pgx.ConnConfig) error {
					if armed.Load() {
						return errNoConnection
					}
					return nil
				}
				db, err := pgxpool.NewWithConfig(t.Context(), config)
				pgtest.Must(t, err)
				pgtest.Must(t, db.Ping(t.Context()))
				armed.Store(true)
				breakAt(wire, piece)
				what, s := fmt.Sprint("piece ", piece), keyed(fmt.Sprint("key-", attempt))
				_, err = decideOn(t, b, db, s, quick)
				sent := wire.Sent()
				broke := sent >= piece
				db.Close()
				if is := whole(t, b, what, int64(attempt)); is && broke {
					decided++
				} else if !is && !broke {
					t.Errorf("%s: nothing broke, and nothing was decided: %v", what, err)
				}
				if broke && err == nil {
					t.Errorf("%s: the caller received an answer", what)
				}
				v, err := decideOn(t, b, b.DB, s, admission.IntakeConfig{})
				pgtest.Must(t, err)
				if v.Status != requests.Done {
					t.Errorf("%s: repeated, it is %s", what, v.Status)
				}
				oneEffect(t, b, what, int64(attempt))
				if broke && !t.Failed() {
					continue
				}
				// An attempt that waits for a lock sends an extra piece, so the
				// loop can pass COMMIT, which is the last piece, without a break.
				if name == "before it is answered" && decided == 0 && attempt < 50 && !t.Failed() {
					piece = sent - 1
					continue
				}
				if piece <= directSteps-1 || (decided > 0) != (name == "before it is answered") {
					t.Errorf("%d pieces are sent; %d times it was decided without an answer", piece-1, decided)
				}
				return
			}
		})
	}
}
