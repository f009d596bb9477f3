package carts_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/holdfast/holdfast/internal/admission"
	"github.com/holdfast/holdfast/internal/carts"
	"github.com/holdfast/holdfast/internal/inventory"
	"github.com/holdfast/holdfast/internal/pgtest"
	"github.com/holdfast/holdfast/internal/reservationrows"
	"github.com/holdfast/holdfast/internal/tenants"
	"github.com/holdfast/holdfast/reservations"
)

// meeting is a number of calls that work on the holds of one cart: a shoe and a
// boot.
type meeting struct {
	name  string
	calls func(s *shop, cart string, shoe, boot uuid.UUID) []carts.Call
	// errs are what the calls return; want checks the rest.
	errs []func(error) bool
	want func(s *shop, answers []*answer, shoe, boot uuid.UUID)
	// commits is the number of transactions of the calls.
	commits int64
}

func succeeds(err error) bool { return err == nil }

func is(target error) func(error) bool {
	return func(err error) bool { return errors.Is(err, target) }
}

func conflicts(actual reservations.Status) func(error) bool {
	return func(err error) bool {
		c, ok := errors.AsType[*reservations.ConflictError](err)
		return ok && c.Actual == actual
	}
}

// ended checks that the holds are in these statuses.
func ended(shoes, boots reservations.Status) func(*shop, []*answer, uuid.UUID, uuid.UUID) {
	return func(s *shop, _ []*answer, shoe, boot uuid.UUID) {
		s.t.Helper()
		s.is(shoes, shoe)
		s.is(boots, boot)
	}
}

const (
	held      = reservations.Held
	committed = reservations.Committed
	released  = reservations.Released
	expired   = reservations.Expired
)

