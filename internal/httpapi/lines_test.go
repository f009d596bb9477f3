package httpapi

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/holdfast/holdfast/ratelimit"
)

// lines returns what a request holds for each of its lines.
func (s *shop) lines(request string) (told string) {
	s.t.Helper()
	var body requestJSON
	s.call(200, "GET", "/v1/requests/"+request, "").decode(s.t, &body)
	told = string(body.Status)
	for _, l := range body.Lines {
		told += fmt.Sprintf(" %d/%d%s", l.Held, l.Quantity, l.Reason)
		held := int64(0)
		for _, r := range l.Reservations {
			held += r.Quantity
		}
		if l.KitID == "" && held != l.Held { // of kits, it is whole ones
			s.t.Errorf("line %+v: its reservations have %d units", l, held)
		}
	}
	return told
}

func TestLines(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.block("hall", 3)
	s.stock("shirt", `{"stock":5}`)
	s.stock("shirt@paris", `{"stock":4}`)
	s.stock("card", `{"tracked":false}`)
	for _, tc := range []struct{ body, want string }{
		{`{"lines":[{"variant_id":"shirt","quantity":2},{"block":"hall","unit_ids":["s2"]},{"variant_id":"card","quantity":4}]}`, "done 2/2 1/1 0/4"},
		{`{"lines":[{"variant_id":"shirt","quantity":1},{"block":"hall","any_of":3}]}`, "failed 0/1 0/3out_of_stock"},
		{`{"lines":[{"block":"hall","any_of":2,"contiguous":true}]}`, "failed 0/2out_of_stock"},
		{`{"lines":[{"one_of":["shirt","shirt@paris"],"quantity":5,"split":true}]}`, "done 5/5"},
		{`{"partial":true,"lines":[{"variant_id":"shirt","quantity":1},{"block":"hall","any_of":2}]}`, "done 0/1out_of_stock 2/2"},
	} {
		request := s.wish("c", tc.body)
		s.decide()
		if got := s.lines(request); got != tc.want {
			t.Errorf("%s: %s, want %s", tc.body, got, tc.want)
		}
	}
	golden(t, "request_lines", s.call(200, "GET", "/v1/requests/"+s.wishDecided(`{"partial":true,"lines":[{"variant_id":"shirt@paris","quantity":1},{"variant_id":"gone","quantity":1}]}`), ""))
	if n := s.count(`SELECT count(*) FROM reservations WHERE status = 'held'`); n != 6 {
		t.Errorf("%d holds, want 6", n)
	}
	cart := s.call(200, "GET", "/v1/carts/c", "").object(t)
	if failed := cart["failed"].([]any); len(failed) != 2 {
		t.Errorf("the cart has %d failed requests, want 2 without their lines: %v", len(failed), failed)
	}
	s.call(200, "POST", "/v1/carts/c/checkout", "")
}

// wishDecided adds lines to a cart, and returns the id of the decided request.
func (s *shop) wishDecided(body string) string {
	s.t.Helper()
	request := s.wish("d", body)
	s.decide()
	return request
}

// TestBadLines sends lines of which each is refused with its field, and nothing
// is written.
func TestBadLines(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.block("hall", 3)
	s.stock("shirt", `{"stock":5}`)
	const line = `{"variant_id":"shirt","quantity":1}`
	before := s.written()
	for _, tc := range []struct{ body, fields string }{
		{`{"lines":[]}`, "lines"},
		{`{"lines":{}}`, "lines"},
		{`{"lines":[` + strings.TrimSuffix(strings.Repeat(`{"variant_id":"a","quantity":1},`, 51), ",") + `]}`, "lines"},
		{`{"partial":true}`, "lines"},
		{`{"lines":[` + line + `],"variant_id":"shirt"}`, "variant_id"},
		{`{"lines":[` + line + `],"block":"hall"}`, "block"},
		{`{"lines":[3]}`, "lines[0].body"},
		{`{"lines":[{}]}`, "lines[0].variant_id lines[0].quantity"},
		{`{"lines":[` + line + `,` + line + `]}`, "lines[1].variant_id"},
		{`{"lines":[{"variant_id":"shirt","quantity":0}]}`, "lines[0].quantity"},
		{`{"lines":[{"variant_id":"/","quantity":1}]}`, "lines[0].variant_id"},
		{`{"lines":[{"one_of":[],"quantity":1}]}`, "lines[0].one_of"},
		{`{"lines":[{"one_of":["a","a"],"quantity":1}]}`, "lines[0].one_of[1]"},
		{`{"lines":[{"one_of":["a"],"variant_id":"b","quantity":1}]}`, "lines[0].one_of"},
		{`{"lines":[{"variant_id":"b","quantity":1,"split":true}]}`, "lines[0].split"},
		{`{"lines":[{"block":"hall","unit_ids":["s9"]}]}`, "lines[0].unit_ids[0]"},
		{`{"lines":[{"block":"hall","unit_ids":["s1"],"any_of":1}]}`, "lines[0].any_of"},
		{`{"lines":[{"block":"hall","any_of":1,"quantity":1}]}`, "lines[0].quantity"},
		{`{"lines":[{"variant_id":"shirt","quantity":1,"colour":"red"}]}`, "lines[0].colour"},
	} {
		p := s.refused(invalid, "POST", "/v1/carts/c/items", tc.body)
		var fields []string
		for _, e := range p.Errors {
			fields = append(fields, e.Field)
		}
		if got := strings.Join(fields, " "); got != tc.fields {
			t.Errorf("%s: the fields are %q, want %q", tc.body, got, tc.fields)
		}
	}
	if after := s.written(); after != before {
		t.Errorf("bad calls wrote %d rows", after-before)
	}
}

// TestLinesIdempotent repeats a request of several lines.
func TestLinesIdempotent(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.stock("shirt", `{"stock":5}`)
	const body = `{"lines":[{"variant_id":"shirt","quantity":2}]}`
	first := s.call(202, "POST", "/v1/carts/c/items", body, "Idempotency-Key", "k").text(t, "request_id")
	s.decide()
	if again := s.call(200, "POST", "/v1/carts/c/items", body, "Idempotency-Key", "k").text(t, "request_id"); again != first {
		t.Errorf("the repetition is %s, want %s", again, first)
	}
	s.refused(keyReused, "POST", "/v1/carts/c/items", `{"lines":[{"variant_id":"shirt","quantity":3}]}`, "Idempotency-Key", "k")
	if got := s.lines(first); got != "done 2/2" {
		t.Error(got)
	}
}

// TestLinesNeedToken adds a variant that requires a token among others.
func TestLinesNeedToken(t *testing.T) {
	t.Parallel()
	s := newMeteredShop(t, unlimited, ratelimit.Rate{Limit: 100, Window: time.Hour})
	s.stock("shirt", `{"stock":10,"admission":"token"}`)
	s.stock("sock", `{"stock":10}`)
	body := `{"lines":[{"variant_id":"sock","quantity":1},{"one_of":["hat","shirt"],"quantity":1}]}`
	s.refused(admissionRequired, "POST", "/v1/carts/ann/items", body)
	shirts := s.mint(`{"subject":"ann","variant_id":"shirt"}`)
	s.refused(admissionRefused, "POST", "/v1/carts/ann/items", body, admissionHeader, shirts)
	s.call(202, "POST", "/v1/carts/ann/items", body, admissionHeader, s.mint(`{"subject":"ann"}`))
	s.call(202, "POST", "/v1/carts/ann/items", `{"lines":[{"variant_id":"sock","quantity":1}]}`)
}
