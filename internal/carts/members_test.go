package carts_test

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/holdfast/holdfast/internal/carts"
	"github.com/holdfast/holdfast/internal/inventory"
	"github.com/holdfast/holdfast/internal/requestrows"
	"github.com/holdfast/holdfast/internal/tenants"
	"github.com/holdfast/holdfast/requests"
	"github.com/holdfast/holdfast/reservations"
)

// memberCase is a call with another outcome than the other calls of its group.
type memberCase struct {
	name string
	// make returns the call, after it has made what the call needs, with a
	// separate cart per case. check checks its result.
	make func(s *shop, cart string) (c carts.Call, check func(a *answer))
	// commits and rollbacks are the numbers of the group's transactions; 0
	// commits means 1.
	commits, rollbacks int64
}

// in returns the shop for a subtest.
func (s *shop) in(t *testing.T) *shop {
	part, fixture := *s, *s.Fixture
	fixture.TB, part.Fixture, part.t = t, &fixture, t
	return &part
}

// wants returns a check that fails the test unless the error is the target and
// the holds are still held.
func (s *shop) wants(target error, holds ...uuid.UUID) func(*answer) {
	return func(a *answer) {
		s.t.Helper()
		if !errors.Is(a.err, target) {
			s.t.Errorf("the call returned %v, want %v", a.err, target)
		}
		s.is(held, holds...)
	}
}

// refusals are calls that their verb refuses.
var refusals = []memberCase{
	{name: "a hold of the cart has expired", make: func(s *shop, cart string) (carts.Call, func(*answer)) {
		ids := s.hold(item{cart, "shoe", 1}, item{cart, "boot", 1})
		s.lapse(ids[0])
		return s.checkout(cart), s.wants(inventory.ErrHoldExpired, ids...)
	}},
	{name: "an extended cart's hold has expired", make: func(s *shop, cart string) (carts.Call, func(*answer)) {
		ids := s.hold(item{cart, "shoe", 1}, item{cart, "boot", 1})
		s.lapse(ids[0])
		return s.extendCart(cart), s.wants(inventory.ErrHoldExpired, ids...)
	}},
	{name: "a request of the cart is queued", make: func(s *shop, cart string) (carts.Call, func(*answer)) {
		ids := s.hold(item{cart, "shoe", 1})
		s.SubmitAs(requestrows.Submission{CartID: cart, VariantID: "boot", Quantity: 1})
		return keyed("pending "+cart, s.checkout(cart)), s.wants(requestrows.ErrRequestsPending, ids...)
	}},
	{name: "the cart is empty", make: func(s *shop, cart string) (carts.Call, func(*answer)) {
		return s.checkout(cart), s.wants(inventory.ErrCartEmpty)
	}},
	{name: "the cart to extend is empty", make: func(s *shop, cart string) (carts.Call, func(*answer)) {
		return s.extendCart(cart), s.wants(inventory.ErrCartEmpty)
	}},
	{name: "the hold has ended", make: func(s *shop, cart string) (carts.Call, func(*answer)) {
		id := s.hold(item{cart, "shoe", 1})[0]
		_, err := s.single(s.release(id))
		s.must(err)
		return s.commit(id), func(a *answer) {
			if !conflicts(released)(a.err) {
				s.t.Errorf("the call returned %v", a.err)
			}
		}
	}},
	{name: "the hold to commit is due", make: func(s *shop, cart string) (carts.Call, func(*answer)) {
		id := s.hold(item{cart, "shoe", 1})[0]
		s.lapse(id)
		return s.commit(id), func(a *answer) {
			if !conflicts(expired)(a.err) {
				s.t.Errorf("the call returned %v", a.err)
			}
			s.is(held, id)
		}
	}},
	{name: "the hold to release is due", make: func(s *shop, cart string) (carts.Call, func(*answer)) {
		id := s.hold(item{cart, "shoe", 1})[0]
		s.lapse(id)
		return keyed("due "+cart, s.release(id)), func(a *answer) {
			if !conflicts(expired)(a.err) {
				s.t.Errorf("the call returned %v", a.err)
			}
			s.is(expired, id)
			if n := s.Int(`SELECT count(*) FROM audit_log WHERE target_id = $1 AND action = 'reservation.expired'`, id); n != 1 {
				s.t.Errorf("its expiry has %d audit rows", n)
			}
			if n := s.Int(`SELECT count(*) FROM idempotency_keys WHERE idempotency_key = $1`, "due "+cart); n != 0 {
				s.t.Error("the answer of a call that failed is stored")
			}
		}
	}},
	{name: "the hold does not exist", make: func(s *shop, _ string) (carts.Call, func(*answer)) {
		return s.commit(uuid.New()), s.wants(reservations.ErrNotFound)
	}},
	{name: "the hold is another tenant's", make: func(s *shop, cart string) (carts.Call, func(*answer)) {
		other := s.apart()
		other.Stock("shoe", 1)
		id := other.hold(item{cart, "shoe", 1})[0]
		return s.release(id), other.wants(reservations.ErrNotFound, id)
	}},
	{name: "the lifetime is exceeded", make: func(s *shop, cart string) (carts.Call, func(*answer)) {
		id := s.hold(item{cart, "shoe", 1})[0]
		c := s.extend(id)
		c.By = lifetimeMax
		return c, s.wants(reservations.ErrLifetimeExceeded, id)
	}},
}

