package verbs_test

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/holdfast/holdfast/inventory"
	"github.com/holdfast/holdfast/requests"
	"github.com/holdfast/holdfast/reservations"
	"github.com/holdfast/holdfast/tenants"
	"github.com/holdfast/holdfast/verbs"
)

// memberCase is a call that has another outcome than its neighbours in the group.
type memberCase struct {
	name string
	// make makes what the call needs, with a cart of the case's own, and the call; check checks what came of it.
	make func(s *shop, cart string) (c verbs.Call, check func(a *answer))
	// commits and rollbacks are how many transactions the group takes; 0 commits for one.
	commits, rollbacks int64
}

// in is the shop for a part of the test.
func (s *shop) in(t *testing.T) *shop {
	part, bench := *s, *s.Bench
	bench.TB, part.Bench, part.t = t, &bench, t
	return &part
}

// wants returns a check that fails the test unless the error is the target and the holds are still held.
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
	{name: "a hold of the cart has expired", make: func(s *shop, cart string) (verbs.Call, func(*answer)) {
		ids := s.hold(line{cart, "shoe", 1}, line{cart, "boot", 1})
		s.lapse(ids[0])
		return s.checkout(cart), s.wants(inventory.ErrHoldExpired, ids...)
	}},
	{name: "an extended cart's hold has expired", make: func(s *shop, cart string) (verbs.Call, func(*answer)) {
		ids := s.hold(line{cart, "shoe", 1}, line{cart, "boot", 1})
		s.lapse(ids[0])
		return s.extendCart(cart), s.wants(inventory.ErrHoldExpired, ids...)
	}},
	{name: "a request of the cart is queued", make: func(s *shop, cart string) (verbs.Call, func(*answer)) {
		ids := s.hold(line{cart, "shoe", 1})
		s.SubmitQueued(requests.Submission{CartID: cart, VariantID: "boot", Quantity: 1})
		return keyed("pending "+cart, s.checkout(cart)), s.wants(requests.ErrRequestsPending, ids...)
	}},
	{name: "the cart is empty", make: func(s *shop, cart string) (verbs.Call, func(*answer)) {
		return s.checkout(cart), s.wants(inventory.ErrCartEmpty)
	}},
	{name: "the cart to extend is empty", make: func(s *shop, cart string) (verbs.Call, func(*answer)) {
		return s.extendCart(cart), s.wants(inventory.ErrCartEmpty)
	}},
	{name: "the hold has ended", make: func(s *shop, cart string) (verbs.Call, func(*answer)) {
		id := s.hold(line{cart, "shoe", 1})[0]
		_, err := s.alone(s.release(id))
		s.must(err)
		return s.commit(id), func(a *answer) {
			if !conflicts(released)(a.err) {
				s.t.Errorf("the call returned %v", a.err)
			}
		}
	}},
	{name: "the hold to commit is due", make: func(s *shop, cart string) (verbs.Call, func(*answer)) {
		id := s.hold(line{cart, "shoe", 1})[0]
		s.lapse(id)
		return s.commit(id), func(a *answer) {
			if !conflicts(expired)(a.err) {
				s.t.Errorf("the call returned %v", a.err)
			}
			s.is(held, id)
		}
	}},
	{name: "the hold to release is due", make: func(s *shop, cart string) (verbs.Call, func(*answer)) {
		id := s.hold(line{cart, "shoe", 1})[0]
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
				s.t.Error("the answer of a call that failed is kept")
			}
		}
	}},
	{name: "the hold does not exist", make: func(s *shop, _ string) (verbs.Call, func(*answer)) {
		return s.commit(uuid.New()), s.wants(reservations.ErrNotFound)
	}},
	{name: "the hold is another tenant's", make: func(s *shop, cart string) (verbs.Call, func(*answer)) {
		other := s.apart()
		other.Stock("shoe", 1)
		id := other.hold(line{cart, "shoe", 1})[0]
		return s.release(id), other.wants(reservations.ErrNotFound, id)
	}},
	{name: "the lifetime is exceeded", make: func(s *shop, cart string) (verbs.Call, func(*answer)) {
		id := s.hold(line{cart, "shoe", 1})[0]
		c := s.extend(id)
		c.By = lifetimeMax
		return c, s.wants(reservations.ErrLifetimeExceeded, id)
	}},
}

