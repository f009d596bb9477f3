package httpapi

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast/holdfast/internal/inventory"
	"github.com/holdfast/holdfast/internal/pgtest"
)

const fans = "/v1/stocks/shirt/allotments/fans"

// left is how many units a new request can hold from the allotment, -1 for one
// that has ended.
func (s *shop) left(path string) int {
	s.t.Helper()
	r := s.send("GET", path, nil)
	if r.status == 404 {
		return -1
	}
	return int(r.object(s.t)["available"].(float64))
}

func (s *shop) wantLeft(path string, want int) {
	s.t.Helper()
	if got := s.left(path); got != want {
		s.t.Errorf("%s has %d units left, want %d", path, got, want)
	}
}

// after makes a request, and returns how it ended.
func (s *shop) after(method, path, body string) string {
	s.t.Helper()
	request := s.call(202, method, path, body).text(s.t, "request_id")
	s.decide()
	return s.ended(request)
}

// adds is after for an add to the cart.
func (s *shop) adds(cart, body string) string {
	s.t.Helper()
	return s.after("POST", "/v1/carts/"+cart+"/items", body)
}

func TestAllotment(t *testing.T) {
	t.Parallel()
	for _, lane := range []string{"normal", "hot"} {
		t.Run(lane, func(t *testing.T) {
			t.Parallel()
			s := newShop(t)
			s.stock("shirt", `{"stock":10,"lane":"`+lane+`"}`)
			s.decide()
			s.refused(notFound, "GET", fans, "")
			s.refused(notFound, "DELETE", fans, "")
			put := s.call(200, "PUT", fans, `{"quantity":4,"expires_at":"2998-01-01T00:00:00+01:00"}`)
			items := func(cart string) string { return "/v1/carts/" + cart + "/items" }
			got := []string{
				s.adds("a", `{"variant_id":"shirt","quantity":7}`),
				s.adds("a", `{"variant_id":"shirt","quantity":6}`),
				s.adds("b", `{"variant_id":"shirt","quantity":5,"allotment":"fans"}`),
				s.adds("b", `{"variant_id":"shirt","quantity":3,"allotment":"gone"}`),
				s.adds("b", `{"variant_id":"other","quantity":3,"allotment":"fans"}`),
				s.adds("b", `{"variant_id":"shirt","quantity":3,"allotment":"fans"}`),
			}
			s.wantReasons(got, "out_of_stock done out_of_stock unknown_allotment unknown_variant done")
			s.wantStock("shirt", 10, 10)
			s.wantLeft(fans, 1)

			// Its units are changed apart from those of no allotment.
			got = []string{
				s.after("PATCH", items("b")+"/shirt", `{"quantity":5,"allotment":"fans"}`),
				s.after("PATCH", items("b")+"/shirt", `{"quantity":4,"allotment":"fans"}`),
				s.after("PATCH", items("b")+"/shirt", `{"quantity":1}`),
				s.after("PATCH", items("b")+"/shirt", `{"quantity":2,"allotment":"fans"}`),
				s.after("PATCH", items("a")+"/shirt", `{"quantity":5}`),
				s.after("PATCH", items("b")+"/shirt", `{"quantity":1}`),
			}
			s.wantReasons(got, "out_of_stock done out_of_stock done done done")
			s.wantLeft(fans, 2)
			s.wantStock("shirt", 10, 10)
			if lane == "normal" {
				golden(t, "allotment", put)
				golden(t, "allotment_taken", s.call(200, "GET", fans, ""))
				golden(t, "cart_allotment", s.call(200, "GET", "/v1/carts/b", ""))
				golden(t, "allotments", s.call(200, "GET", "/v1/stocks/shirt/allotments", ""))
			}

			s.refused(belowReserved, "PUT", fans, `{"quantity":1}`)
			s.refused(tooFewFree, "PUT", fans, `{"quantity":5}`)
			s.call(200, "PUT", fans, `{"quantity":3}`)
			s.wantLeft(fans, 1)
			s.wantStock("shirt", 10, 9)
			s.call(200, "DELETE", "/v1/carts/b", "")
			s.wantLeft(fans, 3)
			s.wantStock("shirt", 10, 8)

			// What is sold stays sold.
			s.wantReasons([]string{s.adds("c", `{"variant_id":"shirt","quantity":3,"allotment":"fans"}`)}, "done")
			s.wantLeft(fans, 0)
			s.call(200, "POST", "/v1/carts/c/checkout", "")
			s.wantStock("shirt", 7, 5)
			s.wantLeft(fans, 0)
			golden(t, "delete_allotment", s.call(200, "DELETE", fans, "")) // the same in both lanes
			s.wantLeft(fans, -1)
			s.refused(notFound, "DELETE", fans, "")
			s.refused(belowReserved, "DELETE", "/v1/stocks/shirt", "")
			s.call(200, "DELETE", "/v1/carts/a", "")
			s.call(200, "DELETE", "/v1/stocks/shirt", "")
			s.sound()
		})
	}
}

