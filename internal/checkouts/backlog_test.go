package checkouts_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"github.com/holdfast/holdfast/internal/checkouts"
	"github.com/holdfast/holdfast/internal/checkouts/callback"
	"github.com/holdfast/holdfast/internal/pgtest"
	"github.com/holdfast/holdfast/reservations"
)

// paymentService is a payment service on the loopback interface. Each call
// waits until answer is called, and is then answered "paid".
type paymentService struct {
	url    string
	answer func()

	mu        sync.Mutex
	calls     map[uuid.UUID]int
	deadlines map[uuid.UUID]time.Time // of the last call
}

func newService(t *testing.T) *paymentService {
	t.Helper()
	answered := make(chan struct{})
	b := &paymentService{
		answer: sync.OnceFunc(func() { close(answered) }), calls: make(map[uuid.UUID]int), deadlines: make(map[uuid.UUID]time.Time),
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var call struct {
			CheckoutID uuid.UUID `json:"checkout_id"`
			Deadline   time.Time `json:"deadline"`
		}
		if err := json.NewDecoder(r.Body).Decode(&call); err != nil {
			t.Error(err)
		}
		b.mu.Lock()
		b.calls[call.CheckoutID]++
		b.deadlines[call.CheckoutID] = call.Deadline
		b.mu.Unlock()
		<-answered
		_, _ = fmt.Fprint(w, `{"result":"paid"}`)
	}))
	t.Cleanup(func() {
		b.answer()
		server.Close()
	})
	b.url = server.URL
	return b
}

// asked counts the checkouts that the service was asked for.
func (b *paymentService) asked() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.calls)
}

// httpValidator calls payment services over HTTP.
func httpValidator(t *testing.T) checkouts.Validator {
	t.Helper()
	secret, err := callback.ParseSecret("whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=")
	pgtest.Must(t, err)
	v, err := callback.New(callback.Config{Secret: secret, Timeout: time.Minute, AllowPrivate: true})
	pgtest.Must(t, err)
	return v
}

// beginAt begins n checkouts of one unit each, which the service at the URL
// answers.
func (s *fixture) beginAt(url string, n int) {
	s.TB.Helper()
	for i := range n {
		start := s.start(fmt.Sprint("cart ", i))
		s.hold(start.CartID, "shoe", 1)
		start.CallbackURL = url
		_, err := checkouts.Begin(s.TB.Context(), s.DB, start, s.config)
		s.Must(err)
	}
}

// One tenant alone uses half of the capacity of a pass. The deadlines of all
// checkouts pass while these calls wait for their answers. The others are asked
// for all the same, with a deadline that has not passed, and all are committed.
func TestBacklog(t *testing.T) {
	t.Parallel()
	s := newFixture(t)
	s.config.AttemptTimeout = time.Minute
	s.stock("shoe", 100)
	b := newService(t)
	s.beginAt(b.url, 80)
	r := s.recovery(httpValidator(t))
	var report checkouts.Report
	var passing errgroup.Group
	passing.Go(func() (err error) { report, err = r.RunOnce(t.Context()); return err })
	pgtest.Until(t, "half of the capacity is used", func() bool { return b.asked() == 64 })
	if n := s.Int(`SELECT count(*) FROM checkouts WHERE attempt > 0`); n != 64 {
		t.Errorf("%d are claimed", n)
	}
	s.Exec(`UPDATE checkouts SET deadline = clock_timestamp() WHERE attempt = 0`)
	var passed time.Time
	s.Must(s.DB.QueryRow(t.Context(), `SELECT max(deadline) FROM checkouts WHERE attempt = 0`).Scan(&passed))
	other := s.recovery(httpValidator(t)) // another process takes them
	passing.Go(func() error { _, err := other.RunOnce(t.Context()); return err })
	pgtest.Until(t, "the others are asked for", func() bool { return b.asked() == 80 })
	b.answer()
	s.Must(passing.Wait())
	if n := s.Int(`SELECT count(*) FROM checkouts WHERE status = 'committed'`); n != 80 {
		t.Errorf("%d of 80 are committed, by %+v and another pass", n, report)
	}
	for id, deadline := range b.deadlines {
		if !deadline.After(passed) || b.calls[id] != 1 {
			t.Errorf("checkout %s: %d calls, the last with the deadline %s, before %s", id, b.calls[id], deadline, passed)
		}
	}
	if n := s.Int(`SELECT count(*) FROM audit_log WHERE action = 'checkout.extended' AND before->>'deadline' < after->>'deadline'`); n != 16 {
		t.Errorf("%d deadlines were moved, want those of the 16", n)
	}
	s.wantStock("shoe", 20, 0)
	s.sound()
}

