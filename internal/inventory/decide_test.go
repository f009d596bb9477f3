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

// Unless a test sets others, all requests are of one tenant and have one time.
var (
	shop = uuid.MustParse("0193a000-0000-7000-8000-000000000001")
	noon = time.Date(2026, 11, 2, 12, 0, 0, 0, time.UTC)
)

// counterOf returns a tracked variant of the shop with that stock and the given
// changes.
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

func inputsOf(counters ...*counter) inputs {
	in := inputs{
		stocks: stocks{now: noon, counters: make(map[Ref]*counter)}, due: make(map[Ref]int64),
		cartHolds: make(map[reservationrows.HolderKey][]reservations.Reservation), Terms: Terms{TTL: 15 * time.Minute, LifetimeMax: 2 * time.Hour},
	}
	for _, c := range counters {
		in.counters[Ref{c.TenantID, c.VariantID}] = c
	}
	return in
}

// holding adds holds of a cart of a variant, one per quantity. Requests of the
// cart then depend on them.
func (in inputs) holding(cart, variant string, quantities ...int64) inputs {
	key := keyOf(cart, variant)
	in.cartHolds[key] = nil
	for i, n := range quantities {
		in.cartHolds[key] = append(in.cartHolds[key], reservations.Reservation{
			TenantID: shop, ReservationID: uuid.NewSHA1(shop, fmt.Append(nil, cart, variant, i)), ResourceKind: Kind,
			ResourceKey: variant, HolderID: cart, Quantity: n, Status: reservations.Held,
			FirstHeldAt: noon.Add(-time.Hour), HeldAt: noon.Add(-time.Hour), ExpiresAt: noon.Add(time.Minute),
		})
	}
	return in
}

func (in inputs) withDue(variant string, n int64) inputs {
	in.due[Ref{shop, variant}] = n
	return in
}

func keyOf(cart, variant string) reservationrows.HolderKey {
	return reservationrows.HolderKey{TenantID: shop, HolderID: cart, ResourceKey: variant}
}

func add(cart, variant string, quantity int64) HoldRequest {
	return HoldRequest{TenantID: shop, RequestID: uuid.New(), CartID: cart, VariantID: variant, Quantity: quantity}
}

func set(cart, variant string, quantity int64) HoldRequest {
	request := add(cart, variant, quantity)
	request.Replace = true
	return request
}

func stale(request HoldRequest) HoldRequest {
	request.Stale = true
	return request
}

