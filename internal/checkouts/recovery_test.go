package checkouts_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"github.com/holdfast/holdfast/internal/checkouts"
	"github.com/holdfast/holdfast/internal/pgtest"
	"github.com/holdfast/holdfast/reservations"
)

// calls counts the calls of a Validator by the key that it was given.
type calls struct {
	mu sync.Mutex
	of map[uuid.UUID]int
}

func (c *calls) count(id uuid.UUID) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.of[id]
}

// counted returns a Validator that counts its calls and passes them on.
func (c *calls) counted(v checkouts.Validator) validator {
	c.of = make(map[uuid.UUID]int)
	return func(ctx context.Context, of checkouts.Checkout) (checkouts.Result, error) {
		c.mu.Lock()
		c.of[of.CheckoutID]++
		c.mu.Unlock()
		return v.Validate(ctx, of)
	}
}

// Several recoveries at once end every checkout once, and call the validator
// once for each.
func TestRecoveriesAtOnce(t *testing.T) {
	t.Parallel()
	s := newFixture(t)
	s.stock("shoe", 100)
	var made calls
	v := made.counted(validator(func(_ context.Context, c checkouts.Checkout) (checkouts.Result, error) {
		if c.CartID[0] == 'f' {
			return checkouts.ResultFailed, nil
		}
		return checkouts.ResultPaid, nil
	}))
	want := make(map[uuid.UUID]checkouts.Status)
	var called []uuid.UUID
	for i := range 8 {
		for _, kind := range []string{"called", "failed", "paid", "late"} {
			cart := fmt.Sprint(kind, i)
			s.hold(cart, "shoe", 1)
			switch kind {
			case "called", "failed":
				c := s.beginCalled(cart)
				called = append(called, c.CheckoutID)
				want[c.CheckoutID] = map[string]checkouts.Status{"called": checkouts.Committed, "failed": checkouts.Compensated}[kind]
			case "paid":
				c := s.begin(cart)
				s.recordPaid(c)
				want[c.CheckoutID] = checkouts.Committed
			case "late":
				c := s.begin(cart)
				s.late(c.CheckoutID)
				want[c.CheckoutID] = checkouts.Compensated
			}
		}
	}
	s.hold("open", "shoe", 1)
	open := s.begin("open")
	s.Exec(`UPDATE checkouts SET next_attempt_at = clock_timestamp() WHERE checkout_id <> $1`, open.CheckoutID)
	reports := make([]checkouts.Report, 4)
	var passes errgroup.Group
	for i := range reports {
		r := s.recovery(v)
		passes.Go(func() (err error) { reports[i], err = r.RunOnce(t.Context()); return err })
	}
	s.Must(passes.Wait())
	var sum checkouts.Report
	for _, r := range reports {
		sum.Claimed, sum.Committed, sum.Compensated, sum.Errors = sum.Claimed+r.Claimed, sum.Committed+r.Committed, sum.Compensated+r.Compensated, sum.Errors+r.Errors
	}
	if diff := cmp.Diff(checkouts.Report{Claimed: 32, Committed: 16, Compensated: 16}, sum); diff != "" {
		t.Errorf("the sum of the reports (-want +got):\n%s", diff)
	}
	for id, status := range want {
		if got := s.get(id); got.Status != status || got.Attempt != 1 {
			t.Errorf("%s: %s after %d attempts, want %s after one", got.CartID, got.Status, got.Attempt, status)
		}
	}
	for _, id := range called {
		if n := made.count(id); n != 1 {
			t.Errorf("the validator was called %d times for one checkout", n)
		}
	}
	s.wantCheckout(open.CheckoutID, checkouts.Validating, "", "")
	s.wantStock("shoe", 84, 1)
	s.sound()
}

