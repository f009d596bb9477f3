package audit_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/audit"
	"github.com/holdfast/holdfast/internal/inventory"
	"github.com/holdfast/holdfast/internal/lanes"
	"github.com/holdfast/holdfast/internal/pgtest"
	"github.com/holdfast/holdfast/internal/queues"
	"github.com/holdfast/holdfast/internal/requestrows"
	"github.com/holdfast/holdfast/internal/testkit"
)

// blocked runs a subscription whose handler returns from its first delivery
// only when the test ends.
func blocked(t *testing.T, db *pgxpool.Pool, name string) {
	t.Helper()
	sub := subscribe(t, db, name, audit.SubscriptionConfig{FromBeginning: true, Lease: time.Hour, PollEvery: time.Millisecond})
	ctx, stop := context.WithCancel(t.Context())
	entered := make(chan struct{})
	var running sync.WaitGroup
	running.Go(func() {
		_ = sub.Run(ctx, func(ctx context.Context, _ *audit.Delivery) error {
			close(entered)
			<-ctx.Done()
			return ctx.Err()
		}, nil)
	})
	t.Cleanup(func() { stop(); running.Wait() })
	select {
	case <-entered:
	case <-time.After(waitTimeout):
		t.Fatal("the handler was not called")
	}
}

const openSQL = `
SELECT count(*)
FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'
    AND (state <> 'idle' OR backend_xid IS NOT NULL OR backend_xmin IS NOT NULL)`

// A subscriber whose handler blocks does not delay other subscribers, and keeps
// no transaction open.
func TestSlowSubscriber(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	writeSteps(t, db, 3)
	blocked(t, db, "slow")
	pgtest.Until(t, "no session is in a transaction while the handler blocks", func() bool { return ask[int](t, db, openSQL) == 0 })
	other := subscribe(t, db, "quick", audit.SubscriptionConfig{FromBeginning: true})
	deliver(t, other, 3)
	writeSteps(t, db, 2)
	deliver(t, other, 2)
	if s := state(t, db, "slow"); s.Lag != 5 || s.LagSeconds <= 0 || s.DeliveredAt != nil {
		t.Errorf("the slow one: %+v", s)
	}
	if s := state(t, db, "quick"); s.Lag != 0 || s.LagSeconds != 0 {
		t.Errorf("the quick one: %+v", s)
	}
}

// The low-water marks of the lanes move while one subscription blocks and
// others poll all the time.
func TestSubscriptionsDelayNoMark(t *testing.T) {
	t.Parallel()
	b := testkit.New(t, lanes.Normal)
	_, err := inventory.Set(t.Context(), b.DB, b.Tenant, "buns", inventory.StockPatch{Stock: new(int64(10))}, audit.Origin{})
	if err != nil {
		t.Fatal(err)
	}
	blocked(t, b.DB, "slow")
	looking := subscribe(t, b.DB, "looking", audit.SubscriptionConfig{FromBeginning: true, PollEvery: time.Millisecond})
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = looking.Run(ctx, (&collector{}).take, nil) })
	defer func() { stop(); running.Wait() }()
	lane := b.Lane(queues.LaneConfig{})
	decided := b.SubmitAs(requestrows.Submission{CartID: "a", VariantID: "buns", Quantity: 1})
	pgtest.Until(t, "the mark has passed the request", func() bool {
		b.SubmitAs(requestrows.Submission{CartID: "b", VariantID: "buns", Quantity: 1})
		b.Tick(lane)
		return b.Int(`SELECT max(low_water) FROM lane_slots WHERE lane = 'normal'`) >= decided.Sequence
	})
}

