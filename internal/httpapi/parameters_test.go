package httpapi

import (
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/danielgtaylor/huma/v2"
	"github.com/google/go-cmp/cmp"

	"github.com/holdfast/holdfast/ratelimit"
)

// calls runs each with every operation of the document that requires a key, as
// a call that is valid until the test changes it.
func (s *shop) calls(each func(op *huma.Operation, path, body string)) {
	s.t.Helper()
	bodies := map[string]string{
		"put-stock": `{"stock":7}`, "adjust-stock": `{"delta":1}`, "transfer-stock": `{"from":"shirt","to":"shoe","quantity":1}`, "add-item": `{"variant_id":"shirt","quantity":1}`, "set-item": `{"quantity":1}`,
		"extend-cart": `{"seconds":1}`, "extend-reservation": `{"seconds":1}`, "control-lane": `{"paused":true}`, "mint-admission": `{"subject":"customer"}`,
		"import-stocks": "variant_id,stock\nnew,1\n", "begin-checkout": `{"cart_id":"cart","payment_reference":"p"}`, "answer-checkout": `{"result":"paid"}`, "transfer-cart": `{"to":"other"}`, "return-reservation": `{"quantity":1}`, "put-group": `{"max_per_customer":4}`, "put-kit": `{"parts":[{"variant_id":"shirt","quantity":1}]}`,
	}
	request := s.add("cart", "shirt", 1)
	s.cartWith("paying", "shirt", 1)
	_, checkout, _ := strings.Cut(s.begin("paying"), "/v1/checkouts/")
	fill := strings.NewReplacer("{checkout_id}", checkout, "{variant_id}", "shirt", "{kit_id}", "kit", "{group}", "group", "{cart_id}", "cart", "{lane}", "hot", "{request_id}", request, "{reservation_id}", request)
	paths := s.service.api.OpenAPI().Paths
	n := 0
	for _, path := range slices.Sorted(maps.Keys(paths)) {
		item := paths[path]
		for _, op := range []*huma.Operation{item.Get, item.Put, item.Post, item.Patch, item.Delete} {
			if op == nil || len(op.Security) == 0 {
				continue
			}
			n++
			each(op, fill.Replace(path), bodies[op.OperationID])
		}
	}
	if n < 24 {
		s.t.Errorf("%d operations, want all 24 or more", n)
	}
}

// ask makes a call with a query and more header fields, which are sent
// unchanged.
func (s *shop) ask(op *huma.Operation, path, query, body string, more http.Header) reply {
	s.t.Helper()
	r := httptest.NewRequestWithContext(s.t.Context(), op.Method, path, strings.NewReader(body))
	r.URL.RawQuery = query
	r.Header.Set("Authorization", "Bearer "+s.key)
	if op.OperationID == "import-stocks" {
		r.Header.Set("Content-Type", "text/csv")
	}
	for name, values := range more {
		r.Header[name] = append(r.Header[name], values...)
	}
	w := httptest.NewRecorder()
	s.checked(s.service).ServeHTTP(w, r)
	return reply{w.Code, w.Header(), w.Body.Bytes()}
}

// badQueries are queries that are invalid for every call, with the wrong field.
var badQueries = []struct{ query, field string }{
	{"x=%zz", "x"}, {"reason=%zz", "reason"}, {"limit=%", "limit"}, {"wait=%4", "wait"}, {"cursor=%zz&limit=1", "cursor"},
	{"%zz=1", "query"}, {"%", "query"}, {"%ff=1", "query"}, {"a%00=1", "query"}, {"a;b=1", "query"},
	{"reason=abandoned;x", "reason"}, {"limit=1;wait=1", "limit"},
	{"reason=abandoned&reason=operator", "reason"}, {"reason=abandoned&reason=abandoned", "reason"}, {"limit=1&limit=2", "limit"},
	{"wait=1&wait=2", "wait"}, {"cursor=&cursor=", "cursor"}, {"x=1&x=2", "x"}, {"%78=1&x=2", "x"},
	{"reason=%ff", "reason"}, {"reason=%00", "reason"}, {"unknown=1", "unknown"}, {"unknown", "unknown"},
}

// TestBadQueries sends each operation queries that can't be decoded, that
// repeat a parameter, or that have an unknown one.
func TestBadQueries(t *testing.T) {
	t.Parallel()
	s := newMeteredShop(t, ratelimit.Rate{}, ratelimit.Rate{})
	s.stock("shirt", `{"stock":5}`)
	s.calls(func(op *huma.Operation, path, body string) {
		before := s.written()
		for _, bad := range badQueries {
			r := s.ask(op, path, bad.query, body, nil)
			if p := s.isProblem(r, invalid); len(p.Errors) != 1 || p.Errors[0].Field != bad.field {
				t.Errorf("%s?%s: the fields are %v, want %s", op.OperationID, bad.query, p.Errors, bad.field)
			}
		}
		if after := s.written(); after != before {
			t.Errorf("%s: bad queries wrote %d rows", op.OperationID, after-before)
		}
		for _, p := range op.Parameters {
			if p.In == "query" && p.Schema.Type != huma.TypeArray {
				r := s.ask(op, path, p.Name+"=1&"+p.Name+"=2", body, nil)
				if p := s.isProblem(r, invalid); len(p.Errors) != 1 {
					t.Errorf("%s: repeated parameter: %v", op.OperationID, p.Errors)
				}
			}
		}
	})
	golden(t, "invalid_query", s.call(422, "DELETE", "/v1/carts/cart?reason=%zz", ""))
	if held := s.count(`SELECT count(*) FROM reservations WHERE status = 'held' AND holder_id = 'cart'`); held != 1 {
		t.Errorf("%d holds are left of the cart, want 1", held)
	}
}

