package main

import (
	"net/http"
	"strings"
	"testing"

	"github.com/holdfast/holdfast/cmd/internal/programtest"
)

// The all-in-one serves the storefront. The key that each visitor reads there
// is good for carts only.
func TestStorefront(t *testing.T) {
	t.Parallel()
	shop := programtest.NewFixture(t)
	program := programtest.Start(t, run, shop.Env(), "run")
	s := ready(t, program.Stdout)
	for path, want := range map[string]int{"/demo": http.StatusTemporaryRedirect, "/demo/": http.StatusOK, "/demo/none.js": http.StatusNotFound, "/demos": http.StatusNotFound} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.url+path, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		r.Close = true
		answer, err := http.DefaultTransport.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = answer.Body.Close()
		if answer.StatusCode != want {
			t.Errorf("GET %s: %s, want %d", path, answer.Status, want)
		}
		if want == http.StatusOK && !strings.HasPrefix(answer.Header.Get("Content-Security-Policy"), "default-src 'none'; script-src 'self'; ") {
			t.Errorf("GET %s: %v", path, answer.Header)
		}
	}

	page := s.call(http.MethodGet, "/demo/config.json", "", http.StatusOK)
	if again := s.call(http.MethodGet, "/demo/config.json", "", http.StatusOK); again["key"] != page["key"] || again["sale_starts_at"] != page["sale_starts_at"] {
		t.Errorf("the second visitor gets %v, the first got %v", again, page)
	}
	variant, isText := page["variant_id"].(string)
	if key, ok := page["key"].(string); ok && isText && key != s.key {
		visitor := service{t, s.url, key, s.database}
		visitor.call(http.MethodGet, "/v1/lanes", "", http.StatusForbidden)
		visitor.call(http.MethodGet, "/v1/stocks/"+variant, "", http.StatusForbidden)
		visitor.call(http.MethodPut, "/v1/stocks/"+variant, `{"stock":1000}`, http.StatusForbidden)
		visitor.add("visitor", variant)
	} else {
		t.Fatalf("the settings are %v", page)
	}
	stock := s.call(http.MethodGet, "/v1/stocks/"+variant, "", http.StatusOK)
	if stock["stock"] != 25. || stock["reserved"] != 1. || stock["max_per_cart"] != 4. || stock["hold_ttl_seconds"] != 120. || stock["current_lane"] != "hot" {
		t.Errorf("the variant of the storefront is %v", stock)
	}

	// The next run leaves what was sold, and the key of this one is revoked.
	s.call(http.MethodPost, "/v1/carts/visitor/checkout", "", http.StatusOK)
	if err := program.Stop(); err != nil {
		t.Fatal(err)
	}
	if n := shop.Int(`SELECT count(*) FROM api_keys WHERE revoked_at IS NULL`); n != 0 {
		t.Errorf("%d keys are still valid after the run", n)
	}
	after := ready(t, programtest.Start(t, run, shop.Env(), "run").Stdout)
	if stock := after.call(http.MethodGet, "/v1/stocks/"+variant, "", http.StatusOK); stock["stock"] != 24. {
		t.Errorf("the stock after another start is %v", stock)
	}
	shop.Verify()
}
