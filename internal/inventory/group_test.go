package inventory

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/holdfast/holdfast/internal/reservationrows"
	"github.com/holdfast/holdfast/reservations"
)

// heldBy is a hold of a cart, due at noon plus left.
func heldBy(cart, variant string, quantity int64, left time.Duration) reservations.Reservation {
	return reservations.Reservation{
		TenantID: shop, ReservationID: uuid.New(), ResourceKind: Kind, ResourceKey: variant, HolderID: cart, Quantity: quantity,
		Status: reservations.Held, FirstHeldAt: noon.Add(-time.Hour), HeldAt: noon.Add(-time.Hour), ExpiresAt: noon.Add(left),
	}
}

// groupOf returns a group commit at noon whose queries have run. Each call has
// found and locked the holds at its index.
func groupOf(calls []Call, holds ...[]reservations.Reservation) *GroupCommit {
	g := NewGroupCommit(calls)
	g.now = noon
	for i := range holds {
		for j := range holds[i] {
			r := &holds[i][j]
			g.Members[i].found = append(g.Members[i].found, reservationrows.Named{Ref: r.Ref(), HolderID: r.HolderID, ResourceKey: r.ResourceKey})
		}
		g.held = append(g.held, holds[i]...)
	}
	return g
}

func cartCall(action Action, cart string) Call {
	return Call{
		Action: action, TenantID: shop, CartID: cart, Reason: reservations.CartRemoved, By: time.Minute, LifetimeMax: 2 * time.Hour,
	}
}

func holdCall(action Action, r *reservations.Reservation) Call {
	c := cartCall(action, "")
	c.ReservationID = r.ReservationID
	return c
}

func TestGroupCommitOverlaps(t *testing.T) {
	t.Parallel()
	ann, bob := heldBy("ann", "shoe", 1, time.Hour), heldBy("bob", "shoe", 1, time.Hour)
	other := cartCall(CheckoutCart, "ann")
	other.TenantID = uuid.New()
	missing := holdCall(CommitHold, &reservations.Reservation{ReservationID: uuid.New()})
	annsHold, bobsHold := []reservations.Reservation{ann}, []reservations.Reservation{bob}
	for name, c := range map[string]struct {
		first, second           Call
		firstHolds, secondHolds []reservations.Reservation
		want                    bool
	}{
		"two calls of one cart":               {cartCall(CheckoutCart, "ann"), cartCall(ExtendCart, "ann"), annsHold, annsHold, true},
		"two calls of one empty cart":         {cartCall(CheckoutCart, "ann"), cartCall(ReleaseCart, "ann"), nil, nil, true},
		"calls of two carts":                  {cartCall(CheckoutCart, "ann"), cartCall(CheckoutCart, "bob"), annsHold, bobsHold, false},
		"calls of one cart id of two tenants": {cartCall(CheckoutCart, "ann"), other, annsHold, nil, false},
		"a cart and its hold":                 {cartCall(CheckoutCart, "ann"), holdCall(CommitHold, &ann), annsHold, annsHold, true},
		"a hold and its cart":                 {holdCall(ExtendHold, &ann), cartCall(ReleaseCart, "ann"), annsHold, annsHold, true},
		"a cart and another cart's hold":      {cartCall(CheckoutCart, "ann"), holdCall(CommitHold, &bob), annsHold, bobsHold, false},
		"a cart and a missing hold":           {cartCall(CheckoutCart, "ann"), missing, annsHold, nil, false},
		"two calls of one hold":               {holdCall(CommitHold, &ann), holdCall(ReleaseHold, &ann), annsHold, annsHold, true},
		"calls of two holds":                  {holdCall(CommitHold, &ann), holdCall(CommitHold, &bob), annsHold, bobsHold, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := groupOf([]Call{c.first, c.second}, c.firstHolds, c.secondHolds)
			if g.Overlaps(0) {
				t.Error("the first call overlaps an earlier one")
			}
			if got := g.Overlaps(1); got != c.want {
				t.Errorf("the second call overlaps the first: %t, want %t", got, c.want)
			}
			g.Members[0].Excluded = true
			if g.Overlaps(1) {
				t.Error("the second call overlaps a call that is excluded")
			}
		})
	}
}

// errAnyConflict means any *reservations.ConflictError.
var errAnyConflict = errors.New("any conflict")

// callResult is the expected result of a call: how many reservations it
// changed, their status, and its error.
type callResult struct {
	changed int
	status  reservations.Status
	err     error
}