// replays are calls whose idempotency keys were used before.
var replays = []memberCase{
	{name: "the key belongs to another call", make: func(s *shop, cart string) (verbs.Call, func(*answer)) {
		ids := s.hold(line{cart, "shoe", 1}, line{cart, "boot", 1})
		_, err := s.alone(keyed("of another "+cart, s.release(ids[0])))
		s.must(err)
		return keyed("of another "+cart, s.release(ids[1])), s.wants(tenants.ErrKeyReused, ids[1])
	}},
	{name: "the key belongs to a queued request", make: func(s *shop, cart string) (verbs.Call, func(*answer)) {
		id := s.hold(line{cart, "shoe", 1})[0]
		s.SubmitQueued(requests.Submission{CartID: "other " + cart, VariantID: "shoe", Quantity: 1, IdempotencyKey: "of a request " + cart})
		return keyed("of a request "+cart, s.release(id)), s.wants(tenants.ErrKeyReused, id)
	}},
	{name: "the answer was kept by a group", make: func(s *shop, cart string) (verbs.Call, func(*answer)) {
		s.hold(line{cart, "shoe", 1})
		c := keyed("kept "+cart, s.checkout(cart))
		first := s.together(c)[0]
		s.must(first.err)
		s.hold(line{cart, "boot", 1}) // what the cart has got since is not checked out
		return c, s.replayed(cart, first.Result.Result)
	}},
	{name: "the answer was kept by a call that was made alone", make: func(s *shop, cart string) (verbs.Call, func(*answer)) {
		id := s.hold(line{cart, "shoe", 1})[0]
		c := keyed("kept "+cart, s.extend(id))
		first, err := s.alone(c)
		s.must(err)
		return c, s.replayed(cart, first.Result)
	}},
	{name: "the answer was kept and a request is queued", make: func(s *shop, cart string) (verbs.Call, func(*answer)) {
		s.hold(line{cart, "shoe", 1})
		c := keyed("kept "+cart, s.checkout(cart))
		first, err := s.alone(c)
		s.must(err)
		s.SubmitQueued(requests.Submission{CartID: cart, VariantID: "boot", Quantity: 1})
		return c, s.replayed(cart, first.Result)
	}},
}

// replayed returns a check that the call was answered as before, and that nothing has happened to what the cart holds.
func (s *shop) replayed(cart string, before inventory.Result) func(*answer) {
	const recordedSQL = `SELECT count(*) FROM audit_log WHERE tenant_id = $1 AND after->>'holder_id' = $2`
	recorded := s.Int(recordedSQL, s.Tenant, cart)
	return func(a *answer) {
		s.t.Helper()
		s.must(a.err)
		if a.Kept == nil || a.Kept.StatusCode != http.StatusOK || string(a.Kept.Body) != body(before) || a.Reservations != nil {
			s.t.Errorf("the call returned %+v, want the kept answer %q", a.Result, body(before))
		}
		if n := s.Int(recordedSQL, s.Tenant, cart); n != recorded {
			s.t.Errorf("%d audit rows were added", n-recorded)
		}
	}
}

// halved is how many transactions it takes to find the third of five calls: the others are committed in two, and three
// fail.
const (
	halvedCommits   = 2
	halvedRollbacks = 3
)

var errAnswer = errors.New("no answer can be made")

