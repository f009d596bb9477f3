package httpapi

import (
	"bytes"
	"fmt"
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

// TestFingerprint checks that fingerprints differ by the content of calls, not
// by their spelling.
func TestFingerprint(t *testing.T) {
	t.Parallel()
	of := func(method, target, body string) string {
		r, err := http.NewRequestWithContext(t.Context(), method, target, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		req := newRequest(nopWriter{}, r)
		req.body = []byte(body)
		return fmt.Sprintf("%x", req.fingerprint())
	}
	one := of("POST", "/v1/a/b%2Fc?x=1&y=2", "{}")
	if of("POST", "/v1/a/b%2fc?y=2&x=1", "{}") != one || of("POST", "/v1/%61/b%2Fc?x=%31&y=2", "{}") != one {
		t.Error("the same request written differently has another fingerprint")
	}
	for _, other := range []string{
		of("PATCH", "/v1/a/b%2Fc?x=1&y=2", "{}"), of("POST", "/v1/a/b/c?x=1&y=2", "{}"), of("POST", "/v1/a%2Fb/c?x=1&y=2", "{}"), of("POST", "/v1/a/b%2Fc?x=1", "{}"),
		of("POST", "/v1/a/b%2Fc?x=1&y=2", ""), of("POST", "/v1/a/b%2FC?x=1&y=2", "{}"),
	} {
		if other == one {
			t.Error("another request has the same fingerprint")
		}
	}
}

// TestFingerprintIsStored checks the bytes of fingerprints that databases
// contain: a repetition after an upgrade must match its first request.
func TestFingerprintIsStored(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ method, target, body, want string }{
		{"POST", "/v1/stocks/shirt/adjust", `{"delta":1}`, "c438ba1b153a924a137e545d951072c25c61ed6afc3a6e8ae467b1446d5980ef"},
		{"POST", "/v1/stocks/rolls%2Fbuns/adjust", `{"delta":1}`, "ed5481b7012fbc960d1549b3a5158c97c3eaeb924ae56e7e044628c3463bbbbf"},
		{"PATCH", "/v1/carts/%C3%A9t%C3%A9/items/a%20b", `{"quantity":2}`, "ab2051dd009e336891ee8b0377a71584d84b15b74cabea1d263792c7d1cf5373"},
		{"DELETE", "/v1/carts/a+b?reason=abandoned", "", "f4519b5b75051a2b1ad99421ee4a4e915b1ccce0b45a6f7f833de2866999a33e"},
		{"POST", "/v1/carts/x~y/checkout", "{}", "0e00a158f6a167cb91d3399c901812e7fec5b6937a60a1630e628308e3684163"},
	} {
		r, err := http.NewRequestWithContext(t.Context(), tc.method, tc.target, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		req := newRequest(nopWriter{}, r)
		req.body = []byte(tc.body)
		if got := fmt.Sprintf("%x", req.fingerprint()); got != tc.want {
			t.Errorf("%s %s: the fingerprint is %s, want %s", tc.method, tc.target, got, tc.want)
		}
	}
}

type nopWriter struct{}

func (nopWriter) Header() http.Header         { return http.Header{} }
func (nopWriter) Write(p []byte) (int, error) { return len(p), nil }
func (nopWriter) WriteHeader(int)             {}
