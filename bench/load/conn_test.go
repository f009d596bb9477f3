package load

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

// A connection sends one call after the other, each with its headers, and
// returns the status and the body of each response.
func TestConn(t *testing.T) {
	t.Parallel()
	var got http.Header
	var request string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text := make([]byte, r.ContentLength)
		_, _ = r.Body.Read(text)
		got, request = r.Header, r.Method+" "+r.RequestURI+" "+string(text)
		w.WriteHeader(http.StatusConflict)
		_, _ = w.Write([]byte("no"))
	}))
	t.Cleanup(server.Close)
	conn, err := Target{Address: server.Listener.Addr().String(), Key: "hf_key", Wait: 5}.dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	item := Item{CartID: "c", VariantID: "hat"}
	for _, c := range []struct {
		call         Call
		want, prefer string
	}{
		{Call{Verb: Add, Item: item}, `POST /v1/carts/c/items {"variant_id":"hat","quantity":1}`, "wait=5"},
		{Call{Verb: Set, Item: item, Quantity: 3}, `PATCH /v1/carts/c/items/hat {"quantity":3}`, "wait=5"},
		{Call{Verb: Checkout, Item: item}, `POST /v1/carts/c/checkout `, ""},
		{Call{Verb: Remove, Item: item}, `DELETE /v1/carts/c/items/hat `, ""},
	} {
		answer, err := conn.send(c.call)
		if err != nil || answer.Status != http.StatusConflict || string(answer.Body) != "no" || request != c.want {
			t.Errorf("%+v, %v for %s, want %s", answer, err, request, c.want)
		}
		if got.Get("Authorization") != "Bearer hf_key" || got.Get("Prefer") != c.prefer || got.Get("Content-Type") != "application/json" {
			t.Errorf("%s: %v", c.want, got)
		}
	}
}