// replays are calls whose idempotency keys were used before.
var replays = []memberCase{
	{name: "the key belongs to another call", make: func(s *shop, cart string) (carts.Call, func(*answer)) {
		ids := s.hold(item{cart, "shoe", 1}, item{cart, "boot", 1})
		_, err := s.single(keyed("of another "+cart, s.release(ids[0])))
		s.must(err)
		return keyed("of another "+cart, s.release(ids[1])), s.wants(tenants.ErrKeyReused, ids[1])
	}},
	{name: "the key belongs to a queued request", make: func(s *shop, cart string) (carts.Call, func(*answer)) {
		id := s.hold(item{cart, "shoe", 1})[0]
		s.SubmitAs(requestrows.Submission{CartID: "other " + cart, VariantID: "shoe", Quantity: 1, IdempotencyKey: "of a request " + cart})
		return keyed("of a request "+cart, s.release(id)), s.wants(tenants.ErrKeyReused, id)
	}},
	{name: "the answer was stored by a group", make: func(s *shop, cart string) (carts.Call, func(*answer)) {
		s.hold(item{cart, "shoe", 1})
		c := keyed("stored "+cart, s.checkout(cart))
		first := s.together(c)[0]
		s.must(first.err)
		s.hold(item{cart, "boot", 1}) // an item added since then is not checked out
		return c, s.replayed(cart, first.Result.Result)
	}},
	{name: "the answer was stored by a single call", make: func(s *shop, cart string) (carts.Call, func(*answer)) {
		id := s.hold(item{cart, "shoe", 1})[0]
		c := keyed("stored "+cart, s.extend(id))
		first, err := s.single(c)
		s.must(err)
		return c, s.replayed(cart, first.Result)
	}},
	{name: "the answer was stored and a request is queued", make: func(s *shop, cart string) (carts.Call, func(*answer)) {
		s.hold(item{cart, "shoe", 1})
		c := keyed("stored "+cart, s.checkout(cart))
		first, err := s.single(c)
		s.must(err)
		s.SubmitAs(requestrows.Submission{CartID: cart, VariantID: "boot", Quantity: 1})
		return c, s.replayed(cart, first.Result)
	}},
}

