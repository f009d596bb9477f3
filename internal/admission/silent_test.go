package admission_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/internal/admission"
	"github.com/holdfast/holdfast/internal/pgtest"
	"github.com/holdfast/holdfast/internal/queues"
	"github.com/holdfast/holdfast/internal/requestrows"
	"github.com/holdfast/holdfast/internal/testkit"
	"github.com/holdfast/holdfast/migrations"
	"github.com/holdfast/holdfast/ratelimit"
	"github.com/holdfast/holdfast/requests"
)

// quick ends an attempt and the intake early, for a database that does not
// answer.
var quick = admission.IntakeConfig{CommitTimeout: time.Minute, AttemptTimeout: 2 * time.Second, StopTimeout: 300 * time.Millisecond}

// expiring is a context whose deadline passes when over is closed.
type expiring struct {
	context.Context

	over chan struct{}
}

func (c expiring) Done() <-chan struct{} { return c.over }

func (c expiring) Err() error {
	select {
	case <-c.over:
		return context.DeadlineExceeded
	default:
		return c.Context.Err()
	}
}

// newSilent returns a fixture, and a pool that connects to the fixture's database
// through a proxy.
func newSilent(t *testing.T, conns int32) (*testkit.Fixture, *pgxpool.Pool, *pgtest.Wire) {
	t.Helper()
	b := newNormal(t)
	wire := pgtest.NewWire(t, b.DB.Config().ConnString())
	config, err := pgxpool.ParseConfig(wire.URL)
	pgtest.Must(t, err)
	config.MaxConns = conns
	db, err := pgxpool.NewWithConfig(t.Context(), config)
	pgtest.Must(t, err)
	t.Cleanup(func() { wire.CutAll(); db.Close() })
	return b, db, wire
}

// running returns a running intake. stop ends it and waits for its end.
func running(t *testing.T, db *pgxpool.Pool, inserter *queues.WakeInserter, config admission.IntakeConfig) (in *admission.Intake, stop func()) {
	t.Helper()
	in, err := admission.NewIntake(db, inserter, config)
	pgtest.Must(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	var ended sync.WaitGroup
	ended.Go(func() { _ = in.Run(ctx) })
	stop = func() { cancel(); ended.Wait() }
	t.Cleanup(stop)
	return in, stop
}

// submitOn submits one request to a new intake on db, and ends the intake.
func submitOn(t *testing.T, db *pgxpool.Pool, inserter *queues.WakeInserter, config admission.IntakeConfig, s requestrows.Submission, p admission.Credentials) (requests.View, error) {
	t.Helper()
	in, stop := running(t, db, inserter, config)
	defer stop()
	v, _, err := in.SubmitMetered(t.Context(), s, p)
	return v, err
}

func submission(b *testkit.Fixture, cart, key string) requestrows.Submission {
	s := add(cart, "shoe", key)
	s.TenantID = b.Tenant
	return s
}

// The answer to a group's commit is lost, and the connection stays open. The
// next attempt reads back the rows.
func TestSwallowedCommit(t *testing.T) {
	t.Parallel()
	for name, isMetered := range map[string]bool{"plain": false, "metered": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, db, wire := newSilent(t, 10)
			config := quick
			config.Metered = isMetered
			mark, rates := "shoe", []ratelimit.Rate(nil)
			if isMetered {
				pgtest.Must(t, migrations.Up(t.Context(), b.DB, &migrations.Config{Metered: true}))
				mark, rates = "commit", []ratelimit.Rate{{Scope: "shop", Limit: 10, Amount: 1, Window: time.Hour}}
			}
			in, _ := running(t, db, b.Inserter, config)
			wire.SilenceAfter(mark, 1)
			r, _, err := in.SubmitMetered(t.Context(), submission(b, "a", ""), admission.Credentials{Rates: rates})
			if err != nil || r.CartID != "a" {
				t.Errorf("%+v, %v", r, err)
			}
			if n := b.Int(`SELECT count(*) FROM reservation_requests`); n != 1 {
				t.Errorf("%d rows, want 1", n)
			}
		})
	}
}

// If the database does not answer, no caller waits longer than its own
// deadline. A caller whose request was sent receives ErrOutcomeUnknown. A
// caller whose request was not sent, for lack of a connection, receives a
// RefusedError, and has no row afterwards. The intake stops.
func TestSilentDatabase(t *testing.T) {
	t.Parallel()
	b, db, wire := newSilent(t, 1)
	in, stop := running(t, db, b.Inserter, quick)
	if _, err := in.Submit(t.Context(), submission(b, "first", "")); err != nil {
		t.Fatal(err)
	}
	hit := wire.SilenceAfter("shoe", 1)
	ctx := expiring{t.Context(), make(chan struct{})}
	var callers sync.WaitGroup
	callers.Go(func() {
		_, err := in.Submit(ctx, submission(b, "sent", ""))
		if !errors.Is(err, admission.ErrOutcomeUnknown) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("sent: %v, want an unknown outcome", err)
		}
	})
	<-hit
	wire.Silence()
	for _, key := range []string{"", "key"} {
		callers.Go(func() {
			_, err := in.Submit(ctx, submission(b, "not sent", key))
			var refused *admission.RefusedError
			if !errors.As(err, &refused) || refused.Why != admission.WhyTimeout || refused.RetryAfter < time.Second {
				t.Errorf("not sent: %v, want a refusal", err)
			}
		})
	}
	pgtest.Until(t, "the callers wait", func() bool { return in.Pending() == 3 })
	close(ctx.over)
	callers.Wait()
	stop() // it ends, though the database does not answer
	if n := b.Int(`SELECT count(*) FROM reservation_requests WHERE cart_id = 'not sent'`); n != 0 {
		t.Errorf("%d rows of refused callers", n)
	}
}

// overdue is a context whose deadline has passed, but whose timer has not fired,
// as in a process that was stopped.
type overdue struct{ context.Context }

func (overdue) Deadline() (time.Time, bool) { return time.Now().Add(-time.Second), true }

// A request is not sent after its caller's deadline.
func TestOverdueCaller(t *testing.T) {
	t.Parallel()
	b := newNormal(t)
	in, _ := running(t, b.DB, b.Inserter, quick)
	_, err := in.Submit(overdue{t.Context()}, submission(b, "late", ""))
	var refused *admission.RefusedError
	if !errors.As(err, &refused) || refused.Why != admission.WhyTimeout {
		t.Errorf("%v, want a refusal", err)
	}
	if n := b.Int(`SELECT count(*) FROM reservation_requests`); n != 0 {
		t.Errorf("%d rows of a refused caller", n)
	}
}