// decideCases are named by the rule that they test.
var decideCases = map[string]struct {
	in       inputs
	requests []HoldRequest
	want     []Outcome
	reserved int64 // net change of reserved, of all variants
	replaced int   // reservations
}{
	"no requests":        {inputsOf(), nil, []Outcome{}, 0, 0},
	"granted":            {inputsOf(counterOf("shoe", 1)), []HoldRequest{add("a", "shoe", 1)}, []Outcome{Granted}, 1, 0},
	"sold out":           {inputsOf(counterOf("shoe", 1, reserved(1))), []HoldRequest{add("a", "shoe", 1)}, []Outcome{OutOfStock}, 0, 0},
	"unknown":            {inputsOf(), []HoldRequest{add("a", "shoe", 1)}, []Outcome{UnknownVariant}, 0, 0},
	"digital":            {inputsOf(counterOf("song", 0, untracked)), []HoldRequest{add("a", "song", 9), set("a", "song", 3)}, []Outcome{Untracked, Untracked}, 0, 0},
	"backordered":        {inputsOf(counterOf("shoe", 1, backorder)), []HoldRequest{add("a", "shoe", 5), add("b", "shoe", 5)}, []Outcome{Granted, Granted}, 10, 0},
	"backordered, owing": {inputsOf(counterOf("shoe", -7, backorder)), []HoldRequest{add("a", "shoe", 1)}, []Outcome{Granted}, 1, 0},

	"stale before unknown":       {inputsOf(), []HoldRequest{stale(add("a", "shoe", 1))}, []Outcome{ExpiredInQueue}, 0, 0},
	"stale before digital":       {inputsOf(counterOf("song", 0, untracked)), []HoldRequest{stale(add("a", "song", 1))}, []Outcome{ExpiredInQueue}, 0, 0},
	"stale before sold out":      {inputsOf(counterOf("shoe", 0)), []HoldRequest{stale(add("a", "shoe", 1))}, []Outcome{ExpiredInQueue}, 0, 0},
	"digital before the limit":   {inputsOf(counterOf("song", 0, untracked, maxPerCart(1))), []HoldRequest{add("a", "song", 2)}, []Outcome{Untracked}, 0, 0},
	"the limit before sold out":  {inputsOf(counterOf("shoe", 0, maxPerCart(1))), []HoldRequest{add("a", "shoe", 2)}, []Outcome{LimitExceeded}, 0, 0},
	"the limit before backorder": {inputsOf(counterOf("shoe", 0, maxPerCart(1), backorder)), []HoldRequest{add("a", "shoe", 2)}, []Outcome{LimitExceeded}, 0, 0},

	"the earliest first": {
		inputsOf(counterOf("shoe", 2)),
		[]HoldRequest{add("a", "shoe", 1), add("b", "shoe", 1), add("c", "shoe", 1)},
		[]Outcome{Granted, Granted, OutOfStock}, 2, 0},
	"a small request after a large one": {
		inputsOf(counterOf("shoe", 5)),
		[]HoldRequest{add("a", "shoe", 3), add("b", "shoe", 3), add("c", "shoe", 2), add("d", "shoe", 1)},
		[]Outcome{Granted, OutOfStock, Granted, OutOfStock}, 5, 0},
	"a stale request takes no units": {
		inputsOf(counterOf("shoe", 1)),
		[]HoldRequest{stale(add("a", "shoe", 1)), add("b", "shoe", 1)},
		[]Outcome{ExpiredInQueue, Granted}, 1, 0},
	"variants are independent": {
		inputsOf(counterOf("shoe", 1), counterOf("sock", 1)),
		[]HoldRequest{add("a", "shoe", 1), add("a", "sock", 1), add("b", "shoe", 1), add("b", "sock", 1)},
		[]Outcome{Granted, Granted, OutOfStock, OutOfStock}, 2, 0},
	"tenants are independent": {
		inputsOf(counterOf("shoe", 1), counterOf("shoe", 1, func(c *counter) { c.TenantID = otherTenant })),
		[]HoldRequest{add("a", "shoe", 1), {TenantID: otherTenant, RequestID: uuid.New(), CartID: "a", VariantID: "shoe", Quantity: 1}, {TenantID: uuid.New(), CartID: "a", VariantID: "shoe", Quantity: 1}},
		[]Outcome{Granted, Granted, UnknownVariant}, 2, 0},

	"due units are free":             {inputsOf(counterOf("shoe", 3, reserved(3))).withDue("shoe", 2), []HoldRequest{add("a", "shoe", 2), add("b", "shoe", 1)}, []Outcome{Granted, OutOfStock}, 2, 0},
	"due units, no more than needed": {inputsOf(counterOf("shoe", 3, reserved(3))).withDue("shoe", 2), []HoldRequest{add("a", "shoe", 3)}, []Outcome{OutOfStock}, 0, 0},
	"due units of another variant":   {inputsOf(counterOf("shoe", 0), counterOf("sock", 1, reserved(1))).withDue("sock", 1), []HoldRequest{add("a", "shoe", 1)}, []Outcome{OutOfStock}, 0, 0},

	"the limit counts existing holds":            {inputsOf(counterOf("shoe", 9, maxPerCart(3))).holding("a", "shoe", 1, 1), []HoldRequest{add("a", "shoe", 2), add("a", "shoe", 1)}, []Outcome{LimitExceeded, Granted}, 1, 0},
	"the limit counts holds of the batch":        {inputsOf(counterOf("shoe", 9, maxPerCart(3))).holding("a", "shoe"), []HoldRequest{add("a", "shoe", 2), add("a", "shoe", 1), add("a", "shoe", 1)}, []Outcome{Granted, Granted, LimitExceeded}, 3, 0},
	"the limit does not count rejected requests": {inputsOf(counterOf("shoe", 9, maxPerCart(3))).holding("a", "shoe"), []HoldRequest{add("a", "shoe", 4), add("a", "shoe", 3)}, []Outcome{LimitExceeded, Granted}, 3, 0},
	"the limit applies per cart":                 {inputsOf(counterOf("shoe", 9, maxPerCart(3))).holding("a", "shoe", 3).holding("b", "shoe"), []HoldRequest{add("b", "shoe", 3)}, []Outcome{Granted}, 3, 0},
	"the limit of a changed quantity":            {inputsOf(counterOf("shoe", 9, maxPerCart(3), reserved(2))).holding("a", "shoe", 2), []HoldRequest{set("a", "shoe", 4), set("a", "shoe", 3), add("a", "shoe", 1)}, []Outcome{LimitExceeded, Granted, LimitExceeded}, 1, 1},
	"capacity after a changed quantity":          {inputsOf(counterOf("shoe", 9, maxPerCart(3), reserved(3))).holding("a", "shoe", 3), []HoldRequest{set("a", "shoe", 1), add("a", "shoe", 2)}, []Outcome{Granted, Granted}, 0, 1},
	"a set for a cart without a hold":            {inputsOf(counterOf("shoe", 2)).holding("a", "shoe"), []HoldRequest{set("a", "shoe", 2)}, []Outcome{Granted}, 2, 0},
	"a set may use the cart's own units":         {inputsOf(counterOf("shoe", 5, reserved(5))).holding("a", "shoe", 2, 3), []HoldRequest{set("a", "shoe", 5)}, []Outcome{Granted}, 0, 2},
	"a set above the cart's own units":           {inputsOf(counterOf("shoe", 5, reserved(5))).holding("a", "shoe", 5), []HoldRequest{set("a", "shoe", 6)}, []Outcome{OutOfStock}, 0, 0},
	"a set to its own units and the rest":        {inputsOf(counterOf("shoe", 6, reserved(5))).holding("a", "shoe", 5), []HoldRequest{set("a", "shoe", 6)}, []Outcome{Granted}, 1, 1},
	"units of other carts count":                 {inputsOf(counterOf("shoe", 5, reserved(5))).holding("a", "shoe", 2), []HoldRequest{set("a", "shoe", 3)}, []Outcome{OutOfStock}, 0, 0},
	"units of another variant do not help":       {inputsOf(counterOf("shoe", 0), counterOf("sock", 2, reserved(2))).holding("a", "sock", 2).holding("a", "shoe"), []HoldRequest{set("a", "shoe", 1)}, []Outcome{OutOfStock}, 0, 0},
	"a rejected set keeps the old hold":          {inputsOf(counterOf("shoe", 3, reserved(2))).holding("a", "shoe", 2), []HoldRequest{set("a", "shoe", 9), add("b", "shoe", 1), add("c", "shoe", 1)}, []Outcome{OutOfStock, Granted, OutOfStock}, 1, 0},
	"a smaller set frees units for the next":     {inputsOf(counterOf("shoe", 5, reserved(5))).holding("a", "shoe", 5), []HoldRequest{add("b", "shoe", 1), set("a", "shoe", 1), add("b", "shoe", 4)}, []Outcome{OutOfStock, Granted, Granted}, 0, 1},
	"a chain within the batch":                   {inputsOf(counterOf("shoe", 9)).holding("a", "shoe"), []HoldRequest{add("a", "shoe", 2), set("a", "shoe", 4), set("a", "shoe", 1)}, []Outcome{Granted, Granted, Granted}, 1, 2},
	"a chain ending below the start":             {inputsOf(counterOf("shoe", 9, reserved(9))).holding("a", "shoe", 9), []HoldRequest{set("a", "shoe", 4), set("a", "shoe", 9), set("a", "shoe", 2)}, []Outcome{Granted, Granted, Granted}, -7, 3},
	"a set on backorder":                         {inputsOf(counterOf("shoe", 1, backorder, reserved(4))).holding("a", "shoe", 4), []HoldRequest{set("a", "shoe", 7)}, []Outcome{Granted}, 3, 1},
	"a set takes due units":                      {inputsOf(counterOf("shoe", 4, reserved(4))).holding("a", "shoe", 1).withDue("shoe", 3), []HoldRequest{set("a", "shoe", 4)}, []Outcome{Granted}, 3, 1},
}

