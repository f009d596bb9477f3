package inventory

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/holdfast/holdfast/audit"
	"github.com/holdfast/holdfast/internal/reservationrows"
	"github.com/holdfast/holdfast/reservations"
)

// Everything in these tests belongs to one tenant and happens at one moment, unless it says otherwise.
var (
	shop = uuid.MustParse("0193a000-0000-7000-8000-000000000001")
	noon = time.Date(2026, 11, 2, 12, 0, 0, 0, time.UTC)
)

// counterOf is a tracked variant of the shop with so many units, changed as said.
func counterOf(variant string, stock int64, changes ...func(*counter)) *counter {
	c := &counter{TenantID: shop, VariantID: variant, Stock: stock, Tracked: true}
	for _, change := range changes {
		change(c)
	}
	return c
}

func reserved(n int64) func(*counter)   { return func(c *counter) { c.Reserved = n } }
func backorder(c *counter)              { c.Backorder = true }
func untracked(c *counter)              { c.Tracked = false }
func maxPerCart(n int32) func(*counter) { return func(c *counter) { c.MaxPerCart = &n } }
func ttl(seconds int32) func(*counter)  { return func(c *counter) { c.HoldTTLSeconds = &seconds } }

func knownOf(counters ...*counter) known {
	k := known{
		now: noon, counters: make(map[Ref]*counter), due: make(map[Ref]int64),
		lines: make(map[reservationrows.Line][]reservations.Reservation), ttl: 15 * time.Minute, lifetimeMax: 2 * time.Hour,
	}
	for _, c := range counters {
		k.counters[Ref{c.TenantID, c.VariantID}] = c
	}
	return k
}

// holding says what a cart holds of a variant, a hold for each quantity, and that asks depend on it.
func (k known) holding(cart, variant string, quantities ...int64) known {
	line := lineOf(cart, variant)
	k.lines[line] = nil
	for i, n := range quantities {
		k.lines[line] = append(k.lines[line], reservations.Reservation{
			TenantID: shop, ReservationID: uuid.NewSHA1(shop, fmt.Append(nil, cart, variant, i)), ResourceKind: Kind,
			ResourceKey: variant, HolderID: cart, Quantity: n, Status: reservations.Held,
			FirstHeldAt: noon.Add(-time.Hour), HeldAt: noon.Add(-time.Hour), ExpiresAt: noon.Add(time.Minute),
		})
	}
	return k
}

func (k known) withDue(variant string, n int64) known {
	k.due[Ref{shop, variant}] = n
	return k
}

func lineOf(cart, variant string) reservationrows.Line {
	return reservationrows.Line{TenantID: shop, HolderID: cart, ResourceKey: variant}
}

func add(cart, variant string, quantity int64) Ask {
	return Ask{TenantID: shop, RequestID: uuid.New(), CartID: cart, VariantID: variant, Quantity: quantity}
}

func set(cart, variant string, quantity int64) Ask {
	ask := add(cart, variant, quantity)
	ask.Replace = true
	return ask
}

func stale(ask Ask) Ask {
	ask.Stale = true
	return ask
}

