package httpapi

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast/holdfast/internal/tenants"
	"github.com/holdfast/holdfast/ratelimit"
)

// The tests of this file are the claims of docs/abuse.md: what one cart key in
// the wrong hands can do, and what bounds it.

// leak makes a key with the scope cart the key of all further calls, and
// returns the shop's own.
func (s *shop) leak() (own string) {
	s.t.Helper()
	own, s.key = s.key, s.newKey(s.tenant, tenants.ScopeCart)
	return own
}

// wantStock compares the stock of a variant and its reserved units.
func (s *shop) wantStock(variant string, stock, reserved int) {
	s.t.Helper()
	got := s.rows(`SELECT concat_ws('/', stock, reserved) FROM inventory_stocks WHERE variant_id = $1`, variant)
	if diff := cmp.Diff([]string{fmt.Sprintf("%d/%d", stock, reserved)}, got); diff != "" {
		s.t.Errorf("%s, stock/reserved (-want +got):\n%s", variant, diff)
	}
}

// take adds four shirts to a cart and decides the request.
func (s *shop) take(cart string, headers ...string) {
	s.t.Helper()
	s.call(202, "POST", "/v1/carts/"+cart+"/items", `{"variant_id":"shirt","quantity":4}`, headers...)
	s.decide()
}

// One key holds all units with made-up carts, whatever max_per_cart is.
func TestAbuseHoldsEverything(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.stock("shirt", `{"stock":20,"max_per_cart":4}`)
	s.leak()
	for i := range 5 {
		s.take(fmt.Sprintf("made-up-%d", i))
	}
	s.wantStock("shirt", 20, 20)
	if reasons := s.rows(`SELECT COALESCE(reason, '') FROM reservation_requests WHERE cart_id = 'made-up-0'`); reasons[0] != "" {
		t.Errorf("a made-up cart is rejected: %s", reasons)
	}
	s.take("buyer")
	if diff := cmp.Diff([]string{"out_of_stock"}, s.rows(`SELECT reason FROM reservation_requests WHERE cart_id = 'buyer'`)); diff != "" {
		t.Error(diff)
	}
}

// max_per_cart bounds what a cart holds at one time. A cart that checks out
// holds nothing, and buys the same again. No payment is asked for.
func TestAbuseBuysAgainAndAgain(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.stock("shirt", `{"stock":12,"max_per_cart":4}`)
	s.leak()
	for bought := 4; bought <= 12; bought += 4 {
		s.take("c")
		s.call(200, "POST", "/v1/carts/c/checkout", "")
		s.wantStock("shirt", 12-bought, 0)
	}
	if n := s.count(`SELECT sum(quantity) FROM reservations WHERE status = 'committed' AND holder_id = 'c'`); n != 12 {
		t.Errorf("the cart bought %d units, want 12", n)
	}
}

// A hold is extended until the lifetime cap and no further, also by a change of
// its quantity. Released and added again, it is a new hold.
func TestAbuseExtendsToTheCap(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.stock("shirt", `{"stock":4,"hold_ttl_seconds":60}`)
	s.leak()
	s.take("c")
	const extend, almostTwoHours = "/v1/carts/c/extend", `{"seconds":7100}`
	s.call(200, "POST", extend, almostTwoHours)
	s.refused(lifetimeExceeded, "POST", extend, almostTwoHours)
	s.call(202, "PATCH", "/v1/carts/c/items/shirt", `{"quantity":3}`)
	s.decide()
	s.refused(lifetimeExceeded, "POST", extend, `{"seconds":7199}`)
	over := `SELECT count(*) FROM reservations WHERE status = 'held' AND expires_at > first_held_at + interval '2 hours'`
	if n := s.count(over); n != 0 {
		t.Error("a hold is longer than its cap")
	}
	s.call(200, "DELETE", "/v1/carts/c", "")
	s.take("c")
	s.call(200, "POST", extend, almostTwoHours)
}

// A checkout keeps the units for its own time, past the cap of the hold. When it
// ends unpaid, the same cart can hold them again.
func TestAbuseParksByCheckouts(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.stock("shirt", `{"stock":4}`)
	own := s.leak()
	s.take("c")
	_, err := s.db.Exec(t.Context(), `UPDATE reservations SET first_held_at = first_held_at - interval '2 hours' + interval '1 second', held_at = first_held_at`)
	s.must(err)
	s.refused(lifetimeExceeded, "POST", "/v1/carts/c/extend", `{"seconds":1800}`)
	url := s.begin("c")
	s.refused(checkoutRunning, "POST", "/v1/carts/c/extend", `{"seconds":1}`)
	past := s.count(`SELECT count(*) FROM reservations WHERE expires_at > first_held_at + interval '2 hours 15 minutes'`)
	if past != 1 {
		t.Error("the checkout does not keep the hold past its cap")
	}
	s.wantStock("shirt", 4, 4)
	s.refused(forbidden, "POST", url+"/payment", `{"result":"failed"}`)
	s.call(200, "POST", url+"/payment", `{"result":"failed"}`, "Authorization", "Bearer "+own)
	s.wantStock("shirt", 4, 0)
	s.take("c")
	s.begin("c")
	s.wantStock("shirt", 4, 4)
}

