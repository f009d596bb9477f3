package carts_test

import (
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/holdfast/holdfast/internal/carts"
	"github.com/holdfast/holdfast/internal/inventory"
	"github.com/holdfast/holdfast/internal/requestrows"
	"github.com/holdfast/holdfast/internal/reservationrows"
	"github.com/holdfast/holdfast/requests"
	"github.com/holdfast/holdfast/reservations"
)

// story is an artificial round. Cart "a" holds a shoe and two socks, and cart
// "b" a shoe that is due.
type story struct {
	m                        *model
	aShoe, aSock, bShoe, add uuid.UUID
	entries                  []entry
	facts                    map[uuid.UUID]made
}

func newStory() *story {
	s := &story{m: newModel(), aShoe: uuid.New(), aSock: uuid.New(), bShoe: uuid.New(), add: uuid.New(), facts: map[uuid.UUID]made{}}
	s.m.stocks["shoe"], s.m.stocks["sock"] = &modelStock{stock: 3}, &modelStock{stock: 3}
	held := time.Unix(1e9, 0)
	for id, h := range map[uuid.UUID]modelHold{
		s.aShoe: {cart: "a", variant: "shoe", quantity: 1},
		s.aSock: {cart: "a", variant: "sock", quantity: 2},
		s.bShoe: {cart: "b", variant: "shoe", quantity: 1, lapsedIn: 1},
	} {
		h.id, h.status, h.first, h.expires, h.heldIn = id, reservations.Held, held, held.Add(modelTTL), 1
		s.m.holds[id] = &h
	}
	s.m.round = 1
	s.m.begin()
	return s
}

// addCall adds a call of a verb that began and ended at the given readings of
// the clock.
func (s *story) addCall(number string, begun, ended int64, call inventory.Call, err error, changed ...uuid.UUID) *asked {
	c := &asked{number: number, begun: begun, ended: ended, call: &carts.Call{Call: call}, err: err}
	for _, id := range changed {
		h := s.m.holds[id]
		r := reservations.Reservation{
			ReservationID: id, HolderID: h.cart, ResourceKey: h.variant, Quantity: h.quantity, FirstHeldAt: h.first, ExpiresAt: h.expires.Add(call.By),
			Status: reservations.Held, ReleaseReason: call.Reason,
		}
		switch eventOf(call.Action) {
		case reservationrows.EventCommitted:
			r.Status, r.EndedAt = reservations.Committed, &h.expires
		case reservationrows.EventReleased:
			r.Status, r.EndedAt = reservations.Released, &h.expires
		}
		c.changed = append(c.changed, r)
	}
	s.m.addCall(c)
	return c
}

// submit adds a request for shoes that was decided directly.
func (s *story) submit(begun, ended int64, quantity int32, status requests.Status, reason requests.Reason) {
	c := &asked{number: "add", begun: begun, ended: ended, submission: &requestrows.Submission{
		RequestID: s.add, Kind: requests.Add, CartID: "c", VariantID: "shoe", Quantity: quantity,
	}}
	c.view.Status, c.view.Reason = status, reason
	s.facts[s.add] = made{RequestID: s.add, Sequence: 1}
	s.m.addCall(c)
}

// record adds rows to the record, all of one transaction.
func (s *story) record(transaction int64, number, action string, targets ...uuid.UUID) {
	for _, id := range targets {
		s.entries = append(s.entries, entry{
			AuditID: int64(len(s.entries)), Transaction: transaction, Target: id, Action: action, Correlation: number,
		})
	}
}

// Calls of the stories.
var (
	checkA  = inventory.Call{Action: inventory.CheckoutCart, CartID: "a"}
	checkB  = inventory.Call{Action: inventory.CheckoutCart, CartID: "b"}
	extendA = inventory.Call{Action: inventory.ExtendCart, CartID: "a", By: time.Minute}
	removeA = inventory.Call{Action: inventory.ReleaseCart, CartID: "a", Reason: reservations.CartRemoved}
	removeB = inventory.Call{Action: inventory.ReleaseCart, CartID: "b", Reason: reservations.CartRemoved}
)

func commitOf(id uuid.UUID) inventory.Call {
	return inventory.Call{Action: inventory.CommitHold, ReservationID: id}
}