// decideCases are told apart by what they show.
var decideCases = map[string]struct {
	known    known
	asks     []Ask
	want     []Verdict
	reserved int64 // net, of all variants
	replaced int   // reservations
}{
	"nothing asked":      {knownOf(), nil, []Verdict{}, 0, 0},
	"granted":            {knownOf(counterOf("shoe", 1)), []Ask{add("a", "shoe", 1)}, []Verdict{Granted}, 1, 0},
	"sold out":           {knownOf(counterOf("shoe", 1, reserved(1))), []Ask{add("a", "shoe", 1)}, []Verdict{OutOfStock}, 0, 0},
	"unknown":            {knownOf(), []Ask{add("a", "shoe", 1)}, []Verdict{UnknownVariant}, 0, 0},
	"digital":            {knownOf(counterOf("song", 0, untracked)), []Ask{add("a", "song", 9), set("a", "song", 3)}, []Verdict{Untracked, Untracked}, 0, 0},
	"backordered":        {knownOf(counterOf("shoe", 1, backorder)), []Ask{add("a", "shoe", 5), add("b", "shoe", 5)}, []Verdict{Granted, Granted}, 10, 0},
	"backordered, owing": {knownOf(counterOf("shoe", -7, backorder)), []Ask{add("a", "shoe", 1)}, []Verdict{Granted}, 1, 0},

	"stale before unknown":       {knownOf(), []Ask{stale(add("a", "shoe", 1))}, []Verdict{ExpiredInQueue}, 0, 0},
	"stale before digital":       {knownOf(counterOf("song", 0, untracked)), []Ask{stale(add("a", "song", 1))}, []Verdict{ExpiredInQueue}, 0, 0},
	"stale before sold out":      {knownOf(counterOf("shoe", 0)), []Ask{stale(add("a", "shoe", 1))}, []Verdict{ExpiredInQueue}, 0, 0},
	"digital before the limit":   {knownOf(counterOf("song", 0, untracked, maxPerCart(1))), []Ask{add("a", "song", 2)}, []Verdict{Untracked}, 0, 0},
	"the limit before sold out":  {knownOf(counterOf("shoe", 0, maxPerCart(1))), []Ask{add("a", "shoe", 2)}, []Verdict{LimitExceeded}, 0, 0},
	"the limit before backorder": {knownOf(counterOf("shoe", 0, maxPerCart(1), backorder)), []Ask{add("a", "shoe", 2)}, []Verdict{LimitExceeded}, 0, 0},

	"the earliest first": {
		knownOf(counterOf("shoe", 2)),
		[]Ask{add("a", "shoe", 1), add("b", "shoe", 1), add("c", "shoe", 1)},
		[]Verdict{Granted, Granted, OutOfStock}, 2, 0},
	"the small behind the large": {
		knownOf(counterOf("shoe", 5)),
		[]Ask{add("a", "shoe", 3), add("b", "shoe", 3), add("c", "shoe", 2), add("d", "shoe", 1)},
		[]Verdict{Granted, OutOfStock, Granted, OutOfStock}, 5, 0},
	"a stale one takes nothing": {
		knownOf(counterOf("shoe", 1)),
		[]Ask{stale(add("a", "shoe", 1)), add("b", "shoe", 1)},
		[]Verdict{ExpiredInQueue, Granted}, 1, 0},
	"variants apart": {
		knownOf(counterOf("shoe", 1), counterOf("sock", 1)),
		[]Ask{add("a", "shoe", 1), add("a", "sock", 1), add("b", "shoe", 1), add("b", "sock", 1)},
		[]Verdict{Granted, Granted, OutOfStock, OutOfStock}, 2, 0},
	"tenants apart": {
		knownOf(counterOf("shoe", 1), counterOf("shoe", 1, func(c *counter) { c.TenantID = otherTenant })),
		[]Ask{add("a", "shoe", 1), {TenantID: otherTenant, RequestID: uuid.New(), CartID: "a", VariantID: "shoe", Quantity: 1}, {TenantID: uuid.New(), CartID: "a", VariantID: "shoe", Quantity: 1}},
		[]Verdict{Granted, Granted, UnknownVariant}, 2, 0},

	"due units are free":      {knownOf(counterOf("shoe", 3, reserved(3))).withDue("shoe", 2), []Ask{add("a", "shoe", 2), add("b", "shoe", 1)}, []Verdict{Granted, OutOfStock}, 2, 0},
	"due units, not too many": {knownOf(counterOf("shoe", 3, reserved(3))).withDue("shoe", 2), []Ask{add("a", "shoe", 3)}, []Verdict{OutOfStock}, 0, 0},
	"due units of another":    {knownOf(counterOf("shoe", 0), counterOf("sock", 1, reserved(1))).withDue("sock", 1), []Ask{add("a", "shoe", 1)}, []Verdict{OutOfStock}, 0, 0},

	"the limit counts what is held":    {knownOf(counterOf("shoe", 9, maxPerCart(3))).holding("a", "shoe", 1, 1), []Ask{add("a", "shoe", 2), add("a", "shoe", 1)}, []Verdict{LimitExceeded, Granted}, 1, 0},
	"the limit counts the batch":       {knownOf(counterOf("shoe", 9, maxPerCart(3))).holding("a", "shoe"), []Ask{add("a", "shoe", 2), add("a", "shoe", 1), add("a", "shoe", 1)}, []Verdict{Granted, Granted, LimitExceeded}, 3, 0},
	"the limit forgets the rejected":   {knownOf(counterOf("shoe", 9, maxPerCart(3))).holding("a", "shoe"), []Ask{add("a", "shoe", 4), add("a", "shoe", 3)}, []Verdict{LimitExceeded, Granted}, 3, 0},
	"the limit is a cart's":            {knownOf(counterOf("shoe", 9, maxPerCart(3))).holding("a", "shoe", 3).holding("b", "shoe"), []Ask{add("b", "shoe", 3)}, []Verdict{Granted}, 3, 0},
	"the limit of a changed quantity":  {knownOf(counterOf("shoe", 9, maxPerCart(3), reserved(2))).holding("a", "shoe", 2), []Ask{set("a", "shoe", 4), set("a", "shoe", 3), add("a", "shoe", 1)}, []Verdict{LimitExceeded, Granted, LimitExceeded}, 1, 1},
	"room after a changed quantity":    {knownOf(counterOf("shoe", 9, maxPerCart(3), reserved(3))).holding("a", "shoe", 3), []Ask{set("a", "shoe", 1), add("a", "shoe", 2)}, []Verdict{Granted, Granted}, 0, 1},
	"a set for one who has nothing":    {knownOf(counterOf("shoe", 2)).holding("a", "shoe"), []Ask{set("a", "shoe", 2)}, []Verdict{Granted}, 2, 0},
	"own units don't count against it": {knownOf(counterOf("shoe", 5, reserved(5))).holding("a", "shoe", 2, 3), []Ask{set("a", "shoe", 5)}, []Verdict{Granted}, 0, 2},
	"own units and no more":            {knownOf(counterOf("shoe", 5, reserved(5))).holding("a", "shoe", 5), []Ask{set("a", "shoe", 6)}, []Verdict{OutOfStock}, 0, 0},
	"own units and those left":         {knownOf(counterOf("shoe", 6, reserved(5))).holding("a", "shoe", 5), []Ask{set("a", "shoe", 6)}, []Verdict{Granted}, 1, 1},
	"others' units do count":           {knownOf(counterOf("shoe", 5, reserved(5))).holding("a", "shoe", 2), []Ask{set("a", "shoe", 3)}, []Verdict{OutOfStock}, 0, 0},
	"another variant's units too":      {knownOf(counterOf("shoe", 0), counterOf("sock", 2, reserved(2))).holding("a", "sock", 2).holding("a", "shoe"), []Ask{set("a", "shoe", 1)}, []Verdict{OutOfStock}, 0, 0},
	"neither, then the old one stands": {knownOf(counterOf("shoe", 3, reserved(2))).holding("a", "shoe", 2), []Ask{set("a", "shoe", 9), add("b", "shoe", 1), add("c", "shoe", 1)}, []Verdict{OutOfStock, Granted, OutOfStock}, 1, 0},
	"fewer frees units for the next":   {knownOf(counterOf("shoe", 5, reserved(5))).holding("a", "shoe", 5), []Ask{add("b", "shoe", 1), set("a", "shoe", 1), add("b", "shoe", 4)}, []Verdict{OutOfStock, Granted, Granted}, 0, 1},
	"a chain within the batch":         {knownOf(counterOf("shoe", 9)).holding("a", "shoe"), []Ask{add("a", "shoe", 2), set("a", "shoe", 4), set("a", "shoe", 1)}, []Verdict{Granted, Granted, Granted}, 1, 2},
	"a chain ending below the start":   {knownOf(counterOf("shoe", 9, reserved(9))).holding("a", "shoe", 9), []Ask{set("a", "shoe", 4), set("a", "shoe", 9), set("a", "shoe", 2)}, []Verdict{Granted, Granted, Granted}, -7, 3},
	"a set on backorder":               {knownOf(counterOf("shoe", 1, backorder, reserved(4))).holding("a", "shoe", 4), []Ask{set("a", "shoe", 7)}, []Verdict{Granted}, 3, 1},
	"a set takes due units":            {knownOf(counterOf("shoe", 4, reserved(4))).holding("a", "shoe", 1).withDue("shoe", 3), []Ask{set("a", "shoe", 4)}, []Verdict{Granted}, 3, 1},
}