// A subscriber that fails receives the same records again. Its failures are
// reported, and other subscribers are not delayed.
func TestFailingSubscriber(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	config := audit.SubscriptionConfig{FromBeginning: true}
	bad, good := subscribe(t, db, "bad", config), subscribe(t, db, "good", config)
	writeSteps(t, db, 3)
	broken := errors.New("no such table: \x00 \xff")
	for n := 1; n <= 3; n++ {
		pgtest.Until(t, "it fails", func() bool {
			_, err := bad.RunOnce(t.Context(), func(_ context.Context, d *audit.Delivery) error {
				if len(d.Records) != 3 {
					t.Errorf("%d records, want the same 3", len(d.Records))
				}
				return broken
			})
			if err != nil && !errors.Is(err, broken) {
				t.Fatal(err)
			}
			return err != nil
		})
		if s := state(t, db, "bad"); s.Failures != n || s.LastError != "no such table: \uFFFD \uFFFD" || s.Lag != 3 || s.Position != 0 {
			t.Errorf("after %d failures: %+v", n, s)
		}
	}
	deliver(t, good, 3)
	deliver(t, bad, 3)
	if s := state(t, db, "bad"); s.Failures != 0 || s.LastError != "" || s.Lag != 0 {
		t.Errorf("after a delivery: %+v", s)
	}
}

// The context of a handler ends with the lease, and the delivery counts as
// failed. Otherwise two processes could take the subscription from each other
// for ever, without an error.
func TestHandlerEndsWithTheLease(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	sub := subscribe(t, db, "slow", audit.SubscriptionConfig{FromBeginning: true, Lease: 50 * time.Millisecond})
	writeSteps(t, db, 1)
	pgtest.Until(t, "it fails", func() bool {
		_, err := sub.RunOnce(t.Context(), func(ctx context.Context, _ *audit.Delivery) error {
			<-ctx.Done()
			return ctx.Err()
		})
		return errors.Is(err, context.DeadlineExceeded)
	})
	if s := state(t, db, "slow"); s.Failures != 1 || s.LastError != context.DeadlineExceeded.Error() {
		t.Errorf("%+v", s)
	}
}

// Run waits after a failure and continues automatically.
func TestRunGoesOnAfterFailures(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	sub := subscribe(t, db, "bumpy", audit.SubscriptionConfig{FromBeginning: true, PollEvery: time.Millisecond, BackoffMax: 4 * time.Millisecond})
	writeSteps(t, db, 2)
	ctx, stop := context.WithTimeout(t.Context(), waitTimeout)
	defer stop()
	calls, failures := 0, 0
	err := sub.Run(ctx, func(context.Context, *audit.Delivery) error {
		if calls++; calls <= 5 {
			return errors.New("not yet")
		}
		stop()
		return nil
	}, func(error) { failures++ })
	if err != nil || failures != 5 || calls != 6 {
		t.Errorf("%v: %d calls, %d failures, want 6 and 5", err, calls, failures)
	}
}

// A subscription with nothing to deliver only reads. There may be no new rows,
// or none that are settled.
func TestIdleSubscriptionWritesNothing(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	sub := subscribe(t, db, "idle", audit.SubscriptionConfig{FromBeginning: true})
	var seen collector
	look := func() {
		if _, err := sub.RunOnce(t.Context(), seen.take); err != nil {
			t.Fatal(err)
		}
	}
	lookAround := func(when string) {
		version := func() string { return ask[string](t, db, `SELECT xmin::text || ctid::text FROM audit_subscriptions`) }
		before := version()
		for range 20 {
			look()
		}
		if after := version(); after != before {
			t.Errorf("%s: the row was written, %s → %s", when, before, after)
		}
	}
	lookAround("an empty record")
	writeSteps(t, db, 2)
	pgtest.Until(t, "all records are delivered", func() bool { look(); return len(seen.ids) == 2 })
	lookAround("all delivered")
	open := begin(t, db)
	open.enter()
	writeSteps(t, db, 2)
	pgtest.Until(t, "next is set, which cannot be reached while the transaction is open", func() bool {
		look()
		return ask[int](t, db, `SELECT next FROM audit_subscriptions`) == 4
	})
	lookAround("a transaction is open")
	open.commit()
	pgtest.Until(t, "the rest is delivered", func() bool { look(); return len(seen.ids) == 4 })
}
