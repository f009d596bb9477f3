package checkouts_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/internal/carts"
	"github.com/holdfast/holdfast/internal/checkouts"
	"github.com/holdfast/holdfast/internal/inventory"
	"github.com/holdfast/holdfast/internal/reservationrows"
	"github.com/holdfast/holdfast/reservations"
)

// A checkout of seats and counted units is begun, paid and committed.
func TestPaid(t *testing.T) {
	t.Parallel()
	s := newFixture(t)
	s.seats("hall", 4)
	s.stock("shirt", 5)
	s.hold("a", "hall", 2, "s2", "s3")
	s.hold("a", "shirt", 3)
	c := s.begin("a")
	want := checkouts.Checkout{
		TenantID: s.tenant, CheckoutID: c.CheckoutID, CartID: "a", PaymentReference: "pay-a", Status: checkouts.Validating,
		Holds: 2, Units: 5, CorrelationID: "c-7",
		Deadline: c.Deadline, NextAttemptAt: c.Deadline, CreatedAt: c.CreatedAt, UpdatedAt: c.UpdatedAt,
	}
	if diff := cmp.Diff(want, c); diff != "" {
		t.Errorf("begun (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(c, s.get(c.CheckoutID)); diff != "" {
		t.Errorf("read back (-begun +read):\n%s", diff)
	}
	if ttl := c.Deadline.Sub(c.CreatedAt); ttl < 14*time.Minute || ttl > 15*time.Minute {
		t.Errorf("the deadline is after %s, want 15 min", ttl)
	}
	holds, err := checkouts.Holds(t.Context(), s.DB, s.tenant, c.CheckoutID)
	s.Must(err)
	for _, h := range holds {
		if !h.InCheckout() || !h.ExpiresAt.Equal(c.Deadline.Add(checkouts.Margin)) {
			t.Errorf("hold of %s: in checkout %s until %s, want %s until a minute after %s", h.ResourceKey, h.CheckoutID, h.ExpiresAt, c.CheckoutID, c.Deadline)
		}
	}
	s.sound()

	paid, err := s.answer(c.CheckoutID, checkouts.ResultPaid)
	s.Must(err)
	if paid.Status != checkouts.Committed || paid.EndedAt == nil {
		t.Errorf("paid: %+v", paid)
	}
	s.wantHolds(c.CheckoutID, reservations.Committed)
	s.wantStock("hall", 2, 0)
	s.wantStock("shirt", 2, 0)
	s.sound()
	s.verified()
}

func TestPaymentFailed(t *testing.T) {
	t.Parallel()
	s := newFixture(t)
	s.seats("hall", 4)
	s.hold("a", "hall", 2)
	c := s.begin("a")
	failed, err := s.answer(c.CheckoutID, checkouts.ResultFailed)
	s.Must(err)
	if failed.Status != checkouts.Compensated || failed.Reason != checkouts.PaymentFailed || failed.EndedAt == nil {
		t.Errorf("%+v", failed)
	}
	s.wantHolds(c.CheckoutID, reservations.Released)
	s.wantStock("hall", 4, 0)
	s.hold("b", "hall", 4)
	s.sound()
	s.verified()
}

// A cart that cannot be checked out is refused, and nothing is changed.
func TestBeginRefused(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		prepare func(s *fixture)
		start   func(start *checkouts.Start)
		want    error
		field   string
	}{
		"nothing held":      {want: checkouts.ErrCartEmpty},
		"an expired hold":   {prepare: func(s *fixture) { s.Exec(`UPDATE reservations SET expires_at = clock_timestamp()`) }, want: checkouts.ErrHoldExpired},
		"another checkout":  {prepare: func(s *fixture) { s.begin("a") }, want: checkouts.ErrCheckoutInProgress},
		"a newer hold":      {prepare: func(s *fixture) { s.begin("a"); s.hold("a", "sock", 1) }, want: checkouts.ErrCheckoutInProgress},
		"holds that lapsed": {prepare: func(s *fixture) { s.lapse(s.begin("a").CheckoutID); s.sweep() }, want: checkouts.ErrHoldExpired},
		"lapsed, added again": {
			prepare: func(s *fixture) { s.lapse(s.begin("a").CheckoutID); s.sweep(); s.hold("a", "shoe", 1) },
			want:    checkouts.ErrCheckoutInProgress, // the cart has an unfinished checkout
		},
		"an undecided request": {prepare: func(s *fixture) {
			s.Exec(`INSERT INTO reservation_requests (tenant_id, request_id, quantity, lane, cart_id, variant_id)
				VALUES ($1, $2, 1, 'normal', 'a', 'sock')`, s.tenant, uuid.New())
		}, want: checkouts.ErrRequestsPending},
		"no cart":               {start: func(start *checkouts.Start) { start.CartID = "" }, field: "cart_id"},
		"no payment":            {start: func(start *checkouts.Start) { start.PaymentReference = "" }, field: "payment_reference"},
		"a long payment":        {start: func(start *checkouts.Start) { start.PaymentReference = strings.Repeat("x", 201) }, field: "payment_reference"},
		"a URL with a new line": {start: func(start *checkouts.Start) { start.CallbackURL = "https://a\n" }, field: "callback_url"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newFixture(t)
			s.stock("shoe", 5)
			s.stock("sock", 5)
			if name != "nothing held" {
				s.hold("a", "shoe", 2)
			}
			if c.prepare != nil {
				c.prepare(s)
			}
			start := s.start("a")
			start.PaymentReference = "another"
			if c.start != nil {
				c.start(&start)
			}
			before := s.Int(`SELECT count(*) FROM audit_log`)
			_, err := checkouts.Begin(t.Context(), s.DB, start, s.config)
			if c.want != nil && !errors.Is(err, c.want) {
				t.Errorf("%v, want %v", err, c.want)
			}
			invalid, ok := errors.AsType[*inventory.InvalidError](err)
			if c.field != "" && (!ok || invalid.Field != c.field) {
				t.Errorf("%v, want the field %s", err, c.field)
			}
			if n := s.Int(`SELECT count(*) FROM audit_log`) - before; n != 0 {
				t.Errorf("%d audit rows were written", n)
			}
			s.sound()
		})
	}
}

