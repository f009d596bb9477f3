package httpapi

import (
	"bytes"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestOneKeyFiftyCalls sends one add-to-cart fifty times concurrently. There
// are one row, one hold and fifty equal answers.
func TestOneKeyFiftyCalls(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.stock("shirt", `{"stock":100}`)
	replies := s.atOnce(50, "POST", "/v1/carts/c/items", `{"variant_id":"shirt","quantity":2}`, keyHeader, "k-1")
	for _, r := range replies {
		if r.status != 202 || !bytes.Equal(r.body, replies[0].body) || r.header.Get("Location") != replies[0].header.Get("Location") {
			t.Errorf("answered %d %s, another %s", r.status, r.body, replies[0].body)
		}
	}
	s.decide()
	if n := s.count(`SELECT count(*) FROM reservation_requests`); n != 1 {
		t.Errorf("%d requests, want 1", n)
	}
	if got := s.rows(`SELECT concat_ws(' ', status, quantity) FROM reservations`); len(got) != 1 || got[0] != "held 2" {
		t.Errorf("reservations %v, want one of 2 units", got)
	}

	again := s.call(200, "POST", "/v1/carts/c/items", ` { "quantity" : 2.0 , "variant_id" : "shirt" } `, keyHeader, "k-1")
	golden(t, "add_item_replayed", again)
	if again.header.Get(replayedHeader) != "true" || again.text(t, "request_id") != replies[0].text(t, "request_id") {
		t.Errorf("the replay is %s, headers %v", again.body, again.header)
	}
	if n := s.count(`SELECT reserved FROM inventory_stocks`); n != 2 {
		t.Errorf("%d units reserved, want 2", n)
	}
}

// TestOneKeyManyCheckouts checks that the cart is committed once, and each call
// receives the same answer.
func TestOneKeyManyCheckouts(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.stock("shirt", `{"stock":10}`)
	s.add("c", "shirt", 3)
	s.decide()
	replies := s.atOnce(20, "POST", "/v1/carts/c/checkout", "", keyHeader, "pay-1")
	fresh := 0
	for _, r := range replies {
		if r.status != 200 || !bytes.Equal(r.body, replies[0].body) {
			t.Errorf("answered %d %s, another %s", r.status, r.body, replies[0].body)
		}
		if r.header.Get(replayedHeader) == "" {
			fresh++
		}
	}
	if fresh != 1 {
		t.Errorf("%d answers are not marked as replays, want 1", fresh)
	}
	if got := s.rows(`SELECT concat_ws('/', stock, reserved) FROM inventory_stocks`); got[0] != "7/0" {
		t.Errorf("stock/reserved %s, want 7/0", got[0])
	}
}

// TestKeyReused checks that a key which another call has used is refused, for
// every kind of difference and both ways in which a call is stored.
func TestKeyReused(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.stock("shirt", `{"stock":10}`)
	s.stock("shoe", `{"stock":10}`)
	const items = "/v1/carts/c/items"
	s.call(202, "POST", items, `{"variant_id":"shirt","quantity":1}`, keyHeader, "queued")
	s.call(200, "POST", "/v1/stocks/shirt/adjust", `{"delta":1}`, keyHeader, "at-once")
	s.call(200, "DELETE", "/v1/carts/gone?reason=abandoned", "", keyHeader, "with-query")
	before := s.written()
	for _, call := range []struct{ key, method, path, body string }{
		{"queued", "POST", items, `{"variant_id":"shirt","quantity":2}`},
		{"queued", "POST", items, `{"variant_id":"shoe","quantity":1}`},
		{"queued", "POST", "/v1/carts/d/items", `{"variant_id":"shirt","quantity":1}`},
		{"queued", "PATCH", items + "/shirt", `{"quantity":1}`},
		{"queued", "POST", "/v1/stocks/shirt/adjust", `{"delta":1}`},
		{"queued", "DELETE", "/v1/carts/c", ""},
		{"at-once", "POST", "/v1/stocks/shirt/adjust", `{"delta":2}`},
		{"at-once", "POST", "/v1/stocks/shirt/adjust", `{"delta":1,"reason":"found"}`},
		{"at-once", "POST", "/v1/stocks/shoe/adjust", `{"delta":1}`},
		{"at-once", "POST", items, `{"variant_id":"shirt","quantity":1}`},
		{"at-once", "POST", "/v1/stocks/import", "variant_id,stock\nshirt,1\n"},
		{"queued", "POST", "/v1/stocks/import", "variant_id,stock\nshirt,1\n"},
		{"with-query", "DELETE", "/v1/carts/gone?reason=operator", ""},
		{"with-query", "DELETE", "/v1/carts/gone", ""},
	} {
		contentType := "application/json"
		if strings.HasSuffix(call.path, "import") {
			contentType = "text/csv"
		}
		s.refused(keyReused, call.method, call.path, call.body, keyHeader, call.key, "Content-Type", contentType)
	}
	golden(t, "idempotency_key_reused", s.call(422, "POST", items, `{"variant_id":"shirt","quantity":7}`, keyHeader, "queued"))
	if after := s.written(); after != before {
		t.Errorf("refused calls wrote %d rows", after-before)
	}
	// The same key of another tenant is another key.
	_, s.key = s.newTenant("neighbour")
	s.call(202, "POST", items, `{"variant_id":"shoe","quantity":9}`, keyHeader, "queued")
}

// TestStoredAnswers checks that the stored answer of a call that finished at once
// is replayed, and that a failed call is made again.
func TestStoredAnswers(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.refused(notFound, "POST", "/v1/stocks/shirt/adjust", `{"delta":1}`, keyHeader, "a")
	s.stock("shirt", `{"stock":10}`)
	first := s.call(200, "POST", "/v1/stocks/shirt/adjust", `{"delta":1}`, keyHeader, "a")
	for _, same := range []string{`{"delta":1}`, "{ \"delta\"\n: 1e0 }"} {
		again := s.call(200, "POST", "/v1/stocks/shirt/adjust", same, keyHeader, "a")
		if diff := cmp.Diff(string(first.body), string(again.body)); diff != "" || again.header.Get(replayedHeader) != "true" {
			t.Errorf("the replay differs (-first +again):\n%s", diff)
		}
	}
	s.call(200, "POST", "/v1/stocks/sh%69rt/adjust", `{"delta":1}`, keyHeader, "a") // the same path in another spelling
	if got := s.rows(`SELECT stock::text FROM inventory_stocks`); got[0] != "11" {
		t.Errorf("stock %s, want 11: one effect", got[0])
	}
	for _, wrong := range []string{strings.Repeat("k", 256), "\xff"} {
		p := s.refused(invalid, "POST", "/v1/stocks/shirt/adjust", `{"delta":1}`, keyHeader, wrong)
		if p.Errors[0].Field != keyHeader {
			t.Errorf("the field is %v", p.Errors)
		}
	}
	s.call(200, "POST", "/v1/stocks/shirt/adjust", `{"delta":1}`, keyHeader, strings.Repeat("ä", 255))
}

// TestInvalidKey refuses a key that is empty, and a header that occurs
// twice.
func TestInvalidKey(t *testing.T) {
	t.Parallel()
	for _, h := range []http.Header{{keyHeader: {""}}, {keyHeader: {"a", "b"}}, {keyHeader: {"a\x00"}}} {
		if key, err := idempotencyKey(h); err == nil {
			t.Errorf("%v is the key %q", h, key)
		}
	}
	if key, err := idempotencyKey(http.Header{}); key != "" || err != nil {
		t.Errorf("without a key: %q, %v", key, err)
	}
}

// atOnce makes the same call many times concurrently.
func (s *shop) atOnce(times int, method, path, body string, headers ...string) []reply {
	s.t.Helper()
	replies := make([]reply, times)
	errs := make([]error, times)
	var calls sync.WaitGroup
	begin := make(chan struct{})
	for i := range times {
		calls.Go(func() {
			<-begin
			replies[i], errs[i] = s.try(method, path, strings.NewReader(body), headers...)
		})
	}
	close(begin)
	calls.Wait()
	for i, err := range errs {
		s.must(err)
		if replies[i].status >= 500 {
			s.t.Errorf("answered %d %s", replies[i].status, replies[i].body)
		}
	}
	return replies
}
