package audit_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/audit"
	"github.com/holdfast/holdfast/internal/pgtest"
)

// Several processes open a subscription at its beginning. One process at a time
// delivers, and each record is delivered once.
func TestSharedSubscription(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	const processes, records = 4, 300
	config := audit.SubscriptionConfig{FromBeginning: true, Batch: 7}
	var handlers, group sync.WaitGroup
	var mu sync.Mutex
	inside, times := 0, make(map[int64]int)
	ctx, stop := context.WithCancel(t.Context())
	take := func(_ context.Context, d *audit.Delivery) error {
		mu.Lock()
		defer mu.Unlock()
		if inside++; inside > 1 {
			t.Error("two processes deliver at the same time")
		}
		for _, r := range d.Records {
			times[r.AuditID]++
		}
		if len(times) == records {
			stop()
		}
		inside--
		return nil
	}
	subs := make([]*audit.Subscription, processes)
	for i := range subs {
		subs[i] = subscribe(t, db, "shared", config)
	}
	handlers.Go(func() { writeSteps(t, db, records) })
	for _, sub := range subs {
		group.Go(func() { _ = sub.Run(ctx, take, func(err error) { t.Error(err) }) })
	}
	handlers.Wait()
	pgtest.Until(t, "every record is delivered", func() bool { return ctx.Err() != nil })
	group.Wait()
	for id, n := range times {
		if n != 1 {
			t.Errorf("record %d was delivered %d times", id, n)
		}
	}
}

// While one process delivers, RunOnce reports Busy in all others, including
// those that never had the lease.
func TestOneProcessDelivers(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	config := audit.SubscriptionConfig{FromBeginning: true}
	first, second := subscribe(t, db, "shared", config), subscribe(t, db, "shared", config)
	writeSteps(t, db, 3)
	var seen int
	pgtest.Until(t, "it delivers", func() bool {
		_, err := first.RunOnce(t.Context(), func(ctx context.Context, d *audit.Delivery) error {
			seen += len(d.Records)
			report, err := second.RunOnce(ctx, (&collector{}).take)
			if err != nil || !report.Busy {
				t.Errorf("the second process: %+v, %v, want busy", report, err)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		return seen > 0
	})
}

// A process that is paused for longer than its lease loses the subscription to
// another one, which delivers the same records again. When the first process
// continues, its checkpoint fails, both alone and in the handler's transaction.
// The effects of that transaction are rolled back.
func TestPausedHolder(t *testing.T) {
	t.Parallel()
	for name, own := range map[string]bool{"checkpoint in the handler's transaction": true, "checkpoint after the handler": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := pgtest.New(t)
			execute(t, db, `CREATE TABLE effect (audit_id bigint NOT NULL)`)
			config := audit.SubscriptionConfig{FromBeginning: true}
			paused, other := subscribe(t, db, "shared", config), subscribe(t, db, "shared", config)
			writeSteps(t, db, 3)
			var lost error
			pgtest.Until(t, "it delivers", func() bool {
				_, lost = paused.RunOnce(t.Context(), func(ctx context.Context, d *audit.Delivery) error {
					expireLease(t, db, "shared")
					if ids := deliver(t, other, 3); len(ids) != 3 {
						t.Errorf("the other process received %v", ids)
					}
					if !own {
						return nil
					}
					return pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
						if _, err := tx.Exec(ctx, `INSERT INTO effect VALUES ($1)`, d.Records[0].AuditID); err != nil {
							return err
						}
						return d.CheckpointTx(ctx, tx)
					})
				})
				return lost != nil
			})
			if !errors.Is(lost, audit.ErrLeaseLost) {
				t.Errorf("the old holder: %v, want an error that its lease was lost", lost)
			}
			if n := ask[int](t, db, `SELECT count(*) FROM effect`); n != 0 {
				t.Errorf("%d effects of a delivery that was taken over", n)
			}
			if s := state(t, db, "shared"); s.Lag != 0 || s.Failures != 0 {
				t.Errorf("the checkpoint of the new holder was undone: %+v", s)
			}
			writeSteps(t, db, 1)
			pgtest.Until(t, "the old holder finds that the other one delivers", func() bool {
				report, err := paused.RunOnce(t.Context(), (&collector{}).take)
				if err != nil || report.Delivered > 0 {
					t.Fatalf("the old holder again: %+v, %v, want busy", report, err)
				}
				return report.Busy
			})
		})
	}
}

// A process that ends releases the lease, so the next one does not wait until
// the lease expires.
func TestRunGivesTheLeaseBack(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	sub := subscribe(t, db, "shared", audit.SubscriptionConfig{FromBeginning: true})
	writeSteps(t, db, 1)
	ctx, stop := context.WithCancel(t.Context())
	if err := sub.Run(ctx, func(context.Context, *audit.Delivery) error { stop(); return nil }, nil); err != nil {
		t.Fatal(err)
	}
	if !ask[bool](t, db, `SELECT lease_expires_at <= clock_timestamp() FROM audit_subscriptions`) {
		t.Error("the lease is still held")
	}
	deliver(t, subscribe(t, db, "shared", audit.SubscriptionConfig{}), 1) // the same records again, because the context ended before the checkpoint
}