func TestBadAllotments(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.block("hall", 3)
	s.stock("shirt", `{"stock":10}`)
	s.stock("song", `{"tracked":false}`)
	written := s.written()
	for _, tc := range []struct{ method, path, body, field string }{
		{"PUT", fans, `{}`, "quantity"},
		{"PUT", fans, `{"quantity":0}`, "quantity"},
		{"PUT", fans, `{"quantity":1,"expires_at":"2001-01-01T00:00:00Z"}`, "expires_at"},
		{"PUT", fans, `{"quantity":1,"expires_at":"tomorrow"}`, "expires_at"},
		{"PUT", "/v1/stocks/hall/allotments/fans", `{"quantity":1}`, "variant_id"},
		{"PUT", "/v1/stocks/song/allotments/fans", `{"quantity":1}`, "variant_id"},
		{"PUT", "/v1/stocks/shirt/allotments/%2E%2E", `{"quantity":1}`, "allotment_id"},
		{"POST", "/v1/carts/c/items", `{"variant_id":"shirt","quantity":1,"allotment":""}`, "allotment"},
		{"POST", "/v1/carts/c/items", `{"variant_id":"shirt","quantity":1,"allotment":"fans","wait_for_stock":true}`, "wait_for_stock"},
		{"POST", "/v1/carts/c/items", `{"block":"hall","any_of":1,"allotment":"fans"}`, "allotment"},
		{"POST", "/v1/carts/c/items", `{"kit_id":"set","quantity":1,"allotment":"fans"}`, "allotment"},
		{"POST", "/v1/carts/c/items", `{"lines":[{"one_of":["shirt","song"],"quantity":1,"allotment":"fans"}]}`, "lines[0].allotment"},
		{"POST", "/v1/carts/c/items", `{"lines":[{"kit_id":"set","quantity":1,"allotment":"fans"}]}`, "lines[0].allotment"},
		{"POST", "/v1/carts/c/items", `{"lines":[{"block":"hall","any_of":1,"allotment":"fans"}]}`, "lines[0].allotment"},
		{"POST", "/v1/carts/c/items", `{"lines":[{"variant_id":"shirt","quantity":1,"allotment":"fans"},{"variant_id":"shirt","quantity":1,"allotment":"fans"}]}`, "lines[1].variant_id"},
	} {
		p := s.refused(invalid, tc.method, tc.path, tc.body)
		if len(p.Errors) != 1 || p.Errors[0].Field != tc.field {
			t.Errorf("%s %s %s: the problem names %+v, want %s", tc.method, tc.path, tc.body, p.Errors, tc.field)
		}
	}
	s.refused(notFound, "PUT", "/v1/stocks/gone/allotments/fans", `{"quantity":1}`)
	s.refused(tooFewFree, "PUT", fans, `{"quantity":11}`)
	if n := s.written() - written; n != 0 {
		t.Errorf("%d rows were written", n)
	}
}

// What is left of an allotment is for sale from its end on, swept or not. A hold
// outlives it, and is released to all.
func TestAllotmentEnds(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.stock("shirt", `{"stock":10}`)
	s.call(200, "PUT", fans, `{"quantity":10}`)
	got := []string{
		s.adds("fan", `{"variant_id":"shirt","quantity":4,"allotment":"fans"}`),
		s.adds("other", `{"variant_id":"shirt","quantity":1}`),
	}
	s.call(200, "PUT", fans, fmt.Sprintf(`{"quantity":10,"expires_at":%q}`, time.Now().Add(4*time.Second).UTC().Format(time.RFC3339Nano)))
	pgtest.Until(t, "the allotment has ended", func() bool { return s.left(fans) < 0 })
	if a := s.call(200, "GET", "/v1/stocks/shirt", "").object(t)["available"]; a != 6.0 {
		t.Errorf("%v units are available after the end, want 6", a)
	}
	got = append(got,
		s.adds("fan", `{"variant_id":"shirt","quantity":1,"allotment":"fans"}`),
		s.after("PATCH", "/v1/carts/fan/items/shirt", `{"quantity":2,"allotment":"fans"}`),
		s.adds("other", `{"variant_id":"shirt","quantity":7}`),
		s.adds("other", `{"variant_id":"shirt","quantity":6}`),
	)
	s.wantReasons(got, "done out_of_stock unknown_allotment unknown_allotment out_of_stock done")
	s.call(200, "DELETE", "/v1/carts/fan", "")
	s.wantStock("shirt", 10, 6)
	s.call(200, "PUT", fans, `{"quantity":4}`)
	s.wantReasons([]string{s.adds("other", `{"variant_id":"shirt","quantity":1}`)}, "out_of_stock")
	s.sound()
}