func (want callResult) check(t *testing.T, call int, got Result) {
	t.Helper()
	matches := errors.Is(got.Err, want.err)
	if errors.Is(want.err, errAnyConflict) {
		_, matches = errors.AsType[*reservations.ConflictError](got.Err)
	}
	if !matches || len(got.Reservations) != want.changed {
		t.Errorf("call %d: %d reservations, %v; want %d, %v", call, len(got.Reservations), got.Err, want.changed, want.err)
		return
	}
	for i := range got.Reservations {
		if status := got.Reservations[i].Status; status != want.status {
			t.Errorf("call %d: %s, want %s", call, status, want.status)
		}
	}
}

// Each call of a group is decided individually. Errors and the excluded call do
// not affect other calls, and the counters change by the sum.
func TestGroupCommitDecide(t *testing.T) {
	t.Parallel()
	const live, due = 30 * time.Minute, -time.Second
	checkout := []reservations.Reservation{heldBy("checkout", "shoe", 2, live), heldBy("checkout", "sock", 3, live)}
	late := []reservations.Reservation{heldBy("late", "shoe", 5, live)}
	removal := []reservations.Reservation{heldBy("removal", "shoe", 1, live), heldBy("removal", "shoe", 4, due)}
	extension := []reservations.Reservation{heldBy("extension", "sock", 1, live)}
	tooLong := []reservations.Reservation{heldBy("too long", "sock", 1, time.Hour)}
	committed := []reservations.Reservation{heldBy("by id", "sock", 7, live)}
	dueHold := []reservations.Reservation{heldBy("by id", "sock", 9, due)}
	excluded := []reservations.Reservation{heldBy("excluded", "shoe", 6, live)}
	calls := []Call{
		cartCall(CheckoutCart, "checkout"), cartCall(CheckoutCart, "empty"), cartCall(CheckoutCart, "late"),
		cartCall(ReleaseCart, "removal"), cartCall(ExtendCart, "extension"), cartCall(ExtendCart, "too long"),
		holdCall(CommitHold, &committed[0]), holdCall(ReleaseHold, &dueHold[0]),
		holdCall(ExtendHold, &reservations.Reservation{ReservationID: uuid.New()}), cartCall(CheckoutCart, "excluded"),
	}
	g := groupOf(calls, checkout, nil, late, removal, extension, tooLong, committed, dueHold, nil, excluded)
	g.checkouts = []reservationrows.Holder{{TenantID: shop, HolderID: "checkout"}, {TenantID: shop, HolderID: "late"}}
	g.expiredUnseen = &[]reservationrows.ExpiredUnseen{{Index: 1, ResourceKey: "hat"}}
	g.Members[9].Excluded = true
	g.Decide()

	for i, want := range []callResult{
		{2, reservations.Committed, nil},
		{0, "", ErrCartEmpty},
		{0, "", ErrHoldExpired},
		{1, reservations.Released, nil},
		{1, reservations.Held, nil},
		{0, "", reservations.ErrLifetimeExceeded},
		{1, reservations.Committed, nil},
		{0, "", errAnyConflict},
		{0, "", reservations.ErrNotFound},
		{0, "", nil},
	} {
		want.check(t, i, g.Members[i].Result)
	}
	if got := g.Members[4].Result.Reservations; len(got) != 1 || !got[0].ExpiresAt.Equal(noon.Add(live+time.Minute)) {
		t.Errorf("the extended cart: %+v", got)
	}
	deltas := map[Ref]counterDelta{
		{shop, "shoe"}: {stock: -2, reserved: -2 - 1 - 4, ended: true},
		{shop, "sock"}: {stock: -3 - 7, reserved: -3 - 7 - 9, ended: true},
	}
	if diff := cmp.Diff(deltas, g.deltas, cmp.AllowUnexported(counterDelta{})); diff != "" {
		t.Errorf("deltas (-want +got):\n%s", diff)
	}
	if want := 2 + 2 + 1 + 1 + 1; len(g.entries) != want {
		t.Errorf("%d audit entries, want %d", len(g.entries), want)
	}
	acknowledged := []reservationrows.HolderKey{{TenantID: shop, HolderID: "removal"}}
	if diff := cmp.Diff(acknowledged, g.acknowledged); diff != "" {
		t.Errorf("acknowledged (-want +got):\n%s", diff)
	}
}
