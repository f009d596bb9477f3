package httpapi

import (
	"net/http"
	"regexp"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast/holdfast/internal/ops"
	"github.com/holdfast/holdfast/internal/tenants"
)

// The overview is what its schema documents, to which checked compares it, and
// needs the scope ops.
func TestOverview(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.stock("shirt", `{"stock":1}`)
	held := s.add("cart-1", "shirt", 1)
	failed := s.add("cart-2", "shirt", 1)
	s.decide()
	r := s.call(http.StatusOK, "GET", "/v1/ops/overview", "")
	still := r
	// What is counted now and then, or grows.
	still.body = regexp.MustCompile(`"(depth|oldest_seconds|[a-z]+_per_second)": ?[\d.]+`).ReplaceAll(r.body, []byte(`"$1":0`))
	golden(t, "overview", still)
	if r.header.Get("Cache-Control") != "no-store" {
		t.Errorf("Cache-Control is %q", r.header.Get("Cache-Control"))
	}
	var state ops.Overview
	r.decode(t, &state)
	if len(state.Lanes) != 2 || len(state.Expiring) != 1 || state.Expiring[0].ReservationID.String() != held ||
		len(state.Failed) != 1 || state.Failed[0].RequestID.String() != failed || len(state.Variants) != 1 || !state.Variants[0].SoldOut {
		t.Errorf("the overview is %s", r.body)
	}
	for _, scope := range []tenants.Scope{tenants.ScopeCart, tenants.ScopeStock} {
		s.refused(forbidden, "GET", "/v1/ops/overview", "", "Authorization", "Bearer "+s.newKey(s.tenant, scope))
	}
}

// Each key reads its own tenant, prefix and scopes, and nothing of its secret.
func TestReadKey(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	other, otherKey := s.newTenant("other")
	cart := s.newKey(s.tenant, tenants.ScopeCart)
	for key, want := range map[string]keyJSON{
		s.key:    {Tenant: s.tenant.Name, Scopes: tenants.AllScopes()},
		cart:     {Tenant: s.tenant.Name, Scopes: []tenants.Scope{tenants.ScopeCart}},
		otherKey: {Tenant: other.Name, Scopes: tenants.AllScopes()},
	} {
		want.Prefix = key[:9]
		var got keyJSON
		s.call(http.StatusOK, "GET", "/v1/key", "", "Authorization", "Bearer "+key).decode(t, &got)
		slices.Sort(want.Scopes)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
	}
	golden(t, "read_key", s.call(http.StatusOK, "GET", "/v1/key", "", "Authorization", "Bearer "+cart))
	s.refused(unauthorized, "GET", "/v1/key", "", "Authorization", "")
}