// A hold of an earlier allotment does not return to a later one of its name.
func TestAllotmentAgain(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.stock("shirt", `{"stock":10}`)
	s.call(200, "PUT", fans, `{"quantity":3}`)
	s.wantReasons([]string{s.adds("fan", `{"variant_id":"shirt","quantity":3,"allotment":"fans"}`)}, "done")
	s.call(200, "DELETE", fans, "")
	s.call(200, "PUT", fans, `{"quantity":2}`)
	s.call(200, "DELETE", "/v1/carts/fan", "")
	s.wantLeft(fans, 2)
	s.wantStock("shirt", 10, 2)
	s.sound()
}

// A due hold of an allotment is free to the requests that name it, and to no other
// one, swept or not.
func TestAllotmentDue(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.stock("shirt", `{"stock":5}`)
	s.call(200, "PUT", fans, `{"quantity":5}`)
	got := []string{s.adds("a", `{"variant_id":"shirt","quantity":3,"allotment":"fans"}`), s.adds("b", `{"variant_id":"shirt","quantity":2,"allotment":"fans"}`)}
	s.due("a")
	pgtest.LowerMarks(t, s.db)
	s.wantLeft(fans, 3)
	if a := s.call(200, "GET", "/v1/stocks/shirt", "").object(t)["available"]; a != 0.0 {
		t.Errorf("%v units are available to all, want 0", a)
	}
	got = append(got, s.adds("c", `{"variant_id":"shirt","quantity":1}`), s.adds("c", `{"variant_id":"shirt","quantity":2,"allotment":"fans"}`))
	s.wantReasons(got, "done done out_of_stock done")
	s.wantLeft(fans, 1)
	s.due("b")
	pgtest.LowerMarks(t, s.db)
	if _, err := inventory.ExpireDue(t.Context(), s.db, 100); err != nil {
		t.Error(err)
	}
	s.wantLeft(fans, 3)
	s.wantStock("shirt", 5, 5)

	// A hold that another transaction has locked may be extended yet.
	s.due("c")
	pgtest.LowerMarks(t, s.db)
	tx, err := s.db.Begin(t.Context())
	s.must(err)
	_, err = tx.Exec(t.Context(), `SELECT FROM reservations WHERE holder_id = 'c' FOR UPDATE`)
	s.must(err)
	wanted := s.wish("d", `{"variant_id":"shirt","quantity":5,"allotment":"fans"}`)
	s.decide()
	if got := s.ended(wanted); got != "queued" {
		t.Errorf("beside a locked hold the request is %s, want queued", got)
	}
	s.must(tx.Rollback(t.Context()))
	s.decide()
	s.wantReasons([]string{s.ended(wanted)}, "done")
	s.wantStock("shirt", 5, 5)
}

// Lines take from allotments, all or none, where a variant of them is hot too.
func TestAllotmentLines(t *testing.T) {
	t.Parallel()
	for _, lane := range []string{"normal", "hot"} {
		t.Run(lane, func(t *testing.T) {
			t.Parallel()
			s := newShop(t)
			s.stock("shirt", `{"stock":10,"lane":"`+lane+`"}`)
			s.stock("cap", `{"stock":1}`)
			s.call(200, "PUT", fans, `{"quantity":4}`)
			s.decide()
			ask := func(cart, body string) string {
				request := s.wish(cart, body)
				for range 4 {
					s.decide()
				}
				return s.ended(request)
			}
			const both = `{"lines":[{"variant_id":"shirt","quantity":3,"allotment":"fans"},{"variant_id":"shirt","quantity":2},{"variant_id":"cap","quantity":1}]}`
			got := []string{ask("a", both), ask("b", both), ask("b", `{"partial":true,"lines":[{"variant_id":"shirt","quantity":1,"allotment":"fans"},{"variant_id":"cap","quantity":1}]}`)}
			s.wantReasons(got, "done out_of_stock done")
			s.wantLeft(fans, 0)
			s.wantStock("shirt", 10, 6)
			s.call(200, "DELETE", "/v1/carts/a", "")
			s.wantLeft(fans, 3)
			s.sound()
		})
	}
}

