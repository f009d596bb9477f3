package httpapi

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/holdfast/holdfast"
	"github.com/holdfast/holdfast/internal/admission"
	"github.com/holdfast/holdfast/internal/pgtest"
)

// bounded gives the API a client with these bounds.
func (s *shop) bounded(config admission.IntakeConfig) {
	s.t.Helper()
	s.serveChanged(s.db, func(c *holdfast.Config) { c.Intake = config })
}

// queue puts undecided requests of a tenant into the normal lane.
func (s *shop) queue(tenant string, n int) {
	s.t.Helper()
	_, err := s.db.Exec(s.t.Context(), `
		INSERT INTO reservation_requests (tenant_id, request_id, lane, cart_id, variant_id, quantity)
		SELECT tenant_id, gen_random_uuid(), 'normal', 'crowd', 'shirt', 1
		FROM tenants, generate_series(1, $2::integer)
		WHERE name = $1`, tenant, n)
	s.must(err)
}

// TestOverload checks the refusals under load: 429 for a tenant whose requests
// fill its share, 503 for all callers while the lane is full, both with the
// time to wait. Another tenant is served meanwhile, and a repetition of an
// admitted request receives its usual response.
func TestOverload(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.stock("shirt", `{"stock":100}`)
	s.stock("song", `{"tracked":false}`)
	other, otherKey := s.newTenant("other")
	const path, item, digital = "/v1/carts/c/items", `{"variant_id":"shirt","quantity":1}`, `{"variant_id":"song","quantity":1}`
	first := s.call(202, "POST", path, item, keyHeader, "admitted").text(t, "request_id")
	s.bounded(admission.IntakeConfig{DepthMax: 100})
	s.queue("shop", 60)
	// untilRefused repeats the call until the backlog has been read and the
	// call is refused.
	untilRefused := func(status int, key string) {
		t.Helper()
		pgtest.Until(t, fmt.Sprintf("a call is refused with %d", status), func() bool {
			return s.send("POST", path, strings.NewReader(digital), "Authorization", "Bearer "+key).status == status
		})
	}
	untilRefused(429, s.key)
	written, sequence := s.written(), s.count(`SELECT last_value FROM reservation_requests_sequence_seq`)
	for _, headers := range [][]string{nil, {keyHeader, "new"}, {keyHeader, "new"}} {
		r := s.call(429, "POST", path, item, headers...)
		s.isProblem(r, overLimit)
		golden(t, "over_limit", r)
	}
	s.refused(overLimit, "PATCH", path+"/shirt", `{"quantity":2}`, keyHeader, "patch")
	if s.written() != written || s.count(`SELECT last_value FROM reservation_requests_sequence_seq`) != sequence {
		t.Error("a refused call left a row, or drew a number")
	}
	again := s.call(202, "POST", path, item, keyHeader, "admitted")
	if again.text(t, "request_id") != first || again.header.Get(replayedHeader) != "true" {
		t.Errorf("a repetition while the tenant is over its limit: %s", again.body)
	}
	s.call(202, "POST", path, item, "Authorization", "Bearer "+otherKey)

	s.queue("other", 40)
	_, newcomer := s.newTenant("newcomer")
	untilRefused(503, newcomer)
	r := s.call(503, "POST", path, item, "Authorization", "Bearer "+newcomer)
	s.isProblem(r, overloaded)
	if n, err := strconv.Atoi(r.header.Get("Retry-After")); err != nil || n < 1 || n > 60 {
		t.Errorf("Retry-After is %q", r.header.Get("Retry-After"))
	}
	if n := s.count(`SELECT count(*) FROM reservation_requests WHERE tenant_id NOT IN ($1, $2)`, s.tenant.TenantID, other.TenantID); n != s.count(`SELECT count(*) FROM reservation_requests WHERE variant_id = 'song' AND tenant_id NOT IN ($1, $2)`, s.tenant.TenantID, other.TenantID) {
		t.Error("the refused request of the new tenant has a row")
	}
	if log := s.logged.String(); strings.Contains(log, "not served") {
		t.Errorf("each refusal is in the log: %s", log)
	}

	s.decide()
	pgtest.Until(t, "the same call is admitted", func() bool {
		return s.send("POST", path, strings.NewReader(item), keyHeader, "new").status == 202
	})
}