// Each of the stories begins with newStory.
var stories = []struct {
	name  string
	right bool
	tell  func(s *story)
}{
	{"a checkout", true, func(s *story) {
		s.addCall("1", 1, 2, checkA, nil, s.aShoe, s.aSock)
		s.record(7, "1", reservationrows.EventCommitted, s.aShoe, s.aSock)
	}},
	{"a checkout, and one that finds nothing", true, func(s *story) {
		s.addCall("1", 1, 4, checkA, nil, s.aShoe, s.aSock)
		s.addCall("2", 2, 3, checkA, inventory.ErrCartEmpty)
		s.record(7, "1", reservationrows.EventCommitted, s.aShoe, s.aSock)
	}},
	{"a removal of an expired hold, concurrent with a checkout", true, func(s *story) {
		s.addCall("1", 1, 4, removeB, nil)
		s.addCall("2", 2, 3, checkB, inventory.ErrHoldExpired)
		s.record(7, "", reservationrows.EventExpired, s.bShoe)
	}},
	{"a checkout that leaves out a hold", false, func(s *story) {
		s.addCall("1", 1, 2, checkA, nil, s.aShoe)
		s.record(7, "1", reservationrows.EventCommitted, s.aShoe)
	}},
	{"a checkout that answers less than it commits", false, func(s *story) {
		s.addCall("1", 1, 2, checkA, nil, s.aShoe)
		s.record(7, "1", reservationrows.EventCommitted, s.aShoe, s.aSock)
	}},
	{"a checkout that is not recorded", false, func(s *story) { s.addCall("1", 1, 2, checkA, nil, s.aShoe, s.aSock) }},
	{"a checkout of a due hold", false, func(s *story) {
		s.addCall("1", 1, 2, checkB, nil, s.bShoe)
		s.record(7, "1", reservationrows.EventCommitted, s.bShoe)
	}},
	{"a checkout of an expired hold that finds nothing", false, func(s *story) { s.addCall("1", 1, 2, checkB, inventory.ErrCartEmpty) }},
	{"a checkout that fails after the expiry was acknowledged", false, func(s *story) {
		s.addCall("1", 1, 2, removeB, nil)
		s.addCall("2", 3, 4, checkB, inventory.ErrHoldExpired)
		s.record(7, "", reservationrows.EventExpired, s.bShoe)
	}},
	{"two checkouts of one cart", false, func(s *story) {
		s.addCall("1", 1, 3, checkA, nil, s.aShoe, s.aSock)
		s.addCall("2", 2, 4, checkA, nil, s.aShoe, s.aSock)
		s.record(7, "1", reservationrows.EventCommitted, s.aShoe, s.aSock)
		s.record(7, "2", reservationrows.EventCommitted, s.aShoe, s.aSock)
	}},
	{"a checkout that finds nothing ahead of another one", false, func(s *story) {
		s.addCall("1", 1, 2, checkA, inventory.ErrCartEmpty)
		s.addCall("2", 3, 4, checkA, nil, s.aShoe, s.aSock)
		s.record(7, "2", reservationrows.EventCommitted, s.aShoe, s.aSock)
	}},
	{"a checkout that waits for requests that do not exist", false, func(s *story) {
		s.addCall("1", 1, 2, checkA, requestrows.ErrRequestsPending)
	}},
	{"a call that is answered ahead of its commit", false, func(s *story) {
		s.addCall("1", 1, 2, checkA, nil, s.aShoe, s.aSock)
		s.addCall("2", 3, 4, removeB, nil, s.bShoe)
		s.m.holds[s.bShoe].lapsedIn = 0
		s.record(7, "2", reservationrows.EventReleased, s.bShoe)
		s.record(8, "1", reservationrows.EventCommitted, s.aShoe, s.aSock)
	}},
	{"an extension of less than the cart", false, func(s *story) {
		s.addCall("1", 1, 2, extendA, nil, s.aShoe)
		s.record(7, "1", reservationrows.EventExtended, s.aShoe)
	}},
	{"an extension by more than requested", false, func(s *story) {
		c := s.addCall("1", 1, 2, extendA, nil, s.aShoe, s.aSock)
		c.changed[0].ExpiresAt = c.changed[0].ExpiresAt.Add(time.Minute)
		s.record(7, "1", reservationrows.EventExtended, s.aShoe, s.aSock)
	}},
	{"a removal that is recorded as a checkout", false, func(s *story) {
		s.addCall("1", 1, 2, removeA, nil, s.aShoe, s.aSock)
		s.record(7, "1", reservationrows.EventCommitted, s.aShoe, s.aSock)
	}},
	{"a commit after a release", false, func(s *story) {
		s.addCall("1", 1, 2, removeA, nil, s.aShoe, s.aSock)
		s.addCall("2", 3, 4, commitOf(s.aShoe), nil, s.aShoe)
		s.record(7, "1", reservationrows.EventReleased, s.aShoe, s.aSock)
		s.record(8, "2", reservationrows.EventCommitted, s.aShoe)
	}},
	{"a conflict with an ending that has not happened", false, func(s *story) {
		s.addCall("1", 1, 2, commitOf(s.aShoe), &reservations.ConflictError{ID: s.aShoe, Expected: reservations.Held, Actual: reservations.Released})
	}},
	{"an expiry of a hold that is not due", false, func(s *story) { s.record(7, "", reservationrows.EventExpired, s.aShoe) }},
	{"a rejection although due units suffice", false, func(s *story) {
		s.submit(1, 2, 2, requests.Failed, requests.OutOfStock)
		s.record(7, "add", requestFailed, s.add)
		s.entries[0].Reason = string(requests.OutOfStock)
	}},
	{"a rejection", true, func(s *story) {
		s.submit(1, 2, 3, requests.Failed, requests.OutOfStock)
		s.record(7, "add", requestFailed, s.add)
		s.entries[0].Reason = string(requests.OutOfStock)
	}},
}

// The model finds wrong answers: each of the stories has one, except those that
// are right.
func TestModelFindsWrongAnswers(t *testing.T) {
	t.Parallel()
	for _, c := range stories {
		s := newStory()
		c.tell(s)
		s.m.replay(s.entries, s.facts)
		if (len(s.m.faults) == 0) != c.right {
			t.Errorf("%s: the model finds %q", c.name, s.m.faults)
		}
	}
}