// A validator that keeps all calls of a tenant waiting does not delay other
// tenants, nor the checkouts of that tenant that need no call.
func TestSlowValidator(t *testing.T) {
	t.Parallel()
	slow := newFixture(t)
	slow.config.AttemptTimeout = time.Minute
	slow.config.Concurrency = 6
	quick := shopOn(t, slow.DB)
	slow.stock("shoe", 100)
	quick.stock("shoe", 100)
	answer := make(chan struct{})
	v := validator(func(_ context.Context, c checkouts.Checkout) (checkouts.Result, error) {
		if c.TenantID == slow.tenant {
			<-answer
		}
		return checkouts.ResultPaid, nil
	})
	for i := range 6 {
		slow.hold(fmt.Sprint(i), "shoe", 1)
		slow.beginCalled(fmt.Sprint(i))
	}
	slow.hold("paid", "shoe", 1)
	paid := slow.begin("paid")
	slow.recordPaid(paid)
	for i := range 6 {
		quick.hold(fmt.Sprint(i), "shoe", 1)
		quick.beginCalled(fmt.Sprint(i))
	}
	slow.due()
	var passing errgroup.Group
	var report checkouts.Report
	r := slow.recovery(v)
	passing.Go(func() (err error) { report, err = r.RunOnce(t.Context()); return err })
	pgtest.Until(t, "the other checkouts are committed", func() bool {
		return slow.Int(`SELECT count(*) FROM checkouts WHERE status = 'committed'`) == 7
	})
	const claimedSQL = `SELECT count(*) FROM checkouts WHERE tenant_id = $1 AND attempt > 0`
	pgtest.Until(t, "the slow tenant uses half of the capacity, beside the paid checkout", func() bool { return slow.Int(claimedSQL, slow.tenant) >= 4 })
	if n := slow.Int(claimedSQL, slow.tenant); n != 4 {
		t.Errorf("%d checkouts of the slow tenant were claimed, want the paid one and half of the capacity", n)
	}
	close(answer)
	s := slow
	s.Must(passing.Wait())
	if want := (checkouts.Report{Claimed: 13, Committed: 13}); report != want {
		t.Errorf("%+v, want %+v", report, want)
	}
}

// A call that does not decide the payment is repeated with backoff, with the
// same key, until the deadline, at which the checkout is compensated.
func TestUndecided(t *testing.T) {
	t.Parallel()
	for name, v := range map[string]validator{
		"pending": always(checkouts.ResultPending),
		"error": func(context.Context, checkouts.Checkout) (checkouts.Result, error) {
			return checkouts.ResultPaid, errors.New("the connection was reset")
		},
		"unknown result": always("settled"),
		"timeout": func(ctx context.Context, _ checkouts.Checkout) (checkouts.Result, error) {
			<-ctx.Done()
			return "", ctx.Err()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newFixture(t)
			s.config.BackoffMin, s.config.BackoffMax = time.Minute, 3*time.Minute
			if name == "timeout" { // it also bounds the statements around the call
				s.config.AttemptTimeout = 2 * time.Second
			}
			s.stock("shoe", 5)
			s.hold("a", "shoe", 2)
			c := s.beginCalled("a")
			var made calls
			counted := made.counted(v)
			for attempt, backoff := range []time.Duration{time.Minute, 2 * time.Minute, 3 * time.Minute, 3 * time.Minute} {
				before := clock(s)
				if report, want := s.recover(counted), (checkouts.Report{Claimed: 1, Pending: 1}); report != want {
					t.Errorf("%+v, want %+v", report, want)
				}
				got := s.get(c.CheckoutID)
				if wait := got.NextAttemptAt.Sub(before); int(got.Attempt) != attempt+1 || wait < backoff || wait > backoff+30*time.Second {
					t.Errorf("attempt %d: the next one is after %s, want %s", got.Attempt, wait, backoff)
				}
			}
			if report, err := s.recovery(counted).RunOnce(t.Context()); err != nil || report != (checkouts.Report{}) {
				t.Errorf("before it is due: %+v, %v", report, err)
			}
			if n := made.count(c.CheckoutID); n != 4 {
				t.Errorf("%d calls, want 4", n)
			}
			s.late(c.CheckoutID)
			if report := s.recover(counted); report.Compensated != 1 {
				t.Errorf("at the deadline: %+v", report)
			}
			if n := made.count(c.CheckoutID); n != 4 {
				t.Error("the validator was called after the deadline")
			}
			s.wantCheckout(c.CheckoutID, checkouts.Compensated, checkouts.PaymentTimeout, "")
			s.wantHolds(c.CheckoutID, reservations.Released)
			s.wantStock("shoe", 5, 0)
			s.sound()
		})
	}
}

