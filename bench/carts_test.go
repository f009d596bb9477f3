package main

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"github.com/holdfast/holdfast/bench/baselines"
	"github.com/holdfast/holdfast/internal/pgtest"
)

// cartShop is the baseline's tables with the verbs of carts over them.
type cartShop struct {
	t      *testing.T
	db     *pgxpool.Pool
	tenant uuid.UUID
	carts  *baselines.Carts
	stock  int64
}

func newCartShop(t *testing.T, stock int64) *cartShop {
	t.Helper()
	s := &cartShop{t: t, db: pgtest.New(t), tenant: uuid.New(), stock: stock}
	s.carts = &baselines.Carts{DB: s.db}
	if err := baselines.Prepare(t.Context(), s.db, baselines.Shop{TenantID: s.tenant, Variants: 2, Stock: stock}); err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *cartShop) request(cart string, variant int, quantity int64, ttl time.Duration) baselines.Request {
	return baselines.Request{
		TenantID: s.tenant, HoldID: newID(), CartID: cart, VariantID: baselines.VariantID(variant), Quantity: quantity, TTL: ttl,
	}
}

func (s *cartShop) hold(cart string, variant int, quantity int64, ttl time.Duration) {
	s.t.Helper()
	if err := transaction(s.db).Hold(s.t.Context(), s.request(cart, variant, quantity, ttl)); err != nil {
		s.t.Fatal(err)
	}
}

// want fails the test unless the rows are as given.
func (s *cartShop) want(want baselines.Sold) {
	s.t.Helper()
	got, err := baselines.CheckSold(s.t.Context(), s.db, want, 2*s.stock)
	if err != nil || got != want {
		s.t.Errorf("the tables have %+v, want %+v: %v", got, want, err)
	}
}

func (s *cartShop) reserved(variant int) (n int64) {
	s.t.Helper()
	const reserved = `SELECT reserved FROM baseline.stocks WHERE variant_id = $1`
	if err := s.db.QueryRow(s.t.Context(), reserved, baselines.VariantID(variant)).Scan(&n); err != nil {
		s.t.Fatal(err)
	}
	return n
}

func TestBaselineCheckout(t *testing.T) {
	t.Parallel()
	s := newCartShop(t, 10)
	s.hold("a", 0, 2, 0)
	s.hold("a", 1, 3, 0)
	s.hold("b", 0, 4, 0)
	committed, err := s.carts.Checkout(t.Context(), s.tenant, "a")
	if err != nil || len(committed) != 2 {
		t.Errorf("%d holds were committed: %v", len(committed), err)
	}
	if _, err := s.carts.Checkout(t.Context(), s.tenant, "a"); !errors.Is(err, baselines.ErrCartEmpty) {
		t.Errorf("a second checkout: %v, want ErrCartEmpty", err)
	}
	s.want(baselines.Sold{Granted: 3, Committed: 2})
	if n := s.reserved(0); n != 4 {
		t.Errorf("%d units are reserved, want 4", n)
	}
}

// A cart with a hold past its deadline is not checked out, not even in part,
// and the hold is expired once.
func TestBaselineExpires(t *testing.T) {
	t.Parallel()
	s := newCartShop(t, 10)
	s.hold("a", 0, 1, 0)
	s.hold("a", 1, 1, time.Microsecond)
	if _, err := s.carts.Checkout(t.Context(), s.tenant, "a"); !errors.Is(err, baselines.ErrHoldExpired) {
		t.Errorf("the checkout: %v, want ErrHoldExpired", err)
	}
	if released, err := s.carts.Remove(t.Context(), s.tenant, "a", baselines.VariantID(1)); err != nil || len(released) != 0 {
		t.Errorf("%d holds past their deadline were released: %v", len(released), err)
	}
	s.want(baselines.Sold{Granted: 2})
	expiry := baselines.ExpireBatch{DB: s.db}
	for _, want := range []int{1, 0} {
		if ended, err := expiry.RunOnce(t.Context(), 10); err != nil || ended != want {
			t.Errorf("%d holds were expired, want %d: %v", ended, want, err)
		}
	}
	s.want(baselines.Sold{Granted: 2, Expired: 1})
	if n := s.reserved(1); n != 0 {
		t.Errorf("%d units are reserved, want 0", n)
	}
}