var meetings = []meeting{
	{"two checkouts", func(s *shop, cart string, _, _ uuid.UUID) []carts.Call {
		return []carts.Call{s.checkout(cart), s.checkout(cart)}
	}, []func(error) bool{succeeds, is(inventory.ErrCartEmpty)}, ended(committed, committed), 2},
	{"a checkout, and a commit of a hold", func(s *shop, cart string, shoe, _ uuid.UUID) []carts.Call {
		return []carts.Call{s.checkout(cart), s.commit(shoe)}
	}, []func(error) bool{succeeds, conflicts(committed)}, ended(committed, committed), 2},
	{"a release of a hold, and a checkout", func(s *shop, cart string, shoe, _ uuid.UUID) []carts.Call {
		return []carts.Call{s.release(shoe), s.checkout(cart)}
	}, []func(error) bool{succeeds, succeeds}, ended(released, committed), 2},
	{"a checkout, and a removal", func(s *shop, cart string, _, _ uuid.UUID) []carts.Call {
		return []carts.Call{s.checkout(cart), s.remove(cart, "")}
	}, []func(error) bool{succeeds, succeeds}, ended(committed, committed), 2},
	{"a removal of a variant, and a checkout", func(s *shop, cart string, _, _ uuid.UUID) []carts.Call {
		return []carts.Call{s.remove(cart, "boot"), s.checkout(cart)}
	}, []func(error) bool{succeeds, succeeds}, ended(committed, released), 2},
	{"two releases of a hold", func(s *shop, _ string, shoe, _ uuid.UUID) []carts.Call {
		return []carts.Call{s.release(shoe), s.release(shoe)}
	}, []func(error) bool{succeeds, conflicts(released)}, ended(released, held), 2},
	{"a release and a commit of a hold", func(s *shop, _ string, shoe, _ uuid.UUID) []carts.Call {
		return []carts.Call{s.release(shoe), s.commit(shoe)}
	}, []func(error) bool{succeeds, conflicts(released)}, ended(released, held), 2},
	{"an extension and a commit of a hold", func(s *shop, _ string, shoe, _ uuid.UUID) []carts.Call {
		return []carts.Call{s.extend(shoe), s.commit(shoe)}
	}, []func(error) bool{succeeds, succeeds}, ended(committed, held), 2},
	{"releases of two holds", func(s *shop, _ string, shoe, boot uuid.UUID) []carts.Call {
		return []carts.Call{s.release(shoe), s.release(boot)}
	}, []func(error) bool{succeeds, succeeds}, ended(released, released), 1},
	{"extensions of a hold and of its cart", func(s *shop, cart string, shoe, _ uuid.UUID) []carts.Call {
		return []carts.Call{s.extend(shoe), s.extendCart(cart), s.extend(shoe)}
	}, []func(error) bool{succeeds, succeeds, succeeds}, func(s *shop, _ []*answer, shoe, boot uuid.UUID) {
		s.lasts(shoe, 3*time.Minute)
		s.lasts(boot, time.Minute)
	}, 3},
	{"a release of a hold that is due, and a checkout", func(s *shop, cart string, shoe, _ uuid.UUID) []carts.Call {
		s.lapse(shoe)
		return []carts.Call{s.release(shoe), s.checkout(cart)}
	}, []func(error) bool{conflicts(expired), is(inventory.ErrHoldExpired)}, ended(expired, held), 2},
	{"a removal of a hold that is due, and a checkout", func(s *shop, cart string, shoe, _ uuid.UUID) []carts.Call {
		s.lapse(shoe)
		return []carts.Call{s.remove(cart, "shoe"), s.checkout(cart)}
	}, []func(error) bool{succeeds, succeeds}, ended(expired, committed), 2},
	{"a call twice under its key", func(s *shop, cart string, _, _ uuid.UUID) []carts.Call {
		return []carts.Call{keyed(cart, s.checkout(cart)), keyed(cart, s.checkout(cart))}
	}, []func(error) bool{succeeds, succeeds}, func(s *shop, answers []*answer, shoe, boot uuid.UUID) {
		if k := answers[1].Replayed; k == nil || string(k.Body) != bodyOf(answers[0].Reservations) {
			s.t.Errorf("the second call returned %+v, want what the first one did", answers[1].Result)
		}
		s.is(committed, shoe, boot)
	}, 2},
	{"two calls under one key", func(s *shop, cart string, shoe, boot uuid.UUID) []carts.Call {
		return []carts.Call{keyed(cart, s.release(shoe)), keyed(cart, s.release(boot))}
	}, []func(error) bool{succeeds, is(tenants.ErrKeyReused)}, ended(released, held), 2},
	{"a call that fails, and another under its key", func(s *shop, cart string, shoe, _ uuid.UUID) []carts.Call {
		return []carts.Call{keyed(cart, s.checkout("empty "+cart)), keyed(cart, s.release(shoe))}
	}, []func(error) bool{is(inventory.ErrCartEmpty), succeeds}, ended(released, held), 2},
}

// lasts fails the test unless the hold was extended by that time.
func (s *shop) lasts(id uuid.UUID, by time.Duration) {
	s.t.Helper()
	const longerSQL = `
SELECT (extract(epoch FROM r.expires_at - a.expires_at) * 1000)::bigint
FROM reservations r
JOIN audit_log a ON a.tenant_id = r.tenant_id AND a.target_id = r.reservation_id AND a.action = 'reservation.held'
WHERE r.tenant_id = $1 AND r.reservation_id = $2`
	if n := s.Int(longerSQL, s.Tenant, id); n != by.Milliseconds() {
		s.t.Errorf("hold %s lasts %d ms longer, want %s", id, n, by)
	}
}

// Calls that work on the same holds, or have the same key, are decided one
// after the other. Each sees the result of the one before. A call of another
// cart is in the transaction of the first.
func TestCallsThatMeet(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	for _, variant := range []string{"shoe", "boot", "sock"} {
		s.Stock(variant, 1000)
	}
	for i, tc := range meetings {
		t.Run(tc.name, func(t *testing.T) { //nolint:paralleltest // one database, whose transactions are counted
			s, cart := s.in(t), fmt.Sprint("cart-", i)
			ids := s.hold(item{cart, "shoe", 1}, item{cart, "boot", 2}, item{"other " + cart, "sock", 1})
			calls := tc.calls(s, cart, ids[0], ids[1])
			before := s.commits.Load()
			answers := s.together(append(calls, s.checkout("other "+cart))...)
			if n := s.commits.Load() - before; n != tc.commits || s.rollbacks.Load() != 0 {
				t.Errorf("the calls took %d commits and %d rollbacks, want %d and none", n, s.rollbacks.Load(), tc.commits)
			}
			for i, right := range tc.errs {
				if !right(answers[i].err) {
					t.Errorf("call %d returned %v", i, answers[i].err)
				}
			}
			tc.want(s, answers, ids[0], ids[1])
			s.must(answers[len(calls)].err)
		})
	}
	s.sound()
}