// TestBadHeaders sends each call header fields that are repeated or can't be
// stored.
func TestBadHeaders(t *testing.T) {
	t.Parallel()
	s := newMeteredShop(t, ratelimit.Rate{}, ratelimit.Rate{})
	s.stock("shirt", `{"stock":5}`)
	s.calls(func(op *huma.Operation, path, body string) {
		before := s.written()
		for _, bad := range [][]string{{strings.Repeat("x", 256)}, {strings.Repeat("ü", 256)}, {"caf\xe9"}, {"a\tb"}, {"a", "b"}, {"a", "a"}} {
			r := s.ask(op, path, "", body, http.Header{correlationHeader: bad})
			if p := s.isProblem(r, invalid); len(p.Errors) != 1 || p.Errors[0].Field != correlationHeader {
				t.Errorf("%s with the correlation ids %.20q: the fields are %v", op.OperationID, bad, p.Errors)
			}
			if got := r.header.Get(correlationHeader); len(got) != 36 {
				t.Errorf("%s with the correlation ids %.20q has the id %q", op.OperationID, bad, got)
			}
		}
		s.isProblem(s.ask(op, path, "", body, http.Header{"Authorization": {"Bearer " + s.key}}), unauthorized)
		if op.RequestBody != nil {
			r := s.ask(op, path, "", body, http.Header{"Content-Type": {"application/json", "text/csv"}})
			s.isProblem(r, unsupportedMedia)
			r = s.ask(op, path, "", body, http.Header{"Content-Encoding": {"identity", "gzip"}})
			s.isProblem(r, unsupportedMedia)
		}
		for _, p := range op.Parameters {
			if p.In == "header" && p.Name == keyHeader {
				for _, bad := range [][]string{{"a", "b"}, {""}, {"caf\xe9"}} {
					r := s.ask(op, path, "", body, http.Header{keyHeader: bad})
					if p := s.isProblem(r, invalid); len(p.Errors) != 1 || p.Errors[0].Field != keyHeader {
						t.Errorf("%s with the keys %q: the fields are %v", op.OperationID, bad, p.Errors)
					}
				}
			}
		}
		if after := s.written(); after != before {
			t.Errorf("%s: bad headers wrote %d rows", op.OperationID, after-before)
		}
	})
	// A call without a key accepts any correlation id, and uses a new one if it
	// is invalid.
	if r := s.call(200, "GET", "/livez", "", correlationHeader, strings.Repeat("x", 256)); len(r.header.Get(correlationHeader)) != 36 {
		t.Errorf("the probe has the id %q", r.header.Get(correlationHeader))
	}
	if r := s.call(200, "GET", "/v1/stocks", "", correlationHeader, strings.Repeat("ü", 255)); r.header.Get(correlationHeader) != strings.Repeat("ü", 255) {
		t.Errorf("the longest correlation id is %q", r.header.Get(correlationHeader))
	}
}

func TestCheckQuery(t *testing.T) {
	t.Parallel()
	type params struct {
		IDs   []string `query:"id,explode"`
		Limit int      `query:"limit"`
		Path  []string `path:"path"`
	}
	lists := queryLists[params]()
	if diff := cmp.Diff([]string{"id"}, lists); diff != "" {
		t.Errorf("lists (-want +got):\n%s", diff)
	}
	for _, good := range []string{"", "&", "limit=1", "id=a&id=b&id=a", "limit=1&id=a", "a%3Bb=%3B", "q=a+b%20c", "q=%C3%BC", "x", "x=", "=", "=&a=1"} {
		if wrong := checkQuery(good, lists); len(wrong) != 0 {
			t.Errorf("%q: %v", good, wrong)
		}
	}
	for bad, want := range map[string]fieldErrors{
		"limit=1&limit=1":  {{"limit", "must be sent once"}},
		"id=%zz&limit=%zz": {{"id", "must be percent-encoded"}, {"limit", "must be percent-encoded"}},
		"%zz&%zz=2":        {{"query", "has a parameter whose name can't be decoded"}},
		"a=1;b=2":          {{"a", "must have its semicolons percent-encoded"}},
		"=&=":              {{"", "must be sent once"}},
	} {
		if diff := cmp.Diff(want, checkQuery(bad, lists)); diff != "" {
			t.Errorf("%q (-want +got):\n%s", bad, diff)
		}
	}
}