// A Begin that is repeated with its id begins one checkout, also at once.
func TestBeginRepeated(t *testing.T) {
	t.Parallel()
	s := newFixture(t)
	s.stock("shoe", 5)
	s.hold("a", "shoe", 2)
	s.hold("b", "shoe", 2)
	start := s.start("a")
	start.CheckoutID = uuid.Must(uuid.NewV7())
	begun, errs := make([]checkouts.Checkout, 4), make(chan error)
	for i := range begun {
		go func() {
			var err error
			begun[i], err = checkouts.Begin(t.Context(), s.DB, start, s.config)
			errs <- err
		}()
	}
	for range begun {
		s.Must(<-errs)
	}
	for _, c := range begun {
		if diff := cmp.Diff(begun[0], c); diff != "" {
			t.Error(diff)
		}
	}
	s.Must(func() error { _, err := s.answer(start.CheckoutID, checkouts.ResultPaid); return err }())
	again, err := checkouts.Begin(t.Context(), s.DB, start, s.config)
	s.Must(err)
	if again.Status != checkouts.Committed {
		t.Errorf("repeated after its end: %+v", again)
	}
	other := s.start("b")
	other.CheckoutID = start.CheckoutID
	if _, err := checkouts.Begin(t.Context(), s.DB, other, s.config); !errors.Is(err, checkouts.ErrIDReused) {
		t.Errorf("another cart with that id: %v", err)
	}
	s.sound()
}