// The first call that begins after the deadline has its full time. What it
// returns decides; if that is nothing, the checkout times out at the new
// deadline, without another call.
func TestAskedLate(t *testing.T) {
	t.Parallel()
	for result, want := range map[checkouts.Result]struct {
		status checkouts.Status
		reason checkouts.Reason
	}{
		checkouts.ResultPaid:    {checkouts.Committed, ""},
		checkouts.ResultFailed:  {checkouts.Compensated, checkouts.PaymentFailed},
		checkouts.ResultPending: {checkouts.Compensated, checkouts.PaymentTimeout},
	} {
		t.Run(string(result), func(t *testing.T) {
			t.Parallel()
			s := newFixture(t)
			s.stock("shoe", 5)
			s.hold("a", "shoe", 2)
			c := s.beginCalled("a")
			s.late(c.CheckoutID)
			var made calls
			v := made.counted(always(result))
			if report := s.recover(v); report.AskedLate != 1 || report.Claimed != 1 {
				t.Errorf("%+v", report)
			}
			if result == checkouts.ResultPending {
				s.wantCheckout(c.CheckoutID, checkouts.Validating, "", "")
				s.late(c.CheckoutID)
				if report := s.recover(v); report.AskedLate != 0 || report.Compensated != 1 {
					t.Errorf("at the new deadline: %+v", report)
				}
			}
			if n := made.count(c.CheckoutID); n != 1 {
				t.Errorf("%d calls, want 1", n)
			}
			s.wantCheckout(c.CheckoutID, want.status, want.reason, "")
			s.sound()
		})
	}
}

// A checkout whose holds are lost is asked for too, with its own deadline. If
// it is paid, its payment has to be given back.
func TestAskedOnceTheHoldsAreLost(t *testing.T) {
	t.Parallel()
	s := newFixture(t)
	s.stock("shoe", 5)
	s.stock("sock", 5)
	s.hold("a", "shoe", 2)
	s.hold("a", "sock", 1)
	c := s.beginCalled("a")
	s.late(c.CheckoutID)
	s.Exec(`UPDATE reservations SET expires_at = clock_timestamp() WHERE resource_key = 'shoe'`)
	s.sweep()
	late := s.get(c.CheckoutID).Deadline
	s.recover(validator(func(_ context.Context, asked checkouts.Checkout) (checkouts.Result, error) {
		if !asked.Deadline.Equal(late) {
			t.Errorf("asked with the deadline %s, want %s", asked.Deadline, late)
		}
		return checkouts.ResultPaid, nil
	}))
	s.wantCheckout(c.CheckoutID, checkouts.Compensated, checkouts.PaymentTimeout, checkouts.PaidTooLate)
	s.wantStock("shoe", 5, 0)
	s.wantStock("sock", 5, 0)
	s.sound()
}

// A claim whose process died before its call ended does not count as one. Of
// such claims there is a bound.
func TestClaimedAndNotAsked(t *testing.T) {
	t.Parallel()
	for attempts, want := range map[int]checkouts.Status{1: checkouts.Committed, 4: checkouts.Committed, 5: checkouts.Compensated} {
		t.Run(fmt.Sprint(attempts), func(t *testing.T) {
			t.Parallel()
			s := newFixture(t)
			s.stock("shoe", 5)
			s.hold("a", "shoe", 2)
			c := s.beginCalled("a")
			s.Exec(`UPDATE checkouts SET attempt = $1`, attempts)
			s.late(c.CheckoutID)
			s.recover(always(checkouts.ResultPaid))
			if got := s.get(c.CheckoutID); got.Status != want {
				t.Errorf("%s, want %s", got.Status, want)
			}
			s.sound()
		})
	}
}

// A call that the end of the pass has cut does not count as one.
func TestAskedAgainAfterAShutdown(t *testing.T) {
	t.Parallel()
	s := newFixture(t)
	s.stock("shoe", 5)
	s.hold("a", "shoe", 2)
	c := s.beginCalled("a")
	ctx, stop := context.WithCancel(t.Context())
	_, err := s.recovery(validator(func(ctx context.Context, _ checkouts.Checkout) (checkouts.Result, error) {
		stop()
		<-ctx.Done()
		return "", ctx.Err()
	})).RunOnce(ctx)
	if !errors.Is(err, context.Canceled) {
		t.Errorf("the pass: %v", err)
	}
	s.late(c.CheckoutID)
	s.recover(always(checkouts.ResultPaid))
	s.wantCheckout(c.CheckoutID, checkouts.Committed, "", "")
	s.wantHolds(c.CheckoutID, reservations.Committed)
}