// replayed returns a check that the call was answered as before, and that the
// cart's holds have not changed.
func (s *shop) replayed(cart string, before inventory.Result) func(*answer) {
	const recordedSQL = `SELECT count(*) FROM audit_log WHERE tenant_id = $1 AND holder_id = $2`
	recorded := s.Int(recordedSQL, s.Tenant, cart)
	return func(a *answer) {
		s.t.Helper()
		s.must(a.err)
		if a.Replayed == nil || a.Replayed.StatusCode != http.StatusOK || string(a.Replayed.Body) != bodyOf(before.Reservations) || a.Reservations != nil {
			s.t.Errorf("the call returned %+v, want the stored answer %q", a.Result, bodyOf(before.Reservations))
		}
		if n := s.Int(recordedSQL, s.Tenant, cart); n != recorded {
			s.t.Errorf("%d audit rows were added", n-recorded)
		}
	}
}

// The bisection that finds the third of five calls takes these transactions:
// the others are committed in two, and three fail.
const (
	halvedCommits   = 2
	halvedRollbacks = 3
)

var errAnswer = errors.New("no answer can be made")

// departures are calls that leave the group and are made as single calls.
var departures = []memberCase{
	{name: "the cart has many holds", make: func(s *shop, cart string) (carts.Call, func(*answer)) {
		ids := s.hold(slices.Repeat([]item{{cart, "shoe", 1}}, 1500)...)
		return s.checkout(cart), s.departs(s.checkout(cart), committed, ids...)
	}},
	{name: "the cart has one hold more than HoldsMax", make: func(s *shop, cart string) (carts.Call, func(*answer)) {
		ids := s.hold(slices.Repeat([]item{{cart, "shoe", 1}}, carts.HoldsMax+1)...)
		return s.extendCart(cart), s.departs(s.extendCart(cart), held, ids...)
	}},
	{name: "the cart has HoldsMax holds", make: func(s *shop, cart string) (carts.Call, func(*answer)) {
		ids := s.hold(slices.Repeat([]item{{cart, "shoe", 1}}, carts.HoldsMax)...)
		s.hold(item{cart, "boot", 1})
		return s.remove(cart, "shoe"), func(a *answer) {
			if a.err != nil || len(a.Reservations) != len(ids) {
				s.t.Errorf("%d were released, %v", len(a.Reservations), a.err)
			}
			s.is(released, ids...)
		}
	}},
	{name: "a request of the cart to empty is queued", make: func(s *shop, cart string) (carts.Call, func(*answer)) {
		ids := s.hold(item{cart, "shoe", 1})
		r := s.SubmitAs(requestrows.Submission{CartID: cart, VariantID: "boot", Quantity: 1})
		check := s.departs(s.remove(cart, ""), released, ids...)
		return s.remove(cart, ""), func(a *answer) {
			check(a)
			s.Want(r, requests.Failed, requests.Cancelled)
		}
	}},
	{name: "the stock is locked", commits: 2, rollbacks: 2, make: func(s *shop, cart string) (carts.Call, func(*answer)) {
		ids := s.hold(item{cart, "shoe", 1}, item{cart, "boot", 1})
		locked := s.LockStock("shoe")
		check := s.departs(s.checkout(cart), committed, ids...)
		return s.checkout(cart), func(a *answer) {
			locked.Release()
			check(a)
		}
	}},
	{name: "the database refuses its hold", commits: halvedCommits, rollbacks: halvedRollbacks, make: func(s *shop, cart string) (carts.Call, func(*answer)) {
		ids := s.hold(item{cart, "shoe", 1})
		s.Exec(fmt.Sprintf(`ALTER TABLE reservations ADD CONSTRAINT refused CHECK (holder_id <> '%s' OR status = 'held')`, cart))
		check := s.departs(keyed("refused", s.checkout(cart)), committed, ids...)
		return keyed("refused", s.checkout(cart)), func(a *answer) {
			s.is(held, ids...)
			s.Exec(`ALTER TABLE reservations DROP CONSTRAINT refused`)
			check(a)
		}
	}},
	{name: "the database refuses its answer", commits: halvedCommits, rollbacks: halvedRollbacks, make: func(s *shop, cart string) (carts.Call, func(*answer)) {
		ids := s.hold(item{cart, "shoe", 1})
		s.Exec(`ALTER TABLE idempotency_keys ADD CONSTRAINT refused CHECK (idempotency_key <> 'bad')`)
		check := s.departs(s.release(ids[0]), released, ids...)
		return keyed("bad", s.release(ids[0])), func(a *answer) {
			s.is(held, ids...)
			s.Exec(`ALTER TABLE idempotency_keys DROP CONSTRAINT refused`)
			check(a)
		}
	}},
	{name: "the database refuses its text", commits: halvedCommits, rollbacks: halvedRollbacks, make: func(s *shop, _ string) (carts.Call, func(*answer)) {
		return s.checkout("\x00"), s.wants(carts.ErrNotGrouped)
	}},
	{name: "its answer is an error", commits: halvedCommits, rollbacks: halvedRollbacks, make: func(s *shop, cart string) (carts.Call, func(*answer)) {
		id := s.hold(item{cart, "shoe", 1})[0]
		c := keyed("error", s.commit(id))
		c.Answer = func(inventory.Result) (tenants.Answer, error) { return tenants.Answer{}, errAnswer }
		return c, s.departs(s.commit(id), committed, id)
	}},
	{name: "its answer panics", commits: halvedCommits, rollbacks: halvedRollbacks, make: func(s *shop, cart string) (carts.Call, func(*answer)) {
		id := s.hold(item{cart, "shoe", 1})[0]
		c := keyed("panic", s.extend(id))
		c.Answer = func(inventory.Result) (tenants.Answer, error) { panic(errAnswer) }
		return c, s.departs(s.extend(id), held, id)
	}},
	{name: "its hold is locked", commits: 2, make: func(s *shop, cart string) (carts.Call, func(*answer)) {
		id := s.hold(item{cart, "shoe", 1})[0]
		locked := s.Lock(`SELECT FROM reservations WHERE reservation_id = $1 FOR UPDATE`, id)
		check := s.departs(s.release(id), released, id)
		return s.release(id), func(a *answer) {
			locked.Release()
			check(a)
		}
	}},
	{name: "a hold of its cart is locked", commits: 2, make: func(s *shop, cart string) (carts.Call, func(*answer)) {
		ids := s.hold(item{cart, "shoe", 1}, item{cart, "sock", 1})
		locked := s.Lock(`SELECT FROM reservations WHERE reservation_id = $1 FOR UPDATE`, ids[0])
		check := s.departs(s.checkout(cart), committed, ids...)
		return s.checkout(cart), func(a *answer) {
			locked.Release()
			check(a)
		}
	}},
	{name: "a hold of its cart is locked and its answer was stored", make: func(s *shop, cart string) (carts.Call, func(*answer)) {
		ids := s.hold(item{cart, "shoe", 1})
		c := keyed("stored "+cart, s.extendCart(cart))
		first, err := s.single(c)
		s.must(err)
		check := s.replayed(cart, first.Result)
		locked := s.Lock(`SELECT FROM reservations WHERE reservation_id = $1 FOR UPDATE`, ids[0])
		return c, func(a *answer) {
			locked.Release()
			check(a)
		}
	}},
}