var otherTenant = uuid.New()

func TestDecide(t *testing.T) {
	t.Parallel()
	for name, c := range decideCases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := decide(c.requests, c.in)
			if diff := cmp.Diff(c.want, d.outcomes); diff != "" {
				t.Errorf("outcomes (-want +got):\n%s", diff)
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

// Every granted request gets a hold with its id, its cart and its variant, and
// the deadline of the variant.
func TestDecideHolds(t *testing.T) {
	t.Parallel()
	who := audit.Origin{Actor: audit.User("hf_shop00"), CorrelationID: "c-1"}
	requests := []HoldRequest{add("a", "shoe", 2), add("b", "sock", 9), add("c", "hat", 1), add("d", "coat", 1)}
	for i := range requests {
		requests[i].Origin = who
	}
	d := decide(requests, inputsOf(counterOf("shoe", 5), counterOf("sock", 1), counterOf("hat", 1, ttl(30)), counterOf("coat", 1, ttl(86_400))))
	want := []reservationrows.Hold{
		{Origin: who, Reservation: reservationOf(requests[0], noon.Add(15*time.Minute))},
		{Origin: who, Reservation: reservationOf(requests[2], noon.Add(30*time.Second))},
		{Origin: who, Reservation: reservationOf(requests[3], noon.Add(2*time.Hour))}, // the lifetime cap
	}
	if diff := cmp.Diff(want, d.holds); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if !d.short[Ref{shop, "sock"}] || len(d.short) != 1 {
		t.Errorf("short of %v, want only of socks", d.short)
	}
}

func reservationOf(request HoldRequest, expires time.Time) reservations.Reservation {
	return reservations.Reservation{
		TenantID: request.TenantID, ReservationID: request.RequestID, ResourceKind: Kind, ResourceKey: request.VariantID, HolderID: request.CartID,
		Quantity: request.Quantity, Status: reservations.Held, FirstHeldAt: noon, HeldAt: noon, ExpiresAt: expires,
	}
}

// The lifetime of a changed quantity counts from the first of the holds that it
// replaces, even through a chain of changes.
func TestDecideLifetime(t *testing.T) {
	t.Parallel()
	in := inputsOf(counterOf("shoe", 9, reserved(3))).holding("a", "shoe", 1, 2)
	key := keyOf("a", "shoe")
	first := noon.Add(-110 * time.Minute)
	in.cartHolds[key][1].FirstHeldAt = first
	requests := []HoldRequest{set("a", "shoe", 4), set("a", "shoe", 5)}
	d := decide(requests, in)
	if len(d.holds) != 2 || len(d.holds[0].Replaces) != 2 || len(d.holds[1].Replaces) != 1 {
		t.Fatalf("holds %+v, want one that replaces 2 and one that replaces 1", d.holds)
	}
	for i, h := range d.holds {
		if !h.FirstHeldAt.Equal(first) || !h.HeldAt.Equal(noon) || !h.ExpiresAt.Equal(noon.Add(10*time.Minute)) {
			t.Errorf("hold %d: first held %s, held %s, expires %s; want %s, %s and 12:10", i, h.FirstHeldAt, h.HeldAt, h.ExpiresAt, first, noon)
		}
	}
	if got := d.holds[1].Replaces[0].ReservationID; got != requests[0].RequestID {
		t.Errorf("the second set replaces %s, want the hold of the first one", got)
	}
	if again := decide(requests, in); !cmp.Equal(d.outcomes, again.outcomes) || len(in.cartHolds[key]) != 2 || in.cartHolds[key][0].Status != reservations.Held {
		t.Error("decide changed its arguments")
	}
}
