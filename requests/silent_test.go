package requests_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/internal/lanetest"
	"github.com/holdfast/holdfast/internal/pgtest"
	"github.com/holdfast/holdfast/metered"
	"github.com/holdfast/holdfast/migrations"
	"github.com/holdfast/holdfast/requests"
)

// quick are bounds for a database that does not answer.
var quick = requests.IntakeConfig{CommitTimeout: 2 * time.Second, AttemptTimeout: 500 * time.Millisecond, StopTimeout: 300 * time.Millisecond}

// newSilent returns a bench, and a pool of its database behind a wire.
func newSilent(t *testing.T, conns int32) (*lanetest.Bench, *pgxpool.Pool, *pgtest.Wire) {
	t.Helper()
	b := newNormal(t)
	wire := pgtest.NewWire(t, b.DB.Config().ConnString())
	config, err := pgxpool.ParseConfig(wire.URL)
	must(t, err)
	config.MaxConns = conns
	db, err := pgxpool.NewWithConfig(t.Context(), config)
	must(t, err)
	t.Cleanup(func() { wire.CutAll(); db.Close() })
	return b, db, wire
}

// running is an intake until stop, which waits for its end.
func running(t *testing.T, db *pgxpool.Pool, ringer requests.Ringer, config requests.IntakeConfig) (in *requests.Intake, stop func()) {
	t.Helper()
	in, err := requests.NewIntake(db, ringer, config)
	must(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	var ended sync.WaitGroup
	ended.Go(func() { _ = in.Run(ctx) })
	stop = func() { cancel(); ended.Wait() }
	t.Cleanup(stop)
	return in, stop
}

// submitOn submits one request to an intake of its own on db, which ends then.
func submitOn(t *testing.T, db *pgxpool.Pool, ringer requests.Ringer, config requests.IntakeConfig, s requests.Submission, p requests.Pass) (requests.View, error) {
	t.Helper()
	in, stop := running(t, db, ringer, config)
	defer stop()
	v, _, err := in.SubmitMetered(t.Context(), s, p)
	return v, err
}

func submission(b *lanetest.Bench, cart, key string) requests.Submission {
	s := add(cart, "shoe", key)
	s.TenantID = b.Tenant
	return s
}

// The answer to a group's commit is swallowed, and the connection stays open: the next attempt reads back what happened.
func TestSwallowedCommit(t *testing.T) {
	t.Parallel()
	for name, isMetered := range map[string]bool{"plain": false, "metered": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, db, wire := newSilent(t, 10)
			config := quick
			config.Metered = isMetered
			mark, rates := "shoe", []metered.Rate(nil)
			if isMetered {
				must(t, migrations.UpMetered(t.Context(), b.DB))
				mark, rates = "commit", []metered.Rate{{Scope: "shop", Limit: 10, Amount: 1, Window: time.Hour}}
			}
			in, _ := running(t, db, b.Ringer, config)
			wire.SilenceAfter(mark, 1)
			began := time.Now()
			r, _, err := in.SubmitMetered(t.Context(), submission(b, "a", ""), requests.Pass{Rates: rates})
			if err != nil || r.CartID != "a" {
				t.Errorf("%+v, %v after %s", r, err, time.Since(began))
			}
			if n := b.Int(`SELECT count(*) FROM reservation_requests`); n != 1 {
				t.Errorf("%d rows, want 1", n)
			}
		})
	}
}

// A database that says nothing keeps no caller longer than the caller's own deadline. A caller whose request was sent is
// told that the outcome is unknown; those whose was not, because there is no connection, that they are refused and may come
// again, and none of them has a row afterwards. The intake stops all the same.
func TestSilentDatabase(t *testing.T) {
	t.Parallel()
	b, db, wire := newSilent(t, 1)
	in, stop := running(t, db, b.Ringer, quick)
	if _, err := in.Submit(t.Context(), submission(b, "first", "")); err != nil {
		t.Fatal(err)
	}
	hit := wire.SilenceAfter("shoe", 1)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	var callers sync.WaitGroup
	callers.Go(func() {
		_, err := in.Submit(ctx, submission(b, "under way", ""))
		if !errors.Is(err, requests.ErrOutcomeUnknown) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("under way: %v, want an unknown outcome", err)
		}
	})
	<-hit
	wire.Silence()
	for _, key := range []string{"", "key"} {
		callers.Go(func() {
			_, err := in.Submit(ctx, submission(b, "not sent", key))
			var refused *requests.RefusedError
			if !errors.As(err, &refused) || refused.Why != requests.WhyTimeout || refused.RetryAfter < time.Second {
				t.Errorf("not sent: %v, want a refusal", err)
			}
		})
	}
	callers.Wait()
	if late := time.Since(deadline(ctx)); late > 5*time.Second {
		t.Errorf("answered %s after the deadline", late)
	}

	began := time.Now()
	stop()
	if took := time.Since(began); took > quick.CommitTimeout {
		t.Errorf("the stop took %s", took)
	}
	if n := b.Int(`SELECT count(*) FROM reservation_requests WHERE cart_id = 'not sent'`); n != 0 {
		t.Errorf("%d rows of refused callers", n)
	}
}

func deadline(ctx context.Context) time.Time {
	by, _ := ctx.Deadline()
	return by
}