// Callers of an allotment and others take all there is, and no unit more.
func TestAllotmentStorm(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.stock("shirt", `{"stock":60}`)
	s.call(200, "PUT", fans, `{"quantity":20}`)
	s.serveLanes()
	var calling sync.WaitGroup
	for i := range 32 {
		calling.Go(func() {
			body, cart := `{"variant_id":"shirt","quantity":1}`, fmt.Sprint("cart-", i)
			if i%2 == 0 {
				body = `{"variant_id":"shirt","quantity":1,"allotment":"fans"}`
			}
			for j := range 6 {
				r, err := s.try("POST", "/v1/carts/"+cart+"/items", strings.NewReader(body), "Prefer", "wait=20")
				if err != nil || r.status != 200 {
					t.Errorf("add: %d %v %s", r.status, err, r.body)
				}
				if j == 2 {
					if r, err := s.try("DELETE", "/v1/carts/"+cart, nil); err != nil || r.status != 200 {
						t.Errorf("remove: %d %v %s", r.status, err, r.body)
					}
				}
			}
		})
	}
	calling.Wait()
	got := s.rows(`SELECT coalesce(allotment_id, 'all') || ' ' || sum(quantity) FROM reservations WHERE status = 'held' AND holder_id <> '/' GROUP BY allotment_id ORDER BY 1`)
	left := s.left(fans)
	s.wantReasons(got, fmt.Sprintf("all 40 fans %d", 20-left))
	s.wantStock("shirt", 60, 60)
	s.sound()
}

func TestPurgeAllotments(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.stock("shirt", `{"stock":6}`)
	s.call(200, "PUT", fans, `{"quantity":5}`)
	s.call(200, "PUT", "/v1/stocks/shirt/allotments/club", `{"quantity":1}`)
	s.wantReasons([]string{s.adds("a", `{"variant_id":"shirt","quantity":5,"allotment":"fans"}`)}, "done")
	s.call(200, "POST", "/v1/carts/a/checkout", "")
	s.call(200, "DELETE", fans, "")
	if n, err := inventory.PurgeAllotments(t.Context(), s.db, 0, 100); err != nil || n != 1 {
		t.Errorf("purged %d allotments (%v), want 1", n, err)
	}
	s.wantReasons(s.rows(`SELECT allotment_id FROM allotments`), "club")
	s.wantReasons(s.rows(`SELECT allotment_id FROM reservations WHERE holder_id = '/'`), "club")
}

// A checkout takes units of an allotment, a part of a kit and others together. If
// it is not paid, each returns to where it came from.
func TestAllotmentInCheckout(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.stock("shirt", `{"stock":6}`)
	s.call(200, "PUT", "/v1/kits/set", `{"parts":[{"variant_id":"shirt","quantity":2}]}`)
	s.call(200, "PUT", fans, `{"quantity":3}`)
	fill := func(cart string) {
		t.Helper()
		got := []string{
			s.adds(cart, `{"variant_id":"shirt","quantity":2,"allotment":"fans"}`),
			s.adds(cart, `{"kit_id":"set","quantity":1}`),
			s.adds(cart, `{"variant_id":"shirt","quantity":1}`),
		}
		s.wantReasons(got, "done done done")
	}
	fill("a")
	url := s.begin("a")
	s.wantLeft(fans, 1)
	s.call(200, "POST", url+"/payment", `{"result":"failed"}`)
	s.wantLeft(fans, 3)
	s.wantStock("shirt", 6, 3)
	fill("b")
	url = s.begin("b")
	s.call(200, "DELETE", fans, "") // what the checkout holds is not affected
	s.call(200, "POST", url+"/payment", `{"result":"paid"}`)
	s.wantStock("shirt", 1, 0)
	s.sound()
}

// What is left of an allotment is found at its end, also if nothing was left of it
// when the last other hold ended.
func TestAllotmentIsFoundAtItsEnd(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"removed", "lowered"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			s := newShop(t)
			s.stock("shirt", `{"stock":3,"hold_ttl_seconds":7200}`)
			s.call(200, "PUT", fans, fmt.Sprintf(`{"quantity":2,"expires_at":%q}`, time.Now().Add(time.Hour).UTC().Format(time.RFC3339)))
			s.wantReasons([]string{s.adds("fan", `{"variant_id":"shirt","quantity":2,"allotment":"fans"}`)}, "done")
			if how == "lowered" {
				_, err := s.db.Exec(t.Context(), `UPDATE inventory_stocks SET due_from = 'infinity'`) // as the end of a last hold leaves it
				s.must(err)
				s.wantReasons([]string{s.after("PATCH", "/v1/carts/fan/items/shirt", `{"quantity":1,"allotment":"fans"}`)}, "done")
			} else {
				s.call(200, "DELETE", "/v1/carts/fan", "")
			}
			if n := s.count(`SELECT count(*) FROM reservations r JOIN inventory_stocks s ON s.variant_id = r.resource_key
				WHERE r.status = 'held' AND r.quantity > 0 AND r.expires_at < s.due_from`); n != 0 {
				t.Errorf("%d reservations would not be found when they are due", n)
			}
			s.sound()
		})
	}
}
