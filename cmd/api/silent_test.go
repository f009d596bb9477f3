package main

import (
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/holdfast/holdfast/cmd/internal/programtest"
	"github.com/holdfast/holdfast/internal/pgtest"
	"github.com/holdfast/holdfast/internal/tenants"
)

// behindWire returns an API that connects to its database through a proxy.
func behindWire(t *testing.T, more ...string) (*programtest.Fixture, *pgtest.Wire, *programtest.Inside, *storefront) {
	t.Helper()
	shop := programtest.NewFixture(t)
	shop.Stock("shirt", 100)
	shop.Stock("ticket", 100)
	shop.Pin("ticket")
	wire := pgtest.NewWire(t, shop.URL)
	api := programtest.Start(t, run, shop.Env(append(more, "DATABASE_URL", wire.URL)...))
	return shop, wire, api, open(t, shop, api)
}

// The answer to the commit of a hot add is swallowed. A caller of the other
// lane does not wait for it. The add is still accepted, once.
func TestSwallowedCommit(t *testing.T) {
	t.Parallel()
	shop, wire, _, front := behindWire(t)
	add := func(cart, variant string) {
		status, body, err := front.call(http.MethodPost, "/v1/carts/"+cart+"/items", `{"variant_id":"`+variant+`","quantity":1}`)
		if err != nil || status != http.StatusAccepted {
			t.Errorf("add of %s: %d %v %v", variant, status, body, err)
		}
	}
	add("warm", "shirt")
	hit := wire.SilenceAfter("swallowed", 1) // the cart's id
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		add("swallowed", "ticket")
	}()
	<-hit
	add("other", "shirt")
	select {
	case <-answered:
		t.Error("the swallowed add was answered before one of the other lane")
	default:
	}
	<-answered
	if n := shop.Int(`SELECT count(*) FROM reservation_requests WHERE cart_id = 'swallowed'`); n != 1 {
		t.Errorf("%d requests, want 1", n)
	}
}

// While the database is silent, every call is answered, with the code
// that its caller needs. Afterwards calls are served as usual.
func TestSilentDatabase(t *testing.T) {
	t.Parallel()
	shop, wire, _, front := behindWire(t)
	other := *front
	other.key = newKey(t, shop)
	if status, body, err := front.call(http.MethodPost, "/v1/carts/c/items", add); status != http.StatusAccepted {
		t.Fatalf("add: %d %v %v", status, body, err)
	}
	wire.Silence()
	var calls sync.WaitGroup
	for _, tc := range []struct {
		front              *storefront
		method, path, body string
	}{
		{front, http.MethodPost, "/v1/carts/c/items", add},
		{front, http.MethodPost, "/v1/carts/d/items", `{"variant_id":"ticket","quantity":1}`},
		{&other, http.MethodPost, "/v1/carts/e/items", add}, // its key is not cached
		{front, http.MethodGet, "/v1/carts/c", ""},
		{front, http.MethodPost, "/v1/carts/c/checkout", ""},
		{front, http.MethodPost, "/v1/stocks/shirt/adjust", `{"delta":1}`},
		{front, http.MethodGet, "/readyz", ""},
	} {
		calls.Go(func() {
			status, body, err := tc.front.call(tc.method, tc.path, tc.body)
			code := body["code"]
			expected := code == "overloaded" || code == "outcome_unknown" || code == "not_ready"
			if err != nil || status != http.StatusServiceUnavailable || !expected {
				t.Errorf("%s %s: %d %v %v", tc.method, tc.path, status, body, err)
			}
		})
	}
	calls.Wait()
	wire.Speak()
	pgtest.Until(t, "adds are accepted again", func() bool {
		status, _, _ := front.call(http.MethodPost, "/v1/carts/f/items", add)
		return status == http.StatusAccepted
	})
}

// A program that is stopped while its database is silent answers the callers
// that wait, and ends in time without an error.
func TestStoppedWhileSilent(t *testing.T) {
	t.Parallel()
	_, wire, api, front := behindWire(t, "STOP_WITHIN", "3s")
	if status, _, err := front.call(http.MethodGet, "/v1/carts/c", ""); status != http.StatusOK {
		t.Fatalf("%d %v", status, err)
	}
	wire.Silence()
	before := wire.Sent()
	var calls sync.WaitGroup
	var arrived atomic.Int64 // the others may never be answered
	ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{Got100Continue: func() { arrived.Add(1) }})
	for _, path := range []string{"/v1/carts/c/items", "/v1/carts/d/items"} {
		calls.Go(func() {
			status, body, err := front.do(ctx, http.MethodPost, path, add, http.Header{"Expect": {"100-continue"}})
			if status != http.StatusServiceUnavailable {
				t.Errorf("add: %d %v %v", status, body, err)
			}
		})
	}
	pgtest.Until(t, "the adds wait for the database", func() bool { return arrived.Load() == 2 && wire.Sent() > before })
	if err := api.Stop(); err != nil {
		t.Errorf("stop: %v", err)
	}
	calls.Wait()
	if log := api.Stderr.String(); strings.Contains(log, `"level":"ERROR"`) {
		t.Errorf("it logged an error:\n%s", log)
	}
}

func newKey(t *testing.T, shop *programtest.Fixture) string {
	t.Helper()
	key, _, err := tenants.CreateKey(t.Context(), shop.DB, shop.Tenant, "other", tenants.AllScopes())
	if err != nil {
		t.Fatal(err)
	}
	return key
}