// departures are calls that leave the group and are to be made alone.
var departures = []memberCase{
	{name: "the cart has many holds", make: func(s *shop, cart string) (verbs.Call, func(*answer)) {
		ids := s.hold(slices.Repeat([]line{{cart, "shoe", 1}}, 1500)...)
		return s.checkout(cart), s.departs(s.checkout(cart), committed, ids...)
	}},
	{name: "the cart has one hold more than a group takes", make: func(s *shop, cart string) (verbs.Call, func(*answer)) {
		ids := s.hold(slices.Repeat([]line{{cart, "shoe", 1}}, verbs.HoldsMax+1)...)
		return s.extendCart(cart), s.departs(s.extendCart(cart), held, ids...)
	}},
	{name: "the cart has as many holds as a group takes", make: func(s *shop, cart string) (verbs.Call, func(*answer)) {
		ids := s.hold(slices.Repeat([]line{{cart, "shoe", 1}}, verbs.HoldsMax)...)
		s.hold(line{cart, "boot", 1})
		return s.remove(cart, "shoe"), func(a *answer) {
			if a.err != nil || len(a.Reservations) != len(ids) {
				s.t.Errorf("%d were released, %v", len(a.Reservations), a.err)
			}
			s.is(released, ids...)
		}
	}},
	{name: "a request of the cart to empty is queued", make: func(s *shop, cart string) (verbs.Call, func(*answer)) {
		ids := s.hold(line{cart, "shoe", 1})
		r := s.SubmitQueued(requests.Submission{CartID: cart, VariantID: "boot", Quantity: 1})
		check := s.departs(s.remove(cart, ""), released, ids...)
		return s.remove(cart, ""), func(a *answer) {
			check(a)
			s.Want(r, requests.Failed, requests.Cancelled)
		}
	}},
	{name: "the stock is locked", commits: 2, rollbacks: 2, make: func(s *shop, cart string) (verbs.Call, func(*answer)) {
		ids := s.hold(line{cart, "shoe", 1}, line{cart, "boot", 1})
		locked := s.LockStock("shoe")
		check := s.departs(s.checkout(cart), committed, ids...)
		return s.checkout(cart), func(a *answer) {
			locked.Release()
			check(a)
		}
	}},
	{name: "the database refuses its hold", commits: halvedCommits, rollbacks: halvedRollbacks, make: func(s *shop, cart string) (verbs.Call, func(*answer)) {
		ids := s.hold(line{cart, "shoe", 1})
		s.Exec(fmt.Sprintf(`ALTER TABLE reservations ADD CONSTRAINT refused CHECK (holder_id <> '%s' OR status = 'held')`, cart))
		check := s.departs(keyed("refused", s.checkout(cart)), committed, ids...)
		return keyed("refused", s.checkout(cart)), func(a *answer) {
			s.is(held, ids...)
			s.Exec(`ALTER TABLE reservations DROP CONSTRAINT refused`)
			check(a)
		}
	}},
	{name: "the database refuses its answer", commits: halvedCommits, rollbacks: halvedRollbacks, make: func(s *shop, cart string) (verbs.Call, func(*answer)) {
		ids := s.hold(line{cart, "shoe", 1})
		s.Exec(`ALTER TABLE idempotency_keys ADD CONSTRAINT refused CHECK (idempotency_key <> 'bad')`)
		check := s.departs(s.release(ids[0]), released, ids...)
		return keyed("bad", s.release(ids[0])), func(a *answer) {
			s.is(held, ids...)
			s.Exec(`ALTER TABLE idempotency_keys DROP CONSTRAINT refused`)
			check(a)
		}
	}},
	{name: "the database refuses its text", commits: halvedCommits, rollbacks: halvedRollbacks, make: func(s *shop, _ string) (verbs.Call, func(*answer)) {
		return s.checkout("\x00"), s.wants(verbs.ErrAlone)
	}},
	{name: "its answer is an error", commits: halvedCommits, rollbacks: halvedRollbacks, make: func(s *shop, cart string) (verbs.Call, func(*answer)) {
		id := s.hold(line{cart, "shoe", 1})[0]
		c := keyed("error", s.commit(id))
		c.Answer = func(inventory.Result) (tenants.Answer, error) { return tenants.Answer{}, errAnswer }
		return c, s.departs(s.commit(id), committed, id)
	}},
	{name: "its answer panics", commits: halvedCommits, rollbacks: halvedRollbacks, make: func(s *shop, cart string) (verbs.Call, func(*answer)) {
		id := s.hold(line{cart, "shoe", 1})[0]
		c := keyed("panic", s.extend(id))
		c.Answer = func(inventory.Result) (tenants.Answer, error) { panic(errAnswer) }
		return c, s.departs(s.extend(id), held, id)
	}},
	{name: "its hold is locked", commits: halvedCommits, rollbacks: halvedRollbacks, make: func(s *shop, cart string) (verbs.Call, func(*answer)) {
		id := s.hold(line{cart, "shoe", 1})[0]
		locked := s.Lock(`SELECT FROM reservations WHERE reservation_id = $1 FOR UPDATE`, id)
		check := s.departs(s.release(id), released, id)
		return s.release(id), func(a *answer) {
			locked.Release()
			check(a)
		}
	}},
}

// departs returns a check that the call has left the group and done nothing, and that it can be made alone then.
func (s *shop) departs(c verbs.Call, status reservations.Status, ids ...uuid.UUID) func(*answer) {
	return func(a *answer) {
		s.t.Helper()
		s.wants(verbs.ErrAlone, ids...)(a)
		_, err := s.alone(c)
		s.must(err)
		s.is(status, ids...)
	}
}

// Whatever the outcome of one call, the others of its group have theirs, in one transaction where nothing fails.
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

// neighbours makes four calls of several verbs, and a check that they have succeeded.
func (s *shop) neighbours(name string) (calls []verbs.Call, check func([]*answer)) {
	ids := s.hold(line{name + "-0", "sock", 1}, line{name + "-1", "sock", 2}, line{name + "-2", "sock", 3}, line{name + "-3", "sock", 4})
	calls = []verbs.Call{keyed(name, s.checkout(name+"-0")), s.commit(ids[1]), s.release(ids[2]), s.extendCart(name + "-3")}
	return calls, func(answers []*answer) {
		s.t.Helper()
		for i, want := range []reservations.Status{committed, committed, released, held} {
			a := answers[i]
			if a.err != nil || len(a.Reservations) != 1 || a.Kept != nil {
				s.t.Errorf("neighbour %d: %+v, %v", i, a.Result, a.err)
				continue
			}
			s.is(want, ids[i])
			s.stored(a.Reservations[0])
		}
		if n := s.Int(`SELECT count(*) FROM idempotency_keys WHERE idempotency_key = $1 AND body = $2`, name, []byte(body(answers[0].Result.Result))); n != 1 {
			s.t.Error("the first neighbour's answer is not kept")
		}
	}
}

// stored fails the test unless the reservation is as it is stored.
func (s *shop) stored(r reservations.Reservation) {
	s.t.Helper()
	stored, err := reservations.Get(s.t.Context(), s.DB, r.TenantID, r.ReservationID)
	s.must(err)
	if diff := cmp.Diff(stored, r); diff != "" {
		s.t.Errorf("the caller received +, stored is -\n%s", diff)
	}
}
