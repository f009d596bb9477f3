package httpapi

import (
	"strings"
	"testing"
)

func TestKits(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.block("hall", 3)
	s.stock("tent", `{"stock":5}`)
	s.stock("peg", `{"stock":9}`)
	s.stock("map", `{"tracked":false}`)
	const camp = "/v1/kits/camp"
	s.refused(notFound, "GET", camp, "")
	s.refused(notFound, "DELETE", camp, "")
	for _, tc := range []struct{ body, fields string }{
		{`{}`, "parts"},
		{`{"parts":[]}`, "parts"},
		{`{"parts":{}}`, "parts"},
		{`{"parts":[` + strings.TrimSuffix(strings.Repeat(`{"variant_id":"a","quantity":1},`, 21), ",") + `]}`, "parts"},
		{`{"parts":[3]}`, "parts[0].body"},
		{`{"parts":[{"variant_id":"tent","quantity":0}]}`, "parts[0].quantity"},
		{`{"parts":[{"quantity":1}]}`, "parts[0].variant_id"},
		{`{"parts":[{"variant_id":"tent","quantity":1},{"variant_id":"tent","quantity":1}]}`, "parts[1].variant_id"},
		{`{"parts":[{"variant_id":"tent","quantity":1},{"variant_id":"gone","quantity":1}]}`, "parts[1].variant_id"},
		{`{"parts":[{"variant_id":"hall","quantity":1}]}`, "parts[0].variant_id"},
	} {
		p := s.refused(invalid, "PUT", camp, tc.body)
		var fields []string
		for _, e := range p.Errors {
			fields = append(fields, e.Field)
		}
		if got := strings.Join(fields, " "); got != tc.fields {
			t.Errorf("%s: the fields are %q, want %q", tc.body, got, tc.fields)
		}
	}
	const parts = `{"parts":[{"variant_id":"tent","quantity":1},{"variant_id":"peg","quantity":4},{"variant_id":"map","quantity":1}]}`
	golden(t, "kit", s.call(200, "PUT", camp, parts))
	s.refused(invalid, "PUT", "/v1/kits/kits", `{"parts":[{"variant_id":"camp","quantity":1}]}`)
	s.call(200, "PUT", camp, parts)
	s.call(200, "PUT", "/v1/kits/maps", `{"parts":[{"variant_id":"map","quantity":1}]}`)
	if n := s.count(`SELECT count(*) FROM audit_log WHERE action = 'kit.set'`); n != 2 {
		t.Errorf("%d rows record the kits, want 2", n)
	}
	first := s.call(200, "GET", "/v1/kits?limit=1", "")
	golden(t, "list_kits", first)
	page := first.object(t)
	if items := page["items"].([]any); len(items) != 1 || page["next_cursor"] == nil {
		t.Errorf("the first page is %v", page)
	}
	if last := s.call(200, "GET", "/v1/kits?cursor="+page["next_cursor"].(string), "").object(t); last["items"].([]any)[0].(map[string]any)["available"] != nil {
		t.Errorf("the last page is %v, want a kit without a limit", last)
	}

}

// camp makes a kit of a tent and four pegs, with a map.
func (s *shop) camp() (path string) {
	s.t.Helper()
	s.stock("tent", `{"stock":5}`)
	s.stock("peg", `{"stock":9}`)
	s.stock("map", `{"tracked":false}`)
	s.call(200, "PUT", "/v1/kits/camp", `{"parts":[{"variant_id":"tent","quantity":1},{"variant_id":"peg","quantity":4},{"variant_id":"map","quantity":1}]}`)
	s.call(200, "PUT", "/v1/kits/maps", `{"parts":[{"variant_id":"map","quantity":1}]}`)
	return "/v1/kits/camp"
}

