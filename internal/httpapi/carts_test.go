package httpapi

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestCart follows one cart from the first request to the checkout, in the
// answers and in the rows.
func TestCart(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.stock("shirt-m", `{"stock":10}`)

	accepted := s.call(202, "POST", "/v1/carts/cart-1/items", `{"variant_id":"shirt-m","quantity":2}`)
	golden(t, "add_item_accepted", accepted)
	id := accepted.text(t, "request_id")
	if accepted.header.Get(correlationHeader) != id {
		t.Error("without a correlation id the request's id should be used")
	}
	golden(t, "get_request_queued", s.call(200, "GET", "/v1/requests/"+id, ""))
	golden(t, "get_cart_queued", s.call(200, "GET", "/v1/carts/cart-1", ""))
	golden(t, "checkout_requests_pending", s.call(409, "POST", "/v1/carts/cart-1/checkout", ""))

	s.decide()
	golden(t, "get_request_done", s.call(200, "GET", "/v1/requests/"+id, ""))
	golden(t, "set_item_accepted", s.call(202, "PATCH", "/v1/carts/cart-1/items/shirt-m", `{"quantity":3}`))
	s.add("cart-1", "shirt-m", 9)
	s.decide()
	golden(t, "get_cart", s.call(200, "GET", "/v1/carts/cart-1", ""))
	golden(t, "get_stock_reserved", s.call(200, "GET", "/v1/stocks/shirt-m", ""))
	golden(t, "extend_cart", s.call(200, "POST", "/v1/carts/cart-1/extend", `{"seconds":60}`))
	golden(t, "extend_cart_lifetime_exceeded", s.call(409, "POST", "/v1/carts/cart-1/extend", `{"seconds":7200}`))

	golden(t, "checkout", s.call(200, "POST", "/v1/carts/cart-1/checkout", ""))
	golden(t, "checkout_cart_empty", s.call(409, "POST", "/v1/carts/cart-1/checkout", ""))
	want := []string{"committed 3 ", "released 2 replaced"}
	got := s.rows(`SELECT concat_ws(' ', status, quantity, coalesce(release_reason, '')) FROM reservations ORDER BY 1`)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("reservations (-want +got):\n%s", diff)
	}
	if left := s.rows(`SELECT concat_ws('/', stock, reserved) FROM inventory_stocks`); left[0] != "7/0" {
		t.Errorf("stock/reserved is %s, want 7/0", left[0])
	}
}

// TestRemove removes an item and a whole cart, held and queued.
func TestRemove(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.stock("shirt", `{"stock":10}`)
	s.stock("shoe", `{"stock":10}`)
	s.add("c", "shirt", 2)
	s.add("c", "shoe", 3)
	s.decide()
	s.add("c", "shirt", 1)

	golden(t, "remove_item", s.call(200, "DELETE", "/v1/carts/c/items/shirt", ""))
	golden(t, "remove_cart", s.call(200, "DELETE", "/v1/carts/c?reason=payment_failed", ""))
	golden(t, "remove_nothing", s.call(200, "DELETE", "/v1/carts/c", ""))
	golden(t, "remove_cart_invalid_reason", s.call(422, "DELETE", "/v1/carts/c?reason=ttl", ""))
	for _, reason := range []string{"replaced", "expired", "x%00"} {
		s.refused(invalid, "DELETE", "/v1/carts/c/items/shirt?reason="+reason, "")
	}
	want := []string{"shirt released cart_removed", "shoe released payment_failed"}
	got := s.rows(`SELECT concat_ws(' ', resource_key, status, release_reason) FROM reservations ORDER BY 1`)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("reservations (-want +got):\n%s", diff)
	}
	if got := s.rows(`SELECT concat_ws(' ', status, reason) FROM reservation_requests WHERE status <> 'done'`); got[0] != "failed cancelled" {
		t.Errorf("the queued request is %v, want failed cancelled", got)
	}
	if got := s.rows(`SELECT concat_ws('/', stock, reserved) FROM inventory_stocks`); got[0] != "10/0" || got[1] != "10/0" {
		t.Errorf("stocks %v, want all free", got)
	}
}

// TestExpiredCart checks that a cart with an expired hold can't be checked out
// or extended.
func TestExpiredCart(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.stock("shirt", `{"stock":1}`)
	s.add("c", "shirt", 1)
	s.decide()
	s.due("c")
	golden(t, "checkout_hold_expired", s.call(409, "POST", "/v1/carts/c/checkout", "{}"))
	s.refused(holdExpired, "POST", "/v1/carts/c/extend", `{"seconds":1}`)
	if n := s.count(`SELECT count(*) FROM audit_log WHERE action LIKE 'reservation.%'`); n != 1 {
		t.Errorf("%d audit rows of the reservation, want only that of the hold", n)
	}
	// Another shopper gets the unit, although no sweep has run.
	other := s.add("other", "shirt", 1)
	s.decide()
	if status := s.call(200, "GET", "/v1/requests/"+other, "").text(t, "status"); status != "done" {
		t.Errorf("a due hold blocked it: %s", status)
	}
	// The expiry is recorded now. No hold is left to extend, and the expiry
	// still prevents the checkout of the cart.
	s.refused(cartEmpty, "POST", "/v1/carts/c/extend", `{"seconds":1}`)
	s.refused(holdExpired, "POST", "/v1/carts/c/checkout", "")
}

// TestDigital checks that a request for a variant that is not tracked is done
// at once.
func TestDigital(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.stock("ebook", `{"tracked":false}`)
	golden(t, "add_item_digital", s.call(200, "POST", "/v1/carts/c/items", `{"variant_id":"ebook","quantity":1}`))
	if n := s.count(`SELECT count(*) FROM reservations`); n != 0 {
		t.Errorf("%d reservations of a digital variant", n)
	}
	if got := s.rows(`SELECT concat_ws('/', stock, reserved) FROM inventory_stocks`); got[0] != "0/0" {
		t.Errorf("stock/reserved %s, want untouched", got[0])
	}
}