// Two tenants may use the same names. Their calls are decided in one
// transaction, and each has a separate key.
func TestNamesOfTenants(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	other := s.apart()
	var calls []carts.Call
	var ids []uuid.UUID
	for _, of := range []*shop{s, other} {
		of.Stock("shoe", 10)
		ids = append(ids, of.hold(item{"cart", "shoe", 1})...)
		calls = append(calls, keyed("key", of.checkout("cart")))
	}
	for _, a := range s.together(calls...) {
		if a.err != nil || a.Replayed != nil || len(a.Reservations) != 1 {
			t.Errorf("%+v, %v", a.Result, a.err)
		}
	}
	if n := s.commits.Load(); n != 1 {
		t.Errorf("the calls took %d transactions", n)
	}
	s.is(committed, ids[0])
	other.is(committed, ids[1])
	s.sound()
}

// Invalid calls are refused before they are queued.
func TestInvalidCalls(t *testing.T) {
	t.Parallel()
	groups, err := carts.New(nil, carts.Config{})
	if err != nil {
		t.Fatal(err)
	}
	tenant := uuid.New()
	for name, c := range map[string]inventory.Call{
		"no action": {TenantID: tenant}, "an unknown action": {Action: inventory.ExtendHold + 1, TenantID: tenant},
		"no reason":          {Action: inventory.ReleaseCart, TenantID: tenant, CartID: "cart"},
		"the sweep's reason": {Action: inventory.ReleaseHold, TenantID: tenant, Reason: reservationrows.TTL},
		"no TTL":             {Action: inventory.ExtendCart, TenantID: tenant, CartID: "cart", LifetimeMax: time.Hour},
		"a negative TTL":     {Action: inventory.ExtendHold, TenantID: tenant, By: -1, LifetimeMax: time.Hour},
	} {
		_, err := groups.Do(t.Context(), carts.Call{Call: c})
		if _, ok := errors.AsType[*inventory.InvalidError](err); !ok {
			t.Errorf("%s: %v", name, err)
		}
	}
	_, err = groups.Do(t.Context(), carts.Call{Call: inventory.Call{Action: inventory.CheckoutCart, TenantID: tenant, CartID: "cart"}, Key: "a\x00b"})
	if _, ok := errors.AsType[*tenants.InvalidError](err); !ok {
		t.Errorf("a key with a control character: %v", err)
	}
	if n := groups.Waiting(); n != 0 {
		t.Errorf("%d calls are queued", n)
	}
}

