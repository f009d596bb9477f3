package httpapi

import (
	"slices"
	"testing"

	"github.com/holdfast/holdfast/internal/tenants"
)

// TestPin pins a variant and removes the pin, each recorded once in the name of
// the operator's key.
func TestPin(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.stock("rolls%2Fbuns", `{"stock":5}`)
	s.stock("calm", `{"stock":5,"lane":"normal"}`)
	s.key = s.newKey(s.tenant, tenants.ScopeOps)
	const path = "/v1/lanes/hot/variants/rolls%2Fbuns"
	before := s.written()
	s.refused(notFound, "PUT", "/v1/lanes/hot/variants/unknown", "")
	s.refused(notFound, "DELETE", "/v1/lanes/hot/variants/unknown", "")
	if r := s.call(200, "DELETE", "/v1/lanes/hot/variants/calm", ""); r.text(t, "lane") != "normal" {
		t.Errorf("a variant kept normal: %s", r.body)
	}
	if after := s.written(); after != before {
		t.Errorf("calls that change nothing wrote %d rows", after-before)
	}
	s.call(200, "PUT", path, "")
	s.decide() // nothing is queued, so the move ends
	golden(t, "pin", s.call(200, "PUT", path, ""))
	s.call(200, "DELETE", path, "")
	s.decide()
	golden(t, "unpin", s.call(200, "DELETE", path, "", keyHeader, "k"))
	got := s.rows(`SELECT concat_ws(' ', actor_id, before ->> 'lane', after ->> 'lane') FROM audit_log WHERE actor_id = $1 AND action = 'stock.set' ORDER BY audit_id`, s.key[:9])
	if want := []string{s.key[:9] + " auto hot", s.key[:9] + " hot auto"}; !slices.Equal(got, want) {
		t.Errorf("recorded are %q, want %q", got, want)
	}
	if got := s.rows(`SELECT lane FROM inventory_stocks ORDER BY variant_id`); !slices.Equal(got, []string{"normal", "auto"}) {
		t.Errorf("the lanes are %q", got)
	}
	_, s.key = s.newTenant("neighbour")
	s.refused(notFound, "PUT", path, "")
	s.refused(notFound, "DELETE", path, "")
}

// TestOperatorReleases releases, extends and reads a hold with the scope ops
// only.
func TestOperatorReleases(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.stock("shirt", `{"stock":1}`)
	id := s.add("c", "shirt", 1)
	s.decide()
	s.key = s.newKey(s.tenant, tenants.ScopeOps)
	path := "/v1/reservations/" + id
	s.call(200, "POST", path+"/extend", `{"seconds":60}`)
	s.call(200, "POST", path+"/release", `{"reason":"operator"}`)
	if r := s.call(200, "GET", path, ""); r.text(t, "release_reason") != "operator" {
		t.Errorf("the reservation is %s", r.body)
	}
	s.call(200, "GET", path+"/history", "")
	got := s.rows(`SELECT actor_id || ' ' || action FROM audit_log WHERE action = 'reservation.released'`)
	if !slices.Equal(got, []string{s.key[:9] + " reservation.released"}) {
		t.Errorf("recorded is %q", got)
	}
	s.refused(forbidden, "POST", path+"/commit", "")
}