var otherTenant = uuid.New()

func TestDecide(t *testing.T) {
	t.Parallel()
	for name, c := range decideCases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := decide(c.asks, c.known)
			if diff := cmp.Diff(c.want, d.verdicts); diff != "" {
				t.Errorf("verdicts (-want +got):\n%s", diff)
			}
			var net int64
			for _, demand := range d.reserved {
				net += demand.net
			}
			released := 0
			for i := range d.holds {
				released += len(d.holds[i].Replaces)
			}
			if net != c.reserved || released != c.replaced {
				t.Errorf("reserves %d and replaces %d, want %d and %d", net, released, c.reserved, c.replaced)
			}
		})
	}
}

// Every granted ask gets its hold: its own id, cart and variant, the deadline of its variant.
func TestDecideHolds(t *testing.T) {
	t.Parallel()
	who := audit.Origin{Actor: audit.User("hf_shop00"), CorrelationID: "c-1"}
	asks := []Ask{add("a", "shoe", 2), add("b", "sock", 9), add("c", "hat", 1), add("d", "coat", 1)}
	for i := range asks {
		asks[i].Origin = who
	}
	d := decide(asks, knownOf(counterOf("shoe", 5), counterOf("sock", 1), counterOf("hat", 1, ttl(30)), counterOf("coat", 1, ttl(86_400))))
	want := []reservationrows.Hold{
		{Origin: who, Reservation: heldFor(asks[0], noon.Add(15*time.Minute))},
		{Origin: who, Reservation: heldFor(asks[2], noon.Add(30*time.Second))},
		{Origin: who, Reservation: heldFor(asks[3], noon.Add(2*time.Hour))}, // the lifetime cap
	}
	if diff := cmp.Diff(want, d.holds); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if !d.short[Ref{shop, "sock"}] || len(d.short) != 1 {
		t.Errorf("short of %v, want only of socks", d.short)
	}
}