// TestKitInCart adds kits to a cart, and removes them.
func TestKitInCart(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	camp := s.camp()
	s.refused(invalid, "POST", "/v1/carts/c/items", `{"kit_id":"camp"}`)
	s.refused(invalid, "POST", "/v1/carts/c/items", `{"kit_id":"camp","variant_id":"tent","quantity":1}`)
	if p := s.refused(invalid, "POST", "/v1/carts/c/items", `{"kit_id":"camp","quantity":1000000}`); p.Errors[0].Field != "quantity" {
		t.Errorf("too many units: %+v", p.Errors)
	}
	s.refused(invalid, "POST", "/v1/carts/c/items", `{"lines":[{"kit_id":"camp","quantity":1},{"kit_id":"camp","quantity":1}]}`)
	request := s.wish("c", `{"kit_id":"camp","quantity":2}`)
	s.decide()
	golden(t, "request_kit", s.call(200, "GET", "/v1/requests/"+request, ""))
	if left := s.call(200, "GET", camp, "").object(t)["available"]; left != 0.0 {
		t.Errorf("%v kits are available, want 0", left)
	}
	s.refused(partOfKit, "DELETE", "/v1/carts/c/items/peg", "")
	if n := s.count(`SELECT count(*) FROM reservations WHERE status = 'held'`); n != 2 {
		t.Errorf("%d holds after a refused removal, want 2", n)
	}
	changed := s.call(202, "PATCH", "/v1/carts/c/items/peg", `{"quantity":1}`).text(t, "request_id")
	s.decide()
	if reason := s.call(200, "GET", "/v1/requests/"+changed, "").text(t, "reason"); reason != "part_of_kit" {
		t.Errorf("the change of a part failed with %q", reason)
	}
	var held string
	s.must(s.db.QueryRow(t.Context(), `SELECT reservation_id::text FROM reservations WHERE resource_key = 'peg'`).Scan(&held))
	s.refused(partOfKit, "POST", "/v1/reservations/"+held+"/release", `{"reason":"operator"}`)

	golden(t, "delete_kit", s.call(200, "DELETE", camp, ""))
	unknown, queued := s.wish("c", `{"kit_id":"camp","quantity":1}`), s.wish("c", `{"kit_id":"maps","quantity":1}`)
	answer := s.call(200, "DELETE", "/v1/carts/c/kits/camp", "")
	golden(t, "remove_kit", answer)
	removed := answer.object(t)
	if removed["released"] != 10.0 || len(removed["cancelled"].([]any)) != 1 {
		t.Errorf("removed %v, want 10 units and one request", removed)
	}
	again := s.wish("c", `{"kit_id":"camp","quantity":1}`)
	s.decide()
	for id, want := range map[string]string{unknown: "failed 0/1", queued: "done 0/1", again: "failed 0/1unknown_kit"} {
		if got := s.lines(id); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	s.call(200, "DELETE", "/v1/carts/c/items/peg", "")
	if n := s.count(`SELECT sum(reserved) FROM inventory_stocks`); n != 0 {
		t.Errorf("%d units are reserved, want 0", n)
	}
}

// A repetition of a call gets the first request, also if the kit has changed.
func TestKitIdempotent(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.stock("tent", `{"stock":5}`)
	s.call(200, "PUT", "/v1/kits/camp", `{"parts":[{"variant_id":"tent","quantity":1}]}`)
	const body = `{"kit_id":"camp","quantity":1}`
	first := s.call(202, "POST", "/v1/carts/c/items", body, "Idempotency-Key", "k").text(t, "request_id")
	s.call(200, "PUT", "/v1/kits/camp", `{"parts":[{"variant_id":"tent","quantity":2}]}`)
	s.decide()
	if again := s.call(200, "POST", "/v1/carts/c/items", body, "Idempotency-Key", "k").text(t, "request_id"); again != first {
		t.Errorf("the repetition is %s, want %s", again, first)
	}
	if n := s.count(`SELECT reserved FROM inventory_stocks`); n != 1 {
		t.Errorf("%d units are reserved, want 1", n)
	}
	s.call(200, "POST", "/v1/carts/c/checkout", "")
}