func TestConfig(t *testing.T) {
	t.Parallel()
	for name, config := range map[string]carts.Config{
		"no group":                         {GroupMax: -1},
		"a queue shorter than a group":     {GroupMax: 10, QueueMax: 9},
		"a queue shorter than the default": {QueueMax: 100},
		"a short attempt":                  {AttemptTimeout: time.Microsecond},
		"no stop timeout":                  {StopTimeout: -time.Second},
	} {
		if _, err := carts.New(nil, config); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	for _, config := range []carts.Config{{}, {GroupMax: 1, QueueMax: 1, AttemptTimeout: time.Millisecond, StopTimeout: time.Millisecond}} {
		if _, err := carts.New(nil, config); err != nil {
			t.Error(err)
		}
	}
}

// refused fails the test unless err refuses the call for that reason, because
// of the calls of its own tenant or of all tenants.
func refused(t *testing.T, err error, why admission.Why, own bool) {
	t.Helper()
	r, ok := errors.AsType[*admission.RefusedError](err)
	if !ok || r.Why != why || r.TenantOnly != own || r.RetryAfter != time.Second {
		t.Errorf("the call returned %v, want it refused for %s, because of its own tenant: %t", err, why, own)
	}
}

// A single tenant fills the queue up to its limit. A call of another tenant is
// still queued. After that the first tenant is over its limit.
func TestQueueIsBounded(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	other := s.apart()
	c := gather(t, s.pool, carts.Config{GroupMax: 4, QueueMax: 4})
	for range 4 {
		c.join(t.Context(), s.checkout("cart"))
	}
	_, err := c.groups.Do(t.Context(), s.checkout("cart"))
	refused(t, err, admission.WhyQueue, false)
	for range 2 {
		c.join(t.Context(), other.checkout("cart"))
	}
	_, err = c.groups.Do(t.Context(), other.checkout("cart"))
	refused(t, err, admission.WhyQueue, false)
	_, err = c.groups.Do(t.Context(), s.checkout("cart"))
	refused(t, err, admission.WhyQueue, true)
	c.join(t.Context(), s.apart().checkout("cart"))
	for _, a := range c.run() {
		if !errors.Is(a.err, inventory.ErrCartEmpty) {
			t.Errorf("a queued call returned %v", a.err)
		}
	}
}

// Many calls of one tenant delay a call of another tenant by at most one
// quantum. No group is larger than GroupMax.
func TestTenantsTakeTurns(t *testing.T) {
	t.Parallel()
	const crowded, groupMax = 500, 100
	s := newShop(t)
	s.Stock("shoe", crowded)
	items := make([]item, crowded)
	for i := range items {
		items[i] = item{fmt.Sprint("cart-", i), "shoe", 1}
	}
	c := gather(t, s.pool, carts.Config{GroupMax: groupMax, AttemptTimeout: time.Minute})
	calls := make([]carts.Call, crowded)
	for i, id := range s.hold(items...) {
		calls[i] = s.commit(id)
	}
	c.rush(t.Context(), calls...)
	other := s.apart()
	other.Stock("shoe", 1)
	c.join(t.Context(), other.commit(other.hold(item{"cart", "shoe", 1})[0]))
	for i, a := range c.run() {
		if a.err != nil {
			t.Fatalf("call %d: %v", i, a.err)
		}
	}
	// The group after one that stalls finds the stock locked, and is committed in
	// more transactions.
	if n, want := s.commits.Load(), int64(crowded/groupMax+1); n < want {
		t.Errorf("%d groups were committed, want at least %d", n, want)
	}
	const aheadSQL = `
SELECT count(*)
FROM audit_log
WHERE action = 'reservation.committed'
  AND audit_id < (SELECT audit_id FROM audit_log WHERE tenant_id = $1 AND action = 'reservation.committed')`
	if n := s.Int(aheadSQL, other.Tenant); n >= groupMax {
		t.Errorf("%d of the crowd's calls were committed ahead of the other tenant's", n)
	}
	s.sound()
}

// Calls that are queued when Run's context ends are committed, and no call is
// queued after that.
func TestStopCommitsTheQueue(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.Stock("shoe", 10)
	ids := s.hold(item{"a", "shoe", 1}, item{"b", "shoe", 1}, item{"c", "shoe", 1})
	c := gather(t, s.pool, carts.Config{GroupMax: 2})
	c.join(t.Context(), s.checkout("a"), s.checkout("b"), s.checkout("c"))
	ctx, stop := context.WithCancel(t.Context())
	stop()
	s.must(c.groups.Run(ctx))
	c.waiting.Wait()
	for i, a := range c.answers {
		if a.err != nil {
			t.Errorf("call %d: %v", i, a.err)
		}
	}
	s.is(committed, ids...)
	_, err := c.groups.Do(t.Context(), s.checkout("a"))
	refused(t, err, admission.WhyClosing, false)
}

// A call whose caller leaves while it is queued has no effect. Its group is
// committed without it.
func TestCallersThatLeave(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.Stock("shoe", 10)
	ids := s.hold(item{"late", "shoe", 1}, item{"gone", "shoe", 1}, item{"stays", "shoe", 1})
	c := gather(t, s.pool, carts.Config{})
	passes, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	leaves, leave := context.WithCancel(t.Context())
	for i, ctx := range []context.Context{passes, leaves} {
		c.join(ctx, s.commit(ids[i]))
	}
	leave()
	c.waiting.Wait()
	refused(t, c.answers[0].err, admission.WhyTimeout, false)
	if !errors.Is(c.answers[1].err, context.Canceled) || errors.Is(c.answers[1].err, admission.ErrOutcomeUnknown) {
		t.Errorf("a caller that left received %v", c.answers[1].err)
	}
	c.join(t.Context(), s.commit(ids[2]))
	s.must(c.run()[2].err)
	s.is(held, ids[:2]...)
	s.is(committed, ids[2])
	s.sound()
}

// A group waits for a connection no longer than its timeout, and its calls are
// not grouped.
func TestNoConnection(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	config := s.DB.Config()
	config.MaxConns = 1
	pool := s.open(config)
	taken, err := pool.Acquire(t.Context())
	s.must(err)
	defer taken.Release()
	c := gather(t, pool, carts.Config{AttemptTimeout: 50 * time.Millisecond})
	c.join(t.Context(), s.checkout("a"), s.checkout("b"))
	for _, a := range c.run() {
		if !errors.Is(a.err, carts.ErrNotGrouped) {
			t.Errorf("a call returned %v", a.err)
		}
	}
}

// Groups are READ COMMITTED, whatever the default of the database, because a
// stock may change after a group has begun.
func TestGroupsAreReadCommitted(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.Stock("shoe", 10)
	id := s.hold(item{"cart", "shoe", 1})[0]
	config := s.DB.Config()
	config.ConnConfig.RuntimeParams["default_transaction_isolation"] = "repeatable read"
	config.ConnConfig.Tracer = &batches{ahead: func(n int) {
		if n == 2 { // it has read the cart's holds, and locks them next
			s.Exec(`UPDATE inventory_stocks SET updated_at = clock_timestamp()`)
		}
	}}
	c := gather(t, s.open(config), carts.Config{})
	c.join(t.Context(), s.checkout("cart"))
	s.must(c.run()[0].err)
	s.is(committed, id)
}

// While another transaction keeps a stock locked, the calls for it end with
// ErrNotGrouped, and calls for other stocks are committed. While the stock is
// remembered as locked, only the contended queue waits for it.
func TestBlockedStock(t *testing.T) {
	t.Parallel()
	const rounds = 30
	s := newShop(t)
	other := s.apart()
	for _, of := range []*shop{s, other} {
		of.Stock("locked", 100)
		of.Stock("free", 100)
	}
	items := make([]item, rounds)
	for i := range items {
		items[i] = item{fmt.Sprint("cart-", i), "locked", 1}
	}
	locked, free := s.hold(items...), s.hold(item{"b", "free", 1})[0]
	both := s.hold(item{"c", "free", 1}, item{"c", "locked", 1})
	elsewhere := other.hold(item{"a", "locked", 1})[0]
	stock := s.LockStock("locked")
	c := gather(t, s.pool, carts.Config{})
	c.groups.StopClock()
	c.join(t.Context(), s.extend(free), other.extend(elsewhere), s.extend(locked[0]), s.extendCart("c"))
	stop := startGroups(c.groups)
	defer stop()
	for _, a := range slices.Clone(c.answers[:2]) {
		<-a.done
		s.must(a.err)
	}
	for _, id := range locked[1:] {
		c.call(t.Context(), s.extend(id))
		for _, call := range []carts.Call{s.extend(free), other.extend(elsewhere)} {
			_, err := c.groups.Do(t.Context(), call)
			s.must(err)
		}
	}
	c.waiting.Wait()
	if n := s.first.Load(); n == 0 {
		t.Error("the calls for the free stocks waited for the locked stock")
	}
	if n := s.short.Load(); n != 1 {
		t.Errorf("%d groups outside the contended queue waited for the stock, want 1", n)
	}
	for i, a := range c.answers[2:] {
		if !errors.Is(a.err, carts.ErrNotGrouped) {
			t.Errorf("call %d for the locked stock returned %v", i, a.err)
		}
	}
	s.lasts(both[0], 0)
	stock.Release()
	_, err := c.groups.Do(t.Context(), s.extendCart("c"))
	s.must(err)
	s.lasts(free, rounds*time.Minute)
	s.lasts(both[1], time.Minute)
	s.sound()
}

// A group waits for one stock of a cart, and the holds of that stock end before
// the group has read the cart's holds. The group does not continue without the
// lock on the cart's other stock.
func TestWaitedStockIsGone(t *testing.T) {
	t.Parallel()
	for gone, kept := range map[string]string{"shoe": "boot", "boot": "shoe"} {
		t.Run(gone, func(t *testing.T) {
			t.Parallel()
			s := newShop(t)
			s.Stock(gone, 10)
			s.Stock(kept, 10)
			ids := s.hold(item{"a", gone, 1}, item{"a", kept, 1})
			first := s.LockStock(gone)
			defer s.LockStock(kept).Release()
			config := s.DB.Config()
			config.MaxConns = 1
			config.ConnConfig.Tracer = &batches{ahead: func(n int) {
				if n == 4 { // begin, lock and read the clock, begin again
					first.Release()
					_, err := s.single(s.remove("a", gone))
					s.must(err)
				}
			}}
			c := gather(t, s.open(config), carts.Config{})
			c.join(t.Context(), s.extendCart("a"))
			if err := c.run()[0].err; !errors.Is(err, carts.ErrNotGrouped) {
				t.Errorf("the call returned %v while the stock of %s was locked", err, kept)
			}
			s.is(released, ids[0])
			s.lasts(ids[1], 0)
		})
	}
}

// The calls for a stock that is locked for longer than a group waits, and then
// unlocked, are made in a group.
func TestSlowStock(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.Stock("slow", 10)
	id := s.hold(item{"a", "slow", 1})[0]
	c := gather(t, s.pool, carts.Config{})
	stop := startGroups(c.groups)
	defer stop()
	pgtest.Until(t, "a call that has waited longer is made in a group", func() bool { // unless the test was slower than the contended queue
		stock, before := s.LockStock("slow"), s.rollbacks.Load()
		a := c.call(t.Context(), s.extend(id))
		pgtest.Until(t, "a group did not get the lock", func() bool { return s.rollbacks.Load() > before })
		stock.Release()
		<-a.done
		return a.err == nil
	})
	s.sound()
}

// The contended queue uses one connection, however many calls wait in it, and
// the other calls use another one.
func TestSlowQueueHasOneConnection(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.Stock("locked", 10)
	s.Stock("free", 10)
	locked, free := s.hold(item{"a", "locked", 1}, item{"b", "locked", 1}), s.hold(item{"c", "free", 1})[0]
	s.LockStock("locked")
	config := s.DB.Config()
	config.MaxConns, config.MinConns = 2, 2
	config.ConnConfig.Tracer = s.counts
	pool := s.open(config)
	pgtest.Until(t, "the pool has its connections", func() bool { return pool.Stat().IdleConns() == 2 })
	waited := pool.Stat().EmptyAcquireCount()
	c := gather(t, pool, carts.Config{})
	stop := startGroups(c.groups)
	defer stop()
	first := c.call(t.Context(), s.extend(locked[0]))
	pgtest.Until(t, "its first group has waited", func() bool { return s.rollbacks.Load() == 1 })
	s.Blocked() // the contended queue waits
	c.call(t.Context(), s.extend(locked[1]))
	other := s.extend(free)
	other.By = time.Millisecond
	for done := false; !done; {
		_, err := c.groups.Do(t.Context(), other)
		s.must(err)
		select {
		case <-first.done:
			done = true
		default:
		}
	}
	if n := pool.Stat().EmptyAcquireCount() - waited; n != 0 {
		t.Errorf("groups waited %d times for a connection", n)
	}
	c.waiting.Wait()
}