func TestBaselineRemoveAndChange(t *testing.T) {
	t.Parallel()
	s := newCartShop(t, 10)
	change := func(quantity int64, want error) {
		t.Helper()
		if err := s.carts.Change(t.Context(), s.request("a", 0, quantity, 0)); !errors.Is(err, want) {
			t.Errorf("a change to %d: %v, want %v", quantity, err, want)
		}
	}
	change(2, nil) // the cart has none, so this is a hold
	change(10, nil)
	change(11, baselines.ErrSoldOut)
	change(3, nil)
	if n := s.reserved(0); n != 3 {
		t.Errorf("%d units are reserved, want 3", n)
	}
	s.want(baselines.Sold{Granted: 3})
	for _, want := range []int{1, 0} {
		if released, err := s.carts.Remove(t.Context(), s.tenant, "a", hotVariant); err != nil || len(released) != want {
			t.Errorf("%d holds were released, want %d: %v", len(released), want, err)
		}
	}
	if n := s.reserved(0); n != 0 {
		t.Errorf("%d units are reserved, want 0", n)
	}
	s.want(baselines.Sold{Granted: 3, Released: 1})
	if _, err := baselines.CheckSold(t.Context(), s.db, baselines.Sold{Granted: 3, Released: 2}, 2*s.stock); err == nil {
		t.Error("a removal that is not in the tables was not missed")
	}
}

// Callers of one variant and the expiry of due holds do not disturb each other:
// the counts add up, and no deadlock occurs.
func TestBaselineCartsTogether(t *testing.T) {
	t.Parallel()
	s := newCartShop(t, 1000)
	const callers, each = 8, 30
	expiring, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- expireAlways(expiring, s.db) }()
	var calls errgroup.Group
	for caller := range callers {
		calls.Go(func() error {
			for n := range each {
				if err := s.act(fmt.Sprintf("cart-%d-%d", caller, n), n); err != nil {
					return err
				}
			}
			return nil
		})
	}
	err := calls.Wait()
	stop()
	if err := errors.Join(err, <-ended); err != nil {
		t.Fatal(err)
	}
	err = await(t.Context(), time.Minute, time.Millisecond, func() (missing string, err error) {
		if left := s.reserved(0); left > 0 {
			missing = fmt.Sprintf("%d units are reserved", left)
		}
		_, err = (&baselines.ExpireBatch{DB: s.db}).RunOnce(t.Context(), callers*each)
		return missing, err
	})
	if err != nil {
		t.Fatal(err)
	}
	const carts = callers * each / 3
	s.want(baselines.Sold{Granted: 4 * carts, Committed: carts, Released: carts, Expired: carts})
}

// act changes and checks out every third cart, removes the next one's hold, and
// leaves the last one's to expire.
func (s *cartShop) act(cart string, n int) error {
	r := s.request(cart, 0, 1, 0)
	if n%3 == 2 {
		r.TTL = time.Millisecond
	}
	if err := transaction(s.db).Hold(s.t.Context(), r); err != nil {
		return err
	}
	switch n % 3 {
	case 0:
		r.Quantity = 2
		if err := s.carts.Change(s.t.Context(), r); err != nil {
			return err
		}
		_, err := s.carts.Checkout(s.t.Context(), s.tenant, cart)
		return err
	case 1:
		_, err := s.carts.Remove(s.t.Context(), s.tenant, cart, hotVariant)
		return err
	default:
		return nil
	}
}

// expireAlways expires what is due until ctx ends.
func expireAlways(ctx context.Context, db *pgxpool.Pool) error {
	for ctx.Err() == nil {
		if _, err := (&baselines.ExpireBatch{DB: db}).RunOnce(ctx, 10); err != nil && ctx.Err() == nil {
			return err
		}
	}
	return nil
}
