package httpapi

import (
	"fmt"
	"strings"
	"sync"
	"testing"
)

// reasonOf adds units to a cart and returns "done" or the reason of the failure.
func (s *shop) reasonOf(cart, variant string, quantity int, headers ...string) string {
	s.t.Helper()
	body := fmt.Sprintf(`{"variant_id":%q,"quantity":%d}`, variant, quantity)
	request := s.call(202, "POST", "/v1/carts/"+cart+"/items", body, headers...).text(s.t, "request_id")
	s.decide()
	return s.ended(request)
}

func (s *shop) ended(request string) string {
	s.t.Helper()
	body := s.call(200, "GET", "/v1/requests/"+request, "").object(s.t)
	if body["reason"] != nil {
		return fmt.Sprint(body["reason"])
	}
	return fmt.Sprint(body["status"])
}

func (s *shop) wantReasons(got []string, want string) {
	s.t.Helper()
	if all := strings.Join(got, " "); all != want {
		s.t.Errorf("the requests are %s, want %s", all, want)
	}
}

func TestSaleWindow(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.stock("shirt", `{"stock":10,"sale_starts_at":"2999-01-01T10:00:00+01:00"}`)
	golden(t, "stock_sale", s.call(200, "PUT", "/v1/stocks/shirt", `{"quantity_min":2,"quantity_step":2,"max_per_customer":4,"customer_period_seconds":3600}`))
	got := []string{s.reasonOf("c", "shirt", 2)}
	s.call(200, "PUT", "/v1/stocks/shirt", `{"sale_starts_at":null,"sale_ends_at":"2998-01-01T00:00:00Z"}`)
	got = append(got, s.reasonOf("c", "shirt", 1), s.reasonOf("c", "shirt", 3), s.reasonOf("c", "shirt", 4), s.reasonOf("c", "shirt", 2))
	s.wantReasons(got, "not_on_sale quantity_not_allowed quantity_not_allowed done limit_exceeded")
	s.call(200, "PUT", "/v1/stocks/shirt", `{"sale_ends_at":"2000-01-01T00:00:00Z"}`)
	patch := func(n int) string {
		request := s.call(202, "PATCH", "/v1/carts/c/items/shirt", fmt.Sprintf(`{"quantity":%d}`, n)).text(t, "request_id")
		s.decide()
		return s.ended(request)
	}
	s.wantReasons([]string{patch(6), patch(2)}, "not_on_sale done")
	s.call(200, "POST", "/v1/carts/c/checkout", "")
}

func TestPreorders(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.stock("shirt", `{"stock":1,"backorder":true,"preorder_max":2}`)
	if n := s.call(200, "GET", "/v1/stocks/shirt", "").object(t)["available"]; fmt.Sprint(n) != "3" {
		t.Errorf("%v are available, want 3", n)
	}
	s.wantReasons([]string{s.reasonOf("a", "shirt", 2), s.reasonOf("b", "shirt", 2), s.reasonOf("b", "shirt", 1)}, "done out_of_stock done")
	s.call(200, "POST", "/v1/carts/a/checkout", "")
	s.wantReasons([]string{s.reasonOf("c", "shirt", 1)}, "out_of_stock")
	s.refused(belowReserved, "PUT", "/v1/stocks/shirt", `{"preorder_max":1}`)
	s.refused(belowReserved, "PUT", "/v1/stocks/shirt", `{"backorder":false}`)
	s.call(200, "PUT", "/v1/stocks/shirt", `{"preorder_max":null}`)
	s.wantReasons([]string{s.reasonOf("c", "shirt", 9)}, "done")
}

// 64 callers of one customer, each with a separate cart, get two units.
func TestMaxPerCustomer(t *testing.T) {
	t.Parallel()
	for _, lane := range []string{"normal", "hot"} {
		t.Run(lane, func(t *testing.T) {
			t.Parallel()
			s := newShop(t)
			s.stock("shirt", fmt.Sprintf(`{"stock":100,"max_per_customer":2,"lane":%q}`, lane))
			var all sync.WaitGroup
			for i := range 64 {
				all.Go(func() {
					s.call(202, "POST", fmt.Sprintf("/v1/carts/c%d/items", i), `{"variant_id":"shirt","quantity":1}`, customerHeader, "ann")
				})
			}
			all.Wait()
			s.decide()
			if n := s.count(`SELECT sum(quantity) FROM reservations WHERE status = 'held' AND customer_id = 'ann'`); n != 2 {
				t.Errorf("the customer holds %d units, want 2", n)
			}
			s.wantReasons([]string{s.reasonOf("ann", "shirt", 1), s.reasonOf("bob", "shirt", 2), s.reasonOf("bob", "shirt", 1), s.reasonOf("c", "shirt", 1, customerHeader, "bob")},
				"limit_exceeded done limit_exceeded limit_exceeded")
			s.call(200, "POST", "/v1/carts/bob/checkout", "")
			s.wantReasons([]string{s.reasonOf("bob", "shirt", 1)}, "limit_exceeded")
		})
	}
}

// TestBadSale sends rules that are each refused with their field.
func TestBadSale(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.stock("sock", `{"stock":5,"sale_starts_at":"2026-01-02T00:00:00Z"}`)
	before := s.written()
	for _, tc := range []struct{ variant, body, field string }{
		{"sock", `{"sale_ends_at":"2026-01-01T00:00:00Z"}`, "sale_ends_at"},
		{"new", `{"stock":1,"sale_starts_at":"2026-01-02T00:00:00Z","sale_ends_at":"2026-01-02T00:00:00Z"}`, "sale_ends_at"},
		{"sock", `{"sale_starts_at":"tomorrow"}`, "sale_starts_at"},
		{"sock", `{"sale_starts_at":17}`, "sale_starts_at"},
		{"sock", `{"sale_ends_at":"9999-12-31T23:59:59-01:00"}`, "sale_ends_at"},
		{"sock", `{"quantity_min":-1}`, "quantity_min"},
		{"sock", `{"quantity_step":1.5}`, "quantity_step"},
		{"sock", `{"max_per_customer":1000001}`, "max_per_customer"},
		{"sock", `{"customer_period_seconds":60}`, "customer_period_seconds"},
		{"sock", `{"preorder_max":5}`, "preorder_max"},
		{"new", `{"stock":1,"preorder_max":5}`, "preorder_max"},
	} {
		p := s.refused(invalid, "PUT", "/v1/stocks/"+tc.variant, tc.body)
		if len(p.Errors) != 1 || p.Errors[0].Field != tc.field {
			t.Errorf("%s: the fields are %v, want %s", tc.body, p.Errors, tc.field)
		}
	}
	if after := s.written(); after != before {
		t.Errorf("bad calls wrote %d rows", after-before)
	}
	if p := s.refused(invalid, "POST", "/v1/carts/c/items", `{"variant_id":"sock","quantity":1}`, customerHeader, strings.Repeat("x", 129)); p.Errors[0].Field != customerHeader {
		t.Errorf("the field is %s", p.Errors[0].Field)
	}
}