func clock(s *fixture) (now time.Time) {
	s.TB.Helper()
	s.Must(s.DB.QueryRow(s.TB.Context(), `SELECT clock_timestamp()`).Scan(&now))
	return now
}

// The attempt is counted, and the next one scheduled, before the validator is
// called. The deadline of a checkout is not in the first call, and no later
// attempt is scheduled after it.
func TestClaimedBeforeTheCall(t *testing.T) {
	t.Parallel()
	s := newFixture(t)
	s.stock("shoe", 5)
	for _, cart := range []string{"a", "soon"} {
		s.hold(cart, "shoe", 1)
	}
	s.beginCalled("a")
	s.config.TTL = 5 * time.Second
	soon := s.beginCalled("soon")
	s.hold("again", "shoe", 1)
	again := s.beginCalled("again")
	s.Exec(`UPDATE checkouts SET asked = true WHERE checkout_id = $1`, again.CheckoutID)
	seen := make(map[string]checkouts.Checkout)
	var mu sync.Mutex
	report := s.recover(validator(func(ctx context.Context, c checkouts.Checkout) (checkouts.Result, error) {
		stored, err := checkouts.Get(ctx, s.DB, c.TenantID, c.CheckoutID)
		mu.Lock()
		defer mu.Unlock()
		seen[c.CartID] = stored
		return checkouts.ResultPaid, err
	}))
	if report.Committed != 3 {
		t.Errorf("%+v", report)
	}
	for cart, c := range seen {
		wait := c.NextAttemptAt.Sub(c.CreatedAt)
		if c.Attempt != 1 || cart == "again" != c.NextAttemptAt.Equal(again.Deadline) || cart != "again" && (wait < 11*time.Second || wait > time.Minute) {
			t.Errorf("%s during the call: attempt %d, the next one after %s", cart, c.Attempt, wait)
		}
	}
	if c := seen["soon"]; c.Deadline.Sub(soon.Deadline) < 5*time.Second {
		t.Errorf("the deadline %s is in the first call, which may take 10 s", c.Deadline)
	}
}

// The deadline passes during a call that returns that it is paid, and another
// recovery compensates the checkout: the payment gets its alert.
func TestPaidDuringTheCall(t *testing.T) {
	t.Parallel()
	for name, compensated := range map[string]bool{"compensated meanwhile": true, "not compensated yet": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newFixture(t)
			s.config.Concurrency = 1 // so that the pass does not claim it again during the call
			s.stock("shoe", 5)
			s.hold("a", "shoe", 2)
			c := s.beginCalled("a")
			report := s.recover(validator(func(context.Context, checkouts.Checkout) (checkouts.Result, error) {
				s.late(c.CheckoutID)
				if compensated {
					s.recover(nil)
				}
				return checkouts.ResultPaid, nil
			}))
			if report.Compensated == 0 {
				t.Errorf("%+v", report)
			}
			s.wantCheckout(c.CheckoutID, checkouts.Compensated, checkouts.PaymentTimeout, checkouts.PaidTooLate)
			if n := s.log.errors(string(checkouts.PaidTooLate)); n != 1 {
				t.Errorf("%d alerts are logged", n)
			}
			s.sound()
		})
	}
}

