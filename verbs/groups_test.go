package verbs_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/holdfast/holdfast/inventory"
	"github.com/holdfast/holdfast/requests"
	"github.com/holdfast/holdfast/reservations"
	"github.com/holdfast/holdfast/tenants"
	"github.com/holdfast/holdfast/verbs"
)

// meeting is a number of calls that work on what one cart holds: a shoe and a boot.
type meeting struct {
	name  string
	calls func(s *shop, cart string, shoe, boot uuid.UUID) []verbs.Call
	// errs are what the calls return; want checks the rest.
	errs []func(error) bool
	want func(s *shop, answers []*answer, shoe, boot uuid.UUID)
	// commits are how many transactions the calls take.
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
	{"two checkouts", func(s *shop, cart string, _, _ uuid.UUID) []verbs.Call {
		return []verbs.Call{s.checkout(cart), s.checkout(cart)}
	}, []func(error) bool{succeeds, is(inventory.ErrCartEmpty)}, ended(committed, committed), 2},
	{"a checkout, and a commit of a hold", func(s *shop, cart string, shoe, _ uuid.UUID) []verbs.Call {
		return []verbs.Call{s.checkout(cart), s.commit(shoe)}
	}, []func(error) bool{succeeds, conflicts(committed)}, ended(committed, committed), 2},
	{"a release of a hold, and a checkout", func(s *shop, cart string, shoe, _ uuid.UUID) []verbs.Call {
		return []verbs.Call{s.release(shoe), s.checkout(cart)}
	}, []func(error) bool{succeeds, succeeds}, ended(released, committed), 2},
	{"a checkout, and a removal", func(s *shop, cart string, _, _ uuid.UUID) []verbs.Call {
		return []verbs.Call{s.checkout(cart), s.remove(cart, "")}
	}, []func(error) bool{succeeds, succeeds}, ended(committed, committed), 2},
	{"a removal of a variant, and a checkout", func(s *shop, cart string, _, _ uuid.UUID) []verbs.Call {
		return []verbs.Call{s.remove(cart, "boot"), s.checkout(cart)}
	}, []func(error) bool{succeeds, succeeds}, ended(committed, released), 2},
	{"two releases of a hold", func(s *shop, _ string, shoe, _ uuid.UUID) []verbs.Call {
		return []verbs.Call{s.release(shoe), s.release(shoe)}
	}, []func(error) bool{succeeds, conflicts(released)}, ended(released, held), 2},
	{"a release and a commit of a hold", func(s *shop, _ string, shoe, _ uuid.UUID) []verbs.Call {
		return []verbs.Call{s.release(shoe), s.commit(shoe)}
	}, []func(error) bool{succeeds, conflicts(released)}, ended(released, held), 2},
	{"an extension and a commit of a hold", func(s *shop, _ string, shoe, _ uuid.UUID) []verbs.Call {
		return []verbs.Call{s.extend(shoe), s.commit(shoe)}
	}, []func(error) bool{succeeds, succeeds}, ended(committed, held), 2},
	{"releases of two holds", func(s *shop, _ string, shoe, boot uuid.UUID) []verbs.Call {
		return []verbs.Call{s.release(shoe), s.release(boot)}
	}, []func(error) bool{succeeds, succeeds}, ended(released, released), 1},
	{"extensions of a hold and of its cart", func(s *shop, cart string, shoe, _ uuid.UUID) []verbs.Call {
		return []verbs.Call{s.extend(shoe), s.extendCart(cart), s.extend(shoe)}
	}, []func(error) bool{succeeds, succeeds, succeeds}, func(s *shop, _ []*answer, shoe, boot uuid.UUID) {
		s.lasts(shoe, 3*time.Minute)
		s.lasts(boot, time.Minute)
	}, 3},
	{"a release of a hold that is due, and a checkout", func(s *shop, cart string, shoe, _ uuid.UUID) []verbs.Call {
		s.lapse(shoe)
		return []verbs.Call{s.release(shoe), s.checkout(cart)}
	}, []func(error) bool{conflicts(expired), is(inventory.ErrHoldExpired)}, ended(expired, held), 2},
	{"a removal of a hold that is due, and a checkout", func(s *shop, cart string, shoe, _ uuid.UUID) []verbs.Call {
		s.lapse(shoe)
		return []verbs.Call{s.remove(cart, "shoe"), s.checkout(cart)}
	}, []func(error) bool{succeeds, succeeds}, ended(expired, committed), 2},
	{"a call twice under its key", func(s *shop, cart string, _, _ uuid.UUID) []verbs.Call {
		return []verbs.Call{keyed(cart, s.checkout(cart)), keyed(cart, s.checkout(cart))}
	}, []func(error) bool{succeeds, succeeds}, func(s *shop, answers []*answer, shoe, boot uuid.UUID) {
		if k := answers[1].Kept; k == nil || string(k.Body) != body(answers[0].Result.Result) {
			s.t.Errorf("the second call returned %+v, want what the first one did", answers[1].Result)
		}
		s.is(committed, shoe, boot)
	}, 2},
	{"two calls under one key", func(s *shop, cart string, shoe, boot uuid.UUID) []verbs.Call {
		return []verbs.Call{keyed(cart, s.release(shoe)), keyed(cart, s.release(boot))}
	}, []func(error) bool{succeeds, is(tenants.ErrKeyReused)}, ended(released, held), 2},
	{"a call that fails, and another under its key", func(s *shop, cart string, shoe, _ uuid.UUID) []verbs.Call {
		return []verbs.Call{keyed(cart, s.checkout("empty "+cart)), keyed(cart, s.release(shoe))}
	}, []func(error) bool{is(inventory.ErrCartEmpty), succeeds}, ended(released, held), 2},
}