// A lease taken before the clock was set back does not exclude other processes
// until the clock has caught up.
func TestLeaseFromTheFuture(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	config := audit.SubscriptionConfig{FromBeginning: true, Lease: time.Minute}
	dead, other := subscribe(t, db, "shared", config), subscribe(t, db, "shared", config)
	writeSteps(t, db, 1)
	deliver(t, dead, 1)
	writeSteps(t, db, 1)
	deliver(t, dead, 1) // it has the lease now
	writeSteps(t, db, 1)
	// Until then it may have nothing to do, because transactions of other
	// databases on this server can still be running.
	pgtest.Until(t, "the other process finds the lease taken", func() bool {
		report, err := other.RunOnce(t.Context(), (&collector{}).take)
		if err != nil || report.Delivered > 0 {
			t.Fatalf("under the lease: %+v, %v, want busy", report, err)
		}
		return report.Busy
	})
	execute(t, db, `UPDATE audit_subscriptions SET leased_at = leased_at + interval '1 hour', lease_expires_at = lease_expires_at + interval '1 hour'`)
	deliver(t, other, 1)
	if s := state(t, db, "shared"); s.Lag != 0 || s.Failures != 0 {
		t.Errorf("%+v", s)
	}
}

// Run ends when the subscription is removed, here also by another process, and
// reports that once. It ends both while it has nothing to do and while its
// handler runs.
func TestRunEndsWhenUnsubscribed(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	config := audit.SubscriptionConfig{FromBeginning: true, PollEvery: time.Millisecond, BackoffMax: 4 * time.Millisecond}
	for name, remove := range map[string]func(ctx context.Context) error{
		"by Unsubscribe":     func(ctx context.Context) error { return audit.Unsubscribe(ctx, db, "gone") },
		"by another process": func(ctx context.Context) error { _, err := db.Exec(ctx, `DELETE FROM audit_subscriptions`); return err },
	} {
		for _, inHandler := range []bool{false, true} {
			first, second := subscribe(t, db, "gone", config), subscribe(t, db, "gone", config)
			writeSteps(t, db, 1)
			ctx, stop := context.WithTimeout(t.Context(), waitTimeout)
			failed := func(err error) {
				if !errors.Is(err, audit.ErrLeaseLost) {
					t.Errorf("%s: failed is called with %v", name, err)
				}
			}
			delivered := make(chan struct{}, 2)
			var both sync.WaitGroup
			for _, sub := range []*audit.Subscription{first, second} {
				both.Go(func() {
					err := sub.Run(ctx, func(ctx context.Context, _ *audit.Delivery) error {
						if inHandler {
							return remove(ctx)
						}
						select {
						case delivered <- struct{}{}:
						default:
						}
						return nil
					}, failed)
					if !errors.Is(err, audit.ErrNoSubscription) || ctx.Err() != nil {
						t.Errorf("%s, in the handler %t: Run returns %v (context: %v)", name, inHandler, err, ctx.Err())
					}
				})
			}
			if !inHandler {
				select {
				case <-delivered:
				case <-ctx.Done():
				}
				if err := remove(t.Context()); err != nil {
					t.Error(err)
				}
			}
			both.Wait()
			stop()
		}
	}
}

// A handler fails because it reads another subscription, which was removed. Run
// does not end, and delivers its records again.
func TestRunGoesOnAfterAnothersRemoval(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	config := audit.SubscriptionConfig{FromBeginning: true, PollEvery: time.Millisecond, BackoffMax: 4 * time.Millisecond}
	sub, other := subscribe(t, db, "stays", config), subscribe(t, db, "gone", config)
	if err := audit.Unsubscribe(t.Context(), db, "gone"); err != nil {
		t.Fatal(err)
	}
	writeSteps(t, db, 1)
	ctx, stop := context.WithTimeout(t.Context(), waitTimeout)
	defer stop()
	calls, failures := 0, 0
	err := sub.Run(ctx, func(ctx context.Context, _ *audit.Delivery) error {
		if calls++; calls == 1 {
			_, err := other.RunOnce(ctx, (&collector{}).take)
			return err
		}
		stop()
		return nil
	}, func(err error) {
		if failures++; !errors.Is(err, audit.ErrNoSubscription) {
			t.Errorf("failed is called with %v", err)
		}
	})
	if err != nil || calls != 2 || failures != 1 {
		t.Errorf("Run returns %v after %d deliveries, %d of which failed; want 2, and 1 failed", err, calls, failures)
	}
}

// A subscription that is removed while it is read returns ErrNoSubscription.
func TestUnsubscribe(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	sub := subscribe(t, db, "gone", audit.SubscriptionConfig{FromBeginning: true})
	writeSteps(t, db, 1)
	for range 2 {
		if err := audit.Unsubscribe(t.Context(), db, "gone"); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := sub.RunOnce(t.Context(), (&collector{}).take); !errors.Is(err, audit.ErrNoSubscription) {
		t.Errorf("%v, want ErrNoSubscription", err)
	}
	for _, name := range []string{"", string(make([]rune, 65))} {
		if _, err := audit.Subscribe(t.Context(), db, name, audit.SubscriptionConfig{}); err == nil {
			t.Errorf("a name of %d characters was accepted", len(name))
		}
	}
	if _, err := audit.Subscribe(t.Context(), db, "x", audit.SubscriptionConfig{Batch: 10_001}); err == nil {
		t.Error("a batch of 10,001 was accepted")
	}
}
