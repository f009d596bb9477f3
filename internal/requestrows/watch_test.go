package requestrows_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"

	"github.com/holdfast/holdfast/internal/pgtest"
	"github.com/holdfast/holdfast/internal/requestrows"
	"github.com/holdfast/holdfast/internal/testkit"
	"github.com/holdfast/holdfast/requests"
)

const listeningSQL = `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND query LIKE 'LISTEN%' AND pid <> $1`

// watch runs a watcher until the test ends or stop is called. It returns when
// the watcher listens.
func watch(t *testing.T, b *testkit.Fixture) (w *requestrows.Watcher, stop func()) {
	t.Helper()
	w = requestrows.NewWatcher(b.DB, slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	pgtest.Until(t, "the watcher listens", func() bool { return b.Int(listeningSQL, 0) == 1 })
	return w, stop
}

// finish finishes the requests, and notifies of them if notify is set.
func finish(t *testing.T, b *testkit.Fixture, notify bool, rs ...requests.Request) {
	t.Helper()
	pgtest.Must(t, pgx.BeginFunc(t.Context(), b.DB, func(tx pgx.Tx) error {
		return requestrows.FinishTx(t.Context(), tx, rs, make([]requests.Reason, len(rs)), time.Now(), shopper)
	}))
	if notify {
		pgtest.Must(t, requestrows.NotifyFinished(t.Context(), b.DB, rs))
	}
}

// waiter starts a wait for a request with a long timeout. When it returns, the
// watcher has most likely read the request once.
func waiter(t *testing.T, b *testkit.Fixture, w *requestrows.Watcher, r requests.Request) <-chan requests.View {
	t.Helper()
	got := make(chan requests.View, 1)
	go func() {
		v, err := w.Wait(t.Context(), b.Tenant, r.RequestID, time.Hour, requests.Status.Finished)
		if err != nil {
			t.Error(err)
		}
		got <- v
	}()
	pgtest.Until(t, "a caller waits", func() bool { return w.Waiting() == 1 })
	for range 3 {
		b.Get(r)
	}
	return got
}

// woken receives the result of a waiter, which must be that the request is done.
func woken(t *testing.T, got <-chan requests.View) {
	t.Helper()
	pgtest.Until(t, "the caller is woken", func() bool {
		select {
		case v := <-got:
			if v.Status != requests.Done {
				t.Errorf("woken with %s", v.Status)
			}
			return true
		default:
			return false
		}
	})
}

// A notification wakes the callers that wait.
func TestNotificationWakes(t *testing.T) {
	t.Parallel()
	b := newNormal(t)
	w, _ := watch(t, b)
	w.RereadNever()
	for range 20 {
		r := b.Submit("a", "shoe", 1)
		got := waiter(t, b, w, r)
		finish(t, b, true, r)
		woken(t, got)
	}
	if n := w.Waiting(); n != 0 {
		t.Errorf("callers still wait for %d requests", n)
	}
}

// A lane of the same process needs no notification, and no listening
// connection.
func TestFinishedInProcess(t *testing.T) {
	t.Parallel()
	b := newNormal(t)
	w := requestrows.NewWatcher(b.DB, slog.New(slog.DiscardHandler))
	w.RereadNever()
	for range 20 {
		r := b.Submit("a", "shoe", 1)
		got := waiter(t, b, w, r)
		finish(t, b, false, r)
		w.Finished([]requests.Request{r})
		woken(t, got)
	}
}

// Without a notification, the watcher reads the request again within about two
// seconds, whether it listens or not.
func TestLostNotification(t *testing.T) {
	t.Parallel()
	b := newNormal(t)
	w := requestrows.NewWatcher(b.DB, slog.New(slog.DiscardHandler)) // it does not run
	r := b.Submit("a", "shoe", 1)
	got := waiter(t, b, w, r)
	finish(t, b, false, r)
	woken(t, got)
}

// A wait ends with its timeout, its context, or the watcher. It ends at once if
// the request is finished or does not exist.
func TestWaitEnds(t *testing.T) {
	t.Parallel()
	b := newNormal(t)
	w, stop := watch(t, b)
	r, done := b.Submit("a", "shoe", 1), b.Submit("b", "shoe", 1)
	finish(t, b, false, done)
	if v, err := w.Wait(t.Context(), b.Tenant, done.RequestID, time.Hour, requests.Status.Finished); err != nil || v.Status != requests.Done {
		t.Errorf("a finished one: %+v, %v", v, err)
	}
	for _, timeout := range []time.Duration{0, 10 * time.Millisecond} {
		if v, err := w.Wait(t.Context(), b.Tenant, r.RequestID, timeout, requests.Status.Finished); err != nil || v.Status != requests.Queued {
			t.Errorf("after %s: %+v, %v; want it unchanged", timeout, v, err)
		}
	}
	for _, who := range [][2]uuid.UUID{{uuid.New(), r.RequestID}, {b.Tenant, uuid.New()}} {
		if _, err := w.Wait(t.Context(), who[0], who[1], time.Hour, requests.Status.Finished); !errors.Is(err, requestrows.ErrNotFound) {
			t.Errorf("%v, want ErrNotFound", err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	over := make(chan error)
	go func() {
		_, err := w.Wait(ctx, b.Tenant, r.RequestID, time.Hour, requests.Status.Finished)
		over <- err
	}()
	pgtest.Until(t, "a caller waits", func() bool { return w.Waiting() == 1 })
	cancel()
	if err := <-over; !errors.Is(err, context.Canceled) {
		t.Errorf("%v, want the context's error", err)
	}

	got := waiter(t, b, w, r)
	stop()
	if v := <-got; v.Status != requests.Queued {
		t.Errorf("%+v, want it unchanged when the watcher ends", v)
	}
	if v, err := w.Wait(t.Context(), b.Tenant, r.RequestID, time.Hour, requests.Status.Finished); err != nil || v.Status != requests.Queued {
		t.Errorf("after the watcher's end: %+v, %v", v, err)
	}
	if n := w.Waiting(); n != 0 {
		t.Errorf("callers still wait for %d requests", n)
	}
}

// More requests finish than fit in one payload, and each has several waiters.
// One notification wakes all of them.
func TestManyWaiters(t *testing.T) {
	t.Parallel()
	b := newNormal(t)
	w, _ := watch(t, b)
	const many = 400
	b.Exec(`INSERT INTO reservation_requests (tenant_id, request_id, lane, cart_id, variant_id, quantity)
		SELECT $1, gen_random_uuid(), 'normal', 'a', 'shoe', 1 FROM generate_series(1, $2::integer)`, b.Tenant, many)
	cart, err := requestrows.ViewCart(t.Context(), b.DB, b.Tenant, "a", 0, "")
	pgtest.Must(t, err)
	var waiting sync.WaitGroup
	for _, r := range cart.Unfinished {
		for range 2 {
			waiting.Go(func() {
				v, err := w.Wait(t.Context(), b.Tenant, r.RequestID, time.Minute, requests.Status.Finished)
				if err != nil || v.Status != requests.Done {
					t.Errorf("%s, %v; want done", v.Status, err)
				}
			})
		}
	}
	pgtest.Until(t, "all of them wait", func() bool { return w.Waiting() == many })
	finish(t, b, true, cart.Unfinished...)
	waiting.Wait()
	if n := w.Waiting(); n != 0 {
		t.Errorf("callers still wait for %d requests", n)
	}
	pgtest.Must(t, requestrows.NotifyFinished(t.Context(), b.DB, nil))
}

// A watcher survives an invalid payload and the loss of its connection.
func TestWatcherRecovers(t *testing.T) {
	t.Parallel()
	b := newNormal(t)
	w, _ := watch(t, b)
	for _, payload := range []string{"", "short", "!!!!!!!!!!!!!!!!!!!!!!", "AAAAAAAAAAAAAAAAAAAAAAAAA"} {
		b.Exec(`SELECT pg_notify('holdfast_done', $1)`, payload)
	}
	pid := b.Int(`SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND query LIKE 'LISTEN%'`)
	b.Exec(`SELECT pg_terminate_backend($1)`, pid)
	pgtest.Until(t, "it listens again", func() bool { return b.Int(listeningSQL, pid) == 1 })
	w.RereadNever()
	for range 10 {
		r := b.Submit("a", "shoe", 1)
		got := waiter(t, b, w, r)
		finish(t, b, true, r)
		woken(t, got)
	}
}

// No goroutine remains after waits that end early, or after the watcher's end.
// The test does not run in parallel, because it would find the goroutines of
// other tests.
func TestWatcherLeavesNothing(t *testing.T) {
	b := newNormal(t)
	before := goleak.IgnoreCurrent()
	w, stop := watch(t, b)
	var waiting sync.WaitGroup
	for i := range 60 {
		r := b.Submit(fmt.Sprint("cart-", i), "shoe", 1)
		waiting.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i)*time.Millisecond)
			defer cancel()
			_, _ = w.Wait(ctx, b.Tenant, r.RequestID, time.Duration(i%7)*10*time.Millisecond, requests.Status.Finished)
		})
	}
	waiting.Wait()
	stop()
	if n := w.Waiting(); n != 0 {
		t.Errorf("callers still wait for %d requests", n)
	}
	b.DB.Reset()
	goleak.VerifyNone(t, before, goleak.IgnoreTopFunction("github.com/jackc/pgx/v5/pgxpool.(*Pool).backgroundHealthCheck"))
}