// lasts fails the test unless the hold was extended by as much.
func (s *shop) lasts(id uuid.UUID, by time.Duration) {
	s.t.Helper()
	const longerSQL = `
SELECT (extract(epoch FROM r.expires_at - (a.after->>'expires_at')::timestamptz) * 1000)::bigint
FROM reservations r
JOIN audit_log a ON a.tenant_id = r.tenant_id AND a.target_id = r.reservation_id AND a.action = 'reservation.held'
WHERE r.tenant_id = $1 AND r.reservation_id = $2`
	if n := s.Int(longerSQL, s.Tenant, id); n != by.Milliseconds() {
		s.t.Errorf("hold %s lasts %d ms longer, want %s", id, n, by)
	}
}

// Calls that work on the same holds, or have one key, are decided one after the other, each by what the one before it left.
// A call of another cart is in the transaction of the first.
func TestCallsThatMeet(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	for _, variant := range []string{"shoe", "boot", "sock"} {
		s.Stock(variant, 1000)
	}
	for i, tc := range meetings {
		t.Run(tc.name, func(t *testing.T) { //nolint:paralleltest // one database, whose transactions are counted
			s, cart := s.in(t), fmt.Sprint("cart-", i)
			ids := s.hold(line{cart, "shoe", 1}, line{cart, "boot", 2}, line{"other " + cart, "sock", 1})
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

// Names of two tenants may be the same: their calls are decided in one transaction, and each has its key.
func TestNamesOfTenants(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	other := s.apart()
	var calls []verbs.Call
	var ids []uuid.UUID
	for _, of := range []*shop{s, other} {
		of.Stock("shoe", 10)
		ids = append(ids, of.hold(line{"cart", "shoe", 1})...)
		calls = append(calls, keyed("key", of.checkout("cart")))
	}
	for _, a := range s.together(calls...) {
		if a.err != nil || a.Kept != nil || len(a.Reservations) != 1 {
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

// Calls that can't be decided are refused before they join the line.
func TestInvalidCalls(t *testing.T) {
	t.Parallel()
	groups, err := verbs.New(nil, verbs.Config{})
	if err != nil {
		t.Fatal(err)
	}
	tenant := uuid.New()
	for name, c := range map[string]inventory.Call{
		"no action": {TenantID: tenant}, "an unknown action": {Action: inventory.ExtendHold + 1, TenantID: tenant},
		"no reason":          {Action: inventory.ReleaseCart, TenantID: tenant, CartID: "cart"},
		"the sweep's reason": {Action: inventory.ReleaseHold, TenantID: tenant, Reason: reservations.TTL},
		"no time":            {Action: inventory.ExtendCart, TenantID: tenant, CartID: "cart", LifetimeMax: time.Hour},
		"a time before":      {Action: inventory.ExtendHold, TenantID: tenant, By: -1, LifetimeMax: time.Hour},
	} {
		_, err := groups.Do(t.Context(), verbs.Call{Call: c})
		if _, ok := errors.AsType[*inventory.InvalidError](err); !ok {
			t.Errorf("%s: %v", name, err)
		}
	}
	_, err = groups.Do(t.Context(), verbs.Call{Call: inventory.Call{Action: inventory.CheckoutCart, TenantID: tenant, CartID: "cart"}, Key: "a\x00b"})
	if _, ok := errors.AsType[*tenants.InvalidError](err); !ok {
		t.Errorf("a key with a control character: %v", err)
	}
	if n := groups.Waiting(); n != 0 {
		t.Errorf("%d calls are in the line", n)
	}
}

func TestConfig(t *testing.T) {
	t.Parallel()
	for name, config := range map[string]verbs.Config{
		"no group":                        {GroupMax: -1},
		"a line shorter than a group":     {GroupMax: 10, LineMax: 9},
		"a line shorter than the default": {LineMax: 100},
		"a short attempt":                 {AttemptTimeout: time.Microsecond},
		"no time to stop":                 {StopTimeout: -time.Second},
	} {
		if _, err := verbs.New(nil, config); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	for _, config := range []verbs.Config{{}, {GroupMax: 1, LineMax: 1, AttemptTimeout: time.Millisecond, StopTimeout: time.Millisecond}} {
		if _, err := verbs.New(nil, config); err != nil {
			t.Error(err)
		}
	}
}

// refused fails the test unless err refuses the call for a reason, for what waits of its own tenant or of all.
func refused(t *testing.T, err error, why requests.Why, own bool) {
	t.Helper()
	r, ok := errors.AsType[*requests.RefusedError](err)
	if !ok || r.Why != why || r.Own != own || r.RetryAfter != time.Second {
		t.Errorf("the call returned %v, want it refused for %s, for its own tenant's: %t", err, why, own)
	}
}

// A tenant alone fills the line up to its limit; another one still finds a place, and the first one is over its limit then.
func TestLineIsBounded(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	other := s.apart()
	c := gather(t, s.pool, verbs.Config{GroupMax: 4, LineMax: 4})
	for range 4 {
		c.join(t.Context(), s.checkout("cart"))
	}
	_, err := c.groups.Do(t.Context(), s.checkout("cart"))
	refused(t, err, requests.WhyLine, false)
	for range 2 {
		c.join(t.Context(), other.checkout("cart"))
	}
	_, err = c.groups.Do(t.Context(), other.checkout("cart"))
	refused(t, err, requests.WhyLine, false)
	_, err = c.groups.Do(t.Context(), s.checkout("cart"))
	refused(t, err, requests.WhyLine, true)
	c.join(t.Context(), s.apart().checkout("cart"))
	for _, a := range c.run() {
		if !errors.Is(a.err, inventory.ErrCartEmpty) {
			t.Errorf("a call in the line returned %v", a.err)
		}
	}
}

// A crowd of one tenant does not delay another tenant's call by more than a turn, and no group is larger than GroupMax.
func TestTenantsTakeTurns(t *testing.T) {
	t.Parallel()
	const crowded, groupMax = 500, 100
	s := newShop(t)
	s.Stock("shoe", crowded)
	lines := make([]line, crowded)
	for i := range lines {
		lines[i] = line{fmt.Sprint("cart-", i), "shoe", 1}
	}
	c := gather(t, s.pool, verbs.Config{GroupMax: groupMax})
	calls := make([]verbs.Call, crowded)
	for i, id := range s.hold(lines...) {
		calls[i] = s.commit(id)
	}
	c.rush(t.Context(), calls...)
	other := s.apart()
	other.Stock("shoe", 1)
	c.join(t.Context(), other.commit(other.hold(line{"cart", "shoe", 1})[0]))
	for i, a := range c.run() {
		if a.err != nil {
			t.Fatalf("call %d: %v", i, a.err)
		}
	}
	if n, want := s.commits.Load(), int64(crowded/groupMax+1); n != want {
		t.Errorf("%d groups were committed, want %d", n, want)
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

// What is in the line when Run's context ends is committed, and no call joins any more.
func TestStopCommitsTheLine(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.Stock("shoe", 10)
	ids := s.hold(line{"a", "shoe", 1}, line{"b", "shoe", 1}, line{"c", "shoe", 1})
	c := gather(t, s.pool, verbs.Config{GroupMax: 2})
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
	refused(t, err, requests.WhyClosing, false)
}

// A caller who leaves before its turn has done nothing, and its group is committed without it.
func TestCallersThatLeave(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.Stock("shoe", 10)
	ids := s.hold(line{"late", "shoe", 1}, line{"gone", "shoe", 1}, line{"stays", "shoe", 1})
	c := gather(t, s.pool, verbs.Config{})
	passes, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	leaves, leave := context.WithCancel(t.Context())
	for i, ctx := range []context.Context{passes, leaves} {
		c.join(ctx, s.commit(ids[i]))
	}
	leave()
	c.waiting.Wait()
	refused(t, c.answers[0].err, requests.WhyTimeout, false)
	if !errors.Is(c.answers[1].err, context.Canceled) || errors.Is(c.answers[1].err, requests.ErrOutcomeUnknown) {
		t.Errorf("a caller that left received %v", c.answers[1].err)
	}
	c.join(t.Context(), s.commit(ids[2]))
	s.must(c.run()[2].err)
	s.is(held, ids[:2]...)
	s.is(committed, ids[2])
	s.sound()
}

// A group waits for no connection longer than its time, and its calls are made alone.
func TestNoConnection(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	config := s.DB.Config()
	config.MaxConns = 1
	pool := s.open(config)
	taken, err := pool.Acquire(t.Context())
	s.must(err)
	defer taken.Release()
	c := gather(t, pool, verbs.Config{AttemptTimeout: 50 * time.Millisecond})
	c.join(t.Context(), s.checkout("a"), s.checkout("b"))
	for _, a := range c.run() {
		if !errors.Is(a.err, verbs.ErrAlone) {
			t.Errorf("a call returned %v", a.err)
		}
	}
}

// Groups are READ COMMITTED whatever the database's default is: a stock may change after a group has begun.
func TestGroupsAreReadCommitted(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.Stock("shoe", 10)
	id := s.hold(line{"cart", "shoe", 1})[0]
	config := s.DB.Config()
	config.ConnConfig.RuntimeParams["default_transaction_isolation"] = "repeatable read"
	config.ConnConfig.Tracer = &batches{ahead: func(n int) {
		if n == 2 { // it has read what the cart holds, and locks it next
			s.Exec(`UPDATE inventory_stocks SET updated_at = clock_timestamp()`)
		}
	}}
	c := gather(t, s.open(config), verbs.Config{})
	c.join(t.Context(), s.checkout("cart"))
	s.must(c.run()[0].err)
	s.is(committed, id)
}

// While another transaction keeps a stock locked, its calls are made alone in the end, and calls for other stocks are committed
// meanwhile: groups wait for the locked stock at most a few times in BlockedFor, not once for each call.
func TestBlockedStock(t *testing.T) {
	t.Parallel()
	const rounds = 30
	s := newShop(t)
	other := s.apart()
	for _, of := range []*shop{s, other} {
		of.Stock("locked", 100)
		of.Stock("free", 100)
	}
	lines := make([]line, rounds)
	for i := range lines {
		lines[i] = line{fmt.Sprint("cart-", i), "locked", 1}
	}
	locked, free := s.hold(lines...), s.hold(line{"b", "free", 1})[0]
	both := s.hold(line{"c", "free", 1}, line{"c", "locked", 1})
	elsewhere := other.hold(line{"a", "locked", 1})[0]
	stock := s.LockStock("locked")
	c := gather(t, s.pool, verbs.Config{})
	c.join(t.Context(), s.extend(free), other.extend(elsewhere), s.extend(locked[0]), s.extendCart("c"))
	first, began := slices.Clone(c.answers), time.Now()
	stop := start(c.groups)
	defer stop()
	for _, a := range first[:2] {
		<-a.done
		s.must(a.err)
	}
	for _, a := range first[2:] {
		select {
		case <-a.done:
			t.Error("the calls for the free stocks waited for the locked one's")
		default:
		}
	}
	for _, id := range locked[1:] {
		c.call(t.Context(), s.extend(id))
		for _, call := range []verbs.Call{s.extend(free), other.extend(elsewhere)} {
			_, err := c.groups.Do(t.Context(), call)
			s.must(err)
		}
	}
	if n, most := s.rollbacks.Load(), 4*(1+int64(time.Since(began)/verbs.BlockedFor)); n > most {
		t.Errorf("%d groups waited for the stock, want at most %d", n, most)
	}
	c.waiting.Wait()
	for i, a := range c.answers[2:] {
		if !errors.Is(a.err, verbs.ErrAlone) {
			t.Errorf("call %d for the locked stock returned %v", i, a.err)
		}
	}
	s.lasts(both[0], 0)
	stock.Release()
	eventually(t, "groups take the stock's calls again", func() bool {
		_, err := c.groups.Do(t.Context(), s.extendCart("c"))
		return err == nil
	})
	s.lasts(free, rounds*time.Minute)
	s.lasts(both[1], time.Minute)
	s.sound()
}

// A stock that is locked for longer than a group waits, and then is not, has its calls made in a group.
func TestSlowStock(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.Stock("slow", 10)
	id := s.hold(line{"a", "slow", 1})[0]
	c := gather(t, s.pool, verbs.Config{})
	stop := start(c.groups)
	defer stop()
	eventually(t, "a call that has waited longer is made in a group", func() bool { // unless the test was slower than the slow line
		stock, before := s.LockStock("slow"), s.rollbacks.Load()
		a := c.call(t.Context(), s.extend(id))
		eventually(t, "a group has not got the lock", func() bool { return s.rollbacks.Load() > before })
		stock.Release()
		<-a.done
		return a.err == nil
	})
	s.sound()
}

// The slow line has one connection, however many calls wait in it, so that the other calls have theirs.
func TestSlowLineHasOneConnection(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.Stock("locked", 10)
	s.Stock("free", 10)
	locked, free := s.hold(line{"a", "locked", 1}, line{"b", "locked", 1}), s.hold(line{"c", "free", 1})[0]
	s.LockStock("locked")
	config := s.DB.Config()
	config.MaxConns, config.MinConns = 2, 2
	config.ConnConfig.Tracer = s.counts
	pool := s.open(config)
	eventually(t, "the pool has its connections", func() bool { return pool.Stat().IdleConns() == 2 })
	waited := pool.Stat().EmptyAcquireCount()
	c := gather(t, pool, verbs.Config{})
	stop := start(c.groups)
	defer stop()
	first := c.call(t.Context(), s.extend(locked[0]))
	eventually(t, "its first group has waited", func() bool { return s.rollbacks.Load() == 1 })
	s.Blocked() // the slow line waits
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