// A call in a separate transaction that waits for a hold has no stock locked
// meanwhile. It takes effect when the hold's lock is released.
func TestSingleCallWaitsWithoutTheStock(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.Stock("shoe", 10)
	for name, of := range map[string]func(cart string, id uuid.UUID) carts.Call{
		"commit":   func(_ string, id uuid.UUID) carts.Call { return s.commit(id) },
		"checkout": func(cart string, _ uuid.UUID) carts.Call { return s.checkout(cart) },
		"remove":   func(cart string, _ uuid.UUID) carts.Call { return s.remove(cart, "shoe") },
	} {
		id := s.hold(item{name, "shoe", 1})[0]
		locked := s.Lock(`SELECT FROM reservations WHERE reservation_id = $1 FOR UPDATE`, id)
		ended := make(chan error, 1)
		go func() {
			_, err := s.single(of(name, id))
			ended <- err
		}()
		s.Blocked()
		s.Exec(`SELECT FROM inventory_stocks WHERE tenant_id = $1 AND variant_id = 'shoe' FOR UPDATE NOWAIT`, s.Tenant)
		s.is(held, id)
		locked.Release()
		if err := <-ended; err != nil {
			t.Errorf("%s returned %v", name, err)
		}
		if s.count(held, []uuid.UUID{id}) != 0 {
			t.Errorf("%s had no effect", name)
		}
	}
	s.sound()
}