// A checkout that the database refuses to end, and one whose stock another
// transaction keeps locked, do not stop the others.
func TestBrokenCheckout(t *testing.T) {
	t.Parallel()
	s := newFixture(t)
	for _, variant := range []string{"shoe", "sock", "hat"} {
		s.stock(variant, 5)
		s.hold(variant, variant, 2)
		s.recordPaid(s.begin(variant))
	}
	s.Exec(`UPDATE inventory_stocks SET reserved = 1 WHERE variant_id = 'sock'`)
	locked, err := s.DB.Begin(t.Context())
	s.Must(err)
	_, err = locked.Exec(t.Context(), `SELECT FROM inventory_stocks WHERE variant_id = 'hat' FOR UPDATE`)
	s.Must(err)
	s.due()
	report, err := s.recovery(nil).RunOnce(t.Context())
	if err == nil {
		t.Error("the broken checkout is no error")
	}
	if want := (checkouts.Report{Claimed: 3, Committed: 1, Errors: 2}); report != want {
		t.Errorf("%+v, want %+v", report, want)
	}
	s.Must(locked.Rollback(t.Context()))
	s.Exec(`UPDATE inventory_stocks SET reserved = 2 WHERE variant_id = 'sock'`)
	if report := s.recover(nil); report.Committed != 2 {
		t.Errorf("once it is repaired: %+v", report)
	}
	s.sound()
}

// A panic of the validator is an error of its checkout.
func TestPanic(t *testing.T) {
	t.Parallel()
	s := newFixture(t)
	s.stock("shoe", 5)
	s.hold("a", "shoe", 1)
	s.hold("b", "shoe", 1)
	s.beginCalled("a")
	s.beginCalled("b")
	s.due()
	report, err := s.recovery(validator(func(_ context.Context, c checkouts.Checkout) (checkouts.Result, error) {
		if c.CartID == "a" {
			panic("no money")
		}
		return checkouts.ResultPaid, nil
	})).RunOnce(t.Context())
	if want := (checkouts.Report{Claimed: 2, Committed: 1, Errors: 1}); err == nil || report != want {
		t.Errorf("%+v, %v, want %+v and the panic", report, err, want)
	}
	s.sound()
}

// A pass ends at its bound, and the next one goes on.
func TestPassMax(t *testing.T) {
	t.Parallel()
	s := newFixture(t)
	s.config.PassMax = 2
	s.stock("shoe", 5)
	for i := range 3 {
		s.hold(fmt.Sprint(i), "shoe", 1)
		s.recordPaid(s.begin(fmt.Sprint(i)))
	}
	s.due()
	r := s.recovery(nil)
	for _, want := range []checkouts.Report{{Claimed: 2, Committed: 2, More: true}, {Claimed: 1, Committed: 1}, {}} {
		if report, err := r.RunOnce(t.Context()); err != nil || report != want {
			t.Errorf("%+v, %v, want %+v", report, err, want)
		}
	}
}

// A pass whose context ends keeps what it has done.
func TestPassEnds(t *testing.T) {
	t.Parallel()
	s := newFixture(t)
	s.stock("shoe", 5)
	s.hold("a", "shoe", 1)
	s.beginCalled("a")
	s.hold("b", "shoe", 1)
	s.recordPaid(s.begin("b"))
	s.due()
	ctx, cancel := context.WithCancelCause(t.Context())
	_, err := s.recovery(validator(func(ctx context.Context, _ checkouts.Checkout) (checkouts.Result, error) {
		pgtest.Until(t, "the other one is committed", func() bool { return s.Int(`SELECT count(*) FROM checkouts WHERE status = 'committed'`) == 1 })
		cancel(nil)
		<-ctx.Done()
		return checkouts.ResultPaid, nil // what a call has returned is recorded
	})).RunOnce(ctx)
	if !errors.Is(err, context.Canceled) {
		t.Errorf("a cancelled pass: %v", err)
	}
	if n := s.Int(`SELECT count(*) FROM checkouts WHERE status = 'committed'`); n != 2 {
		t.Errorf("%d are committed, want both", n)
	}
	expired, cancelNow := context.WithTimeout(t.Context(), 0)
	defer cancelNow()
	if _, err := s.recovery(nil).RunOnce(expired); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a pass that did nothing: %v", err)
	}
}