// The key of one storefront reads and empties each cart of its tenant whose id
// it knows. It reaches no stock, no lane and no other tenant.
func TestAbuseOfOtherCarts(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.stock("shirt", `{"stock":4}`)
	s.take("buyer")
	s.leak()
	if held := s.call(200, "GET", "/v1/carts/buyer", "").object(t)["reservations"].([]any); len(held) != 1 {
		t.Errorf("the cart holds %v", held)
	}
	s.refused(forbidden, "PUT", "/v1/stocks/shirt", `{"stock":100}`)
	s.refused(forbidden, "PATCH", "/v1/lanes/hot", `{"paused":true}`)
	s.call(200, "DELETE", "/v1/carts/buyer", "")
	s.wantStock("shirt", 4, 0)

	_, s.key = s.newTenant("neighbour")
	s.stock("shirt", `{"stock":4}`)
	if held := s.call(200, "GET", "/v1/carts/buyer", "").object(t)["reservations"].([]any); len(held) != 0 {
		t.Errorf("another tenant's cart holds %v", held)
	}
}

// A customer's rate counts the name that the caller sends. A key in the wrong
// hands sends a new one with each call, or none, which makes each cart a
// customer. The shop's server sends the name of the session.
func TestAbuseOfCustomerRates(t *testing.T) {
	t.Parallel()
	s := newMeteredShop(t, unlimited, ratelimit.Rate{Limit: 1, Window: time.Hour})
	s.stock("shirt", `{"stock":100}`)
	s.leak()
	for i := range 5 {
		s.take(fmt.Sprintf("made-up-%d", i))
		s.take("c", customerHeader, fmt.Sprintf("made-up-name-%d", i))
	}
	s.wantStock("shirt", 100, 40)
	s.take("one", customerHeader, "ann")
	s.isProblem(s.want(429, "another", "shirt", customerHeader, "ann"), overBudget)
}

// The tenant's rate bounds the key, and with it each other caller of the tenant.
func TestAbuseOfTheTenantRate(t *testing.T) {
	t.Parallel()
	s := newMeteredShop(t, ratelimit.Rate{Limit: 3, Window: time.Hour}, unlimited)
	s.stock("shirt", `{"stock":100}`)
	own := s.leak()
	for i := range 3 {
		s.take(fmt.Sprintf("made-up-%d", i))
	}
	s.isProblem(s.want(429, "made-up-4", "shirt"), overBudget)
	s.wantStock("shirt", 100, 12)
	s.isProblem(s.want(429, "buyer", "shirt", "Authorization", "Bearer "+own), overBudget)
	_, s.key = s.newTenant("neighbour")
	s.stock("shirt", `{"stock":4}`)
	s.take("buyer")
}

// Tokens and max_per_cart together bound the units: each token admits one add,
// of at most max_per_cart units. With tokens alone one add takes all of them.
func TestAbuseIsBoundedByTokens(t *testing.T) {
	t.Parallel()
	s := newMeteredShop(t, unlimited, unlimited)
	s.stock("shirt", `{"stock":100,"max_per_cart":4,"admission":"token"}`)
	s.stock("shoe", `{"stock":100,"admission":"token"}`)
	ann, bob, cat, dan := s.mint(`{"subject":"ann"}`), s.mint(`{"subject":"bob"}`), s.mint(`{"subject":"cat"}`), s.mint(`{"subject":"dan"}`)
	s.leak()
	s.refused(forbidden, "POST", "/v1/admissions", `{"subject":"eve"}`)
	for i := range 3 { // two tokens, tried with many carts and names
		cart := fmt.Sprintf("made-up-%d", i)
		s.isProblem(s.want(403, cart, "shirt"), admissionRequired)
		s.isProblem(s.want(403, cart, "shirt", admissionHeader, ann, customerHeader, "eve"), admissionRefused)
	}
	s.take("made-up-1", admissionHeader, ann, customerHeader, "ann")
	s.take("made-up-2", admissionHeader, bob, customerHeader, "bob")
	s.isProblem(s.want(403, "made-up-3", "shirt", admissionHeader, ann, customerHeader, "ann"), admissionRefused)
	s.wantStock("shirt", 100, 8)
	s.call(202, "POST", "/v1/carts/made-up-4/items", `{"variant_id":"shirt","quantity":5}`, admissionHeader, cat, customerHeader, "cat")
	s.decide()
	s.wantStock("shirt", 100, 8)
	s.call(202, "POST", "/v1/carts/made-up-5/items", `{"variant_id":"shoe","quantity":100}`, admissionHeader, dan, customerHeader, "dan")
	s.decide()
	s.wantStock("shoe", 100, 100)
}