// While a checkout is in progress, every other verb refuses its holds, and a
// change of quantity is cancelled. Another cart is not affected.
func TestInProgress(t *testing.T) {
	t.Parallel()
	s := newFixture(t)
	s.stock("shoe", 9)
	held := s.hold("a", "shoe", 2)
	s.hold("b", "shoe", 2)
	c := s.begin("a")
	ctx, in := t.Context(), func(do func(tx pgx.Tx) error) error { return pgx.BeginFunc(t.Context(), s.DB, do) }
	verbs := map[string]func() error{
		"begin another": func() error { _, err := checkouts.Begin(ctx, s.DB, s.start("a"), s.config); return err },
		"checkout":      func() error { _, err := carts.Checkout(ctx, s.DB, s.tenant, "a", shopper); return err },
		"remove": func() error {
			_, err := carts.Remove(ctx, s.DB, s.tenant, "a", "shoe", reservations.CartRemoved, shopper)
			return err
		},
		"empty": func() error {
			_, err := carts.Remove(ctx, s.DB, s.tenant, "a", "", reservations.PaymentFailed, shopper)
			return err
		},
		"extend the cart": func() error {
			return in(func(tx pgx.Tx) error {
				_, err := inventory.ExtendCartTx(ctx, tx, s.tenant, "a", time.Second, 24*time.Hour, shopper)
				return err
			})
		},
		"commit": func() error { _, err := inventory.Commit(ctx, s.DB, s.tenant, held, shopper); return err },
		"release": func() error {
			_, err := inventory.Release(ctx, s.DB, s.tenant, held, reservations.Operator, shopper)
			return err
		},
		"extend": func() error {
			_, err := inventory.Extend(ctx, s.DB, s.tenant, held, time.Second, 24*time.Hour, shopper)
			return err
		},
	}
	for name, verb := range verbs {
		if err := verb(); !errors.Is(err, reservationrows.ErrCheckoutInProgress) {
			t.Errorf("%s: %v, want ErrCheckoutInProgress", name, err)
		}
	}
	s.wantStock("shoe", 9, 4)
	if _, err := carts.Checkout(ctx, s.DB, s.tenant, "b", shopper); err != nil {
		t.Errorf("the checkout of another cart: %v", err)
	}
	s.hold("a", "shoe", 1) // is not locked to the checkout
	_, err := s.answer(c.CheckoutID, checkouts.ResultPaid)
	s.Must(err)
	s.wantStock("shoe", 5, 1)
	s.sound()
}

// No call with the id of a checkout reaches that of another tenant.
func TestTenants(t *testing.T) {
	t.Parallel()
	s := newFixture(t)
	other := shopOn(t, s.DB)
	for _, of := range []*fixture{s, other} {
		of.stock("shoe", 5)
		of.hold("a", "shoe", 2)
	}
	c := s.begin("a")
	start := other.start("a")
	start.CheckoutID = c.CheckoutID
	theirs, err := checkouts.Begin(t.Context(), s.DB, start, s.config)
	s.Must(err)
	stranger := shopOn(t, s.DB)
	if _, err := checkouts.Get(t.Context(), s.DB, stranger.tenant, c.CheckoutID); !errors.Is(err, checkouts.ErrNotFound) {
		t.Errorf("read: %v", err)
	}
	holds, err := checkouts.Holds(t.Context(), s.DB, stranger.tenant, c.CheckoutID)
	if err != nil || len(holds) != 0 {
		t.Errorf("holds: %d, %v", len(holds), err)
	}
	if _, err := stranger.answer(c.CheckoutID, checkouts.ResultPaid); !errors.Is(err, checkouts.ErrNotFound) {
		t.Errorf("answer: %v", err)
	}
	_, err = other.answer(theirs.CheckoutID, checkouts.ResultFailed)
	s.Must(err)
	s.wantCheckout(c.CheckoutID, checkouts.Validating, "", "")
	s.wantHolds(c.CheckoutID, reservations.Held)
	s.wantStock("shoe", 5, 2)
	other.wantStock("shoe", 5, 0)
}

func TestPurgeEnded(t *testing.T) {
	t.Parallel()
	s := newFixture(t)
	s.stock("shoe", 9)
	var ids []uuid.UUID
	for _, cart := range []string{"new", "old", "older", "open"} {
		s.hold(cart, "shoe", 1)
		ids = append(ids, s.begin(cart).CheckoutID)
	}
	for i, age := range []string{"59 minutes", "61 minutes", "2 hours"} {
		_, err := s.answer(ids[i], checkouts.ResultFailed)
		s.Must(err)
		s.Exec(`UPDATE checkouts SET ended_at = clock_timestamp() - $2::interval WHERE checkout_id = $1`, ids[i], age)
	}
	for _, want := range []int64{1, 1, 0} {
		purged, err := checkouts.PurgeEnded(t.Context(), s.DB, time.Hour, 1)
		if err != nil || purged != (checkouts.Purged{Checkouts: want}) {
			t.Errorf("purged %+v, %v, want %d", purged, err, want)
		}
	}
	left := slices.DeleteFunc(ids, func(id uuid.UUID) bool {
		_, err := checkouts.Get(t.Context(), s.DB, s.tenant, id)
		return errors.Is(err, checkouts.ErrNotFound)
	})
	if len(left) != 2 {
		t.Errorf("%d are left, want the new one and the unfinished one", len(left))
	}
}