func heldFor(ask Ask, expires time.Time) reservations.Reservation {
	return reservations.Reservation{
		TenantID: ask.TenantID, ReservationID: ask.RequestID, ResourceKind: Kind, ResourceKey: ask.VariantID, HolderID: ask.CartID,
		Quantity: ask.Quantity, Status: reservations.Held, FirstHeldAt: noon, HeldAt: noon, ExpiresAt: expires,
	}
}

// The lifetime of a changed quantity counts from the first of the holds it replaces, and through a chain.
func TestDecideLifetime(t *testing.T) {
	t.Parallel()
	k := knownOf(counterOf("shoe", 9, reserved(3))).holding("a", "shoe", 1, 2)
	line := lineOf("a", "shoe")
	first := noon.Add(-110 * time.Minute)
	k.lines[line][1].FirstHeldAt = first
	asks := []Ask{set("a", "shoe", 4), set("a", "shoe", 5)}
	d := decide(asks, k)
	if len(d.holds) != 2 || len(d.holds[0].Replaces) != 2 || len(d.holds[1].Replaces) != 1 {
		t.Fatalf("holds %+v, want one that replaces 2 and one that replaces 1", d.holds)
	}
	for i, h := range d.holds {
		if !h.FirstHeldAt.Equal(first) || !h.HeldAt.Equal(noon) || !h.ExpiresAt.Equal(noon.Add(10*time.Minute)) {
			t.Errorf("hold %d: first held %s, held %s, expires %s; want %s, %s and ten past noon", i, h.FirstHeldAt, h.HeldAt, h.ExpiresAt, first, noon)
		}
	}
	if got := d.holds[1].Replaces[0].ReservationID; got != asks[0].RequestID {
		t.Errorf("the second set replaces %s, want what the first one held", got)
	}
	if again := decide(asks, k); !cmp.Equal(d.verdicts, again.verdicts) || len(k.lines[line]) != 2 || k.lines[line][0].Status != reservations.Held {
		t.Error("decide changed what it was given")
	}
}