// TestUnknownVariant checks that the request is accepted, and fails with its
// reason.
func TestUnknownVariant(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	id := s.add("c", "nothing", 1)
	s.decide()
	golden(t, "get_request_failed", s.call(200, "GET", "/v1/requests/"+id, ""))
	golden(t, "get_cart_failed", s.call(200, "GET", "/v1/carts/c", ""))
}

// TestPreferWait checks that the answer is the finished request if it is
// decided in time, else 202.
func TestPreferWait(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.stock("shirt", `{"stock":5}`)
	golden(t, "add_item_not_in_time", s.call(202, "POST", "/v1/carts/c/items", `{"variant_id":"shirt","quantity":1}`, "Prefer", "wait=1"))
	s.serveLanes()
	golden(t, "add_item_in_time", s.call(200, "POST", "/v1/carts/d/items", `{"variant_id":"shirt","quantity":2}`, "Prefer", `respond-async, wait="3600"`))
	golden(t, "set_item_in_time", s.call(200, "PATCH", "/v1/carts/d/items/shirt", `{"quantity":1}`, "Prefer", "wait=30"))
	for _, unread := range []string{"wait", "wait=x", "wait=-1", "return=minimal", "wait=0"} {
		r := s.call(202, "POST", "/v1/carts/e/items", `{"variant_id":"shirt","quantity":1}`, "Prefer", unread)
		if r.header.Get("Preference-Applied") != "" {
			t.Errorf("Prefer: %s was applied: %s", unread, r.header.Get("Preference-Applied"))
		}
	}
}

// TestHotPosition checks how many requests are ahead of one.
func TestHotPosition(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.stock("hit", `{"stock":5,"lane":"hot"}`)
	s.add("a", "hit", 1)
	s.add("b", "hit", 1)
	third := s.call(202, "POST", "/v1/carts/c/items", `{"variant_id":"hit","quantity":1}`)
	if lane := third.text(t, "lane"); lane != "hot" {
		t.Errorf("the lane is %s, want hot", lane)
	}
	golden(t, "get_request_hot", s.call(200, "GET", third.text(t, "status_url"), ""))
	s.decide()
	if r := s.call(200, "GET", third.text(t, "status_url"), ""); r.object(t)["position"] != nil || r.text(t, "status") != "done" {
		t.Errorf("after the decision: %s", r.body)
	}
}

// TestCorrelation follows the id from the header to the audit rows.
func TestCorrelation(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	r := s.call(200, "PUT", "/v1/stocks/shirt", `{"stock":5}`, correlationHeader, "order-77")
	if got := r.header.Get(correlationHeader); got != "order-77" {
		t.Errorf("the correlation id is returned as %q", got)
	}
	s.call(202, "POST", "/v1/carts/c/items", `{"variant_id":"shirt","quantity":1}`, correlationHeader, "order-78")
	own := s.add("c", "shirt", 1)
	s.decide()
	want := []string{"reservation.held order-78", "reservation.held " + own, "stock.set order-77"}
	got := s.rows(`SELECT action || ' ' || correlation_id FROM audit_log ORDER BY action, audit_id`)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("audit rows (-want +got):\n%s", diff)
	}
	for _, unusable := range []string{strings.Repeat("x", 256), "\xff"} {
		r := s.call(200, "GET", "/livez", "", correlationHeader, unusable)
		if len(r.header.Get(correlationHeader)) != 36 {
			t.Errorf("an invalid correlation id is answered with %q, want a new one", r.header.Get(correlationHeader))
		}
	}
}

// TestCartOfManyPages reads a cart of 1,500 holds: the first page has a cursor
// to the next.
func TestCartOfManyPages(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.stock("shirt", `{"stock":5000}`)
	const many = 1500
	_, err := s.db.Exec(t.Context(), `
		INSERT INTO reservations
			(tenant_id, reservation_id, resource_kind, resource_key, holder_id, quantity, first_held_at, held_at, expires_at)
		SELECT $1, gen_random_uuid(), 'inventory.variant', 'shirt', 'c', 1, now, now, now + interval '1 hour'
		FROM generate_series(1, $2::integer), (SELECT clock_timestamp() AS now) AS clock`, s.tenant.TenantID, many)
	s.must(err)
	type page struct {
		Reservations []struct {
			ReservationID string `json:"reservation_id"`
		}
		NextCursor *string `json:"next_cursor"`
	}
	seen := map[string]bool{}
	for path, pages := "/v1/carts/c", 0; path != ""; pages++ {
		var got page
		s.call(200, "GET", path, "").decode(t, &got)
		if want := []int{1000, 500}; pages == len(want) || len(got.Reservations) != want[pages] {
			t.Fatalf("page %d has %d holds, want %v", pages, len(got.Reservations), want)
		}
		for _, r := range got.Reservations {
			seen[r.ReservationID] = true
		}
		path = ""
		if got.NextCursor != nil {
			path = "/v1/carts/c?cursor=" + *got.NextCursor
		}
	}
	if len(seen) != many {
		t.Errorf("the pages have %d holds, want %d", len(seen), many)
	}
	for query, field := range map[string]string{"limit=0": "limit", "limit=1001": "limit", "cursor=x": "cursor"} {
		if p := s.refused(invalid, "GET", "/v1/carts/c?"+query, ""); len(p.Errors) != 1 || p.Errors[0].Field != field {
			t.Errorf("%s: the fields are %v", query, p.Errors)
		}
	}
}
