package httpapi

import (
	"bytes"
	"testing"

	"github.com/holdfast/holdfast/internal/lanes"
	"github.com/holdfast/holdfast/internal/pgtest"
)

// decideDirectly gives the shop a client that decides the requests of callers
// that wait.
func (s *shop) decideDirectly() {
	s.t.Helper()
	s.direct = true
	s.serve(s.db, s.config)
}

// Without a worker, a call that prefers to wait is answered 200 with the
// finished request, and its repetition with the same body. Any other call is
// answered 202.
func TestDirectDecision(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.decideDirectly()
	s.stock("shirt", `{"stock":3,"max_per_cart":3}`)
	s.stock("song", `{"stock":0,"tracked":false}`)
	const add = `{"variant_id":"shirt","quantity":2}`
	for _, tc := range []struct {
		name, method, path, body     string
		status, reason, reservations string
	}{
		{"held", "POST", "/v1/carts/a/items", add, "done", "", "held"},
		{"out of stock", "POST", "/v1/carts/b/items", add, "failed", "out_of_stock", ""},
		{"changed", "PATCH", "/v1/carts/a/items/shirt", `{"quantity":3}`, "done", "", "held"},
		{"over the limit", "POST", "/v1/carts/a/items", add, "failed", "limit_exceeded", ""},
		{"digital", "POST", "/v1/carts/a/items", `{"variant_id":"song","quantity":1}`, "done", "", ""},
	} {
		r := s.call(200, tc.method, tc.path, tc.body, "Prefer", "wait=5", keyHeader, tc.name)
		o := r.object(t)
		reason, _ := o["reason"].(string)
		reservation, _ := o["reservation"].(map[string]any)
		state, _ := reservation["status"].(string)
		if o["status"] != tc.status || reason != tc.reason || state != tc.reservations {
			t.Errorf("%s: answered %s, want %s %q and a reservation that is %q", tc.name, r.body, tc.status, tc.reason, tc.reservations)
		}
		location := "/v1/requests/" + r.text(t, "request_id")
		if got := r.header.Get("Location"); got != location {
			t.Errorf("%s: Location is %q, want %q", tc.name, got, location)
		}
		if got := r.header.Get("Preference-Applied"); got != "wait=5" && tc.name != "digital" {
			t.Errorf("%s: Preference-Applied is %q", tc.name, got)
		}
		if got := s.call(200, "GET", location, ""); !bytes.Equal(got.body, r.body) {
			t.Errorf("%s: GET answers %s, the call %s", tc.name, got.body, r.body)
		}
		for _, prefer := range []string{"wait=5", ""} {
			again := s.call(200, tc.method, tc.path, tc.body, "Prefer", prefer, keyHeader, tc.name)
			if !bytes.Equal(again.body, r.body) || again.header.Get(replayedHeader) != "true" || again.header.Get("Location") != location {
				t.Errorf("%s: repeated with %q: %s, headers %v, want %s", tc.name, prefer, again.body, again.header, r.body)
			}
		}
	}
	if n := s.count(`SELECT count(*) FROM reservation_requests`); n != 5 {
		t.Errorf("%d requests, want 5", n)
	}

	r := s.call(202, "POST", "/v1/carts/c/items", add)
	if r.text(t, "status") != "queued" || r.header.Get("Preference-Applied") != "" {
		t.Errorf("without a preference: %s, %v", r.body, r.header)
	}
	behind := s.call(202, "POST", "/v1/carts/d/items", add, "Prefer", "wait=1") // an earlier request is queued
	if behind.header.Get("Preference-Applied") != "wait=1" {
		t.Errorf("behind a queued request: %v", behind.header)
	}
	s.decide()
	if got := s.rows(`SELECT DISTINCT status FROM reservation_requests WHERE cart_id IN ('c', 'd')`); len(got) != 1 || got[0] != "failed" {
		t.Errorf("after a drain they are %v", got)
	}
}

// In GET /v1/lanes the lane's rate counts requests that are decided as they are
// admitted.
func TestRateOfDirectDecisions(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.decideDirectly()
	s.stock("shirt", `{"stock":100000}`)
	pgtest.Until(t, "the rate of the normal lane is above 1/s", func() bool {
		s.call(200, "POST", "/v1/carts/a/items", `{"variant_id":"shirt","quantity":1}`, "Prefer", "wait=5")
		var answer struct {
			Items []struct {
				Lane lanes.Lane `json:"lane"`
				Rate float64    `json:"rate_per_second"`
			} `json:"items"`
		}
		s.call(200, "GET", "/v1/lanes", "").decode(t, &answer)
		for _, lane := range answer.Items {
			if lane.Lane == lanes.Normal && lane.Rate > 1 {
				return true
			}
		}
		return false
	})
}