// departs returns a check that the call has left the group without an effect,
// and succeeds as a single call.
func (s *shop) departs(c carts.Call, status reservations.Status, ids ...uuid.UUID) func(*answer) {
	return func(a *answer) {
		s.t.Helper()
		s.wants(carts.ErrNotGrouped, ids...)(a)
		_, err := s.single(c)
		s.must(err)
		s.is(status, ids...)
	}
}

// Whatever the outcome of one call, the others of its group succeed. They are
// in one transaction if no statement fails.
func TestMembersConcernThemselvesOnly(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	for _, variant := range []string{"sock", "shoe", "boot"} {
		s.Stock(variant, 10_000)
	}
	for i, tc := range slices.Concat(refusals, replays, departures) {
		t.Run(tc.name, func(t *testing.T) { //nolint:paralleltest // one database, whose transactions are counted
			s := s.in(t)
			neighbours, check := s.neighbours(fmt.Sprint("neighbour-", i))
			c, checkCase := tc.make(s, fmt.Sprint("cart-", i))
			commits, rollbacks := s.commits.Load(), s.rollbacks.Load()
			answers := s.together(slices.Insert(neighbours, 2, c)...)
			commits, rollbacks = s.commits.Load()-commits, s.rollbacks.Load()-rollbacks
			if want := max(tc.commits, 1); commits != want || rollbacks != tc.rollbacks {
				t.Errorf("the group took %d commits and %d rollbacks, want %d and %d", commits, rollbacks, want, tc.rollbacks)
			}
			checkCase(answers[2])
			check(slices.Delete(answers, 2, 3))
		})
	}
	s.sound()
}

// neighbours returns four calls of several verbs, and a check that they have
// succeeded.
func (s *shop) neighbours(name string) (calls []carts.Call, check func([]*answer)) {
	ids := s.hold(item{name + "-0", "sock", 1}, item{name + "-1", "sock", 2}, item{name + "-2", "sock", 3}, item{name + "-3", "sock", 4})
	calls = []carts.Call{keyed(name, s.checkout(name+"-0")), s.commit(ids[1]), s.release(ids[2]), s.extendCart(name + "-3")}
	return calls, func(answers []*answer) {
		s.t.Helper()
		for i, want := range []reservations.Status{committed, committed, released, held} {
			a := answers[i]
			if a.err != nil || len(a.Reservations) != 1 || a.Replayed != nil {
				s.t.Errorf("neighbour %d: %+v, %v", i, a.Result, a.err)
				continue
			}
			s.is(want, ids[i])
			s.stored(a.Reservations[0])
		}
		if n := s.Int(`SELECT count(*) FROM idempotency_keys WHERE idempotency_key = $1 AND body = $2`, name, []byte(bodyOf(answers[0].Reservations))); n != 1 {
			s.t.Error("the answer of the first neighbour is not stored")
		}
	}
}

// stored fails the test unless the reservation equals the stored row.
func (s *shop) stored(r reservations.Reservation) {
	s.t.Helper()
	stored, err := reservations.Get(s.t.Context(), s.DB, r.TenantID, r.ReservationID)
	s.must(err)
	if diff := cmp.Diff(stored, r); diff != "" {
		s.t.Errorf("(-stored +received)\n%s", diff)
	}
}
