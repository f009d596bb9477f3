package httpapi

import (
	"context"
	"encoding/json"
	"net/http"

	"github.com/google/uuid"

	"github.com/holdfast/holdfast/internal/ops"
	"github.com/holdfast/holdfast/internal/tenants"
)

// tagOps is the tag of the operations for an operator's page.
const tagOps = "Operations"

// Overview returns an ops.Overview, as JSON.
type Overview func(ctx context.Context, tenantID uuid.UUID) (json.RawMessage, error)

// addOps registers no overview if there is none.
func (s *service) addOps() {
	add(s, s.readKey())
	if s.overview != nil {
		add(s, s.readOverview())
	}
}

// keyJSON is the key of a call, without its secret.
type keyJSON struct {
	Tenant string          `json:"tenant" doc:"The name of the key's tenant."`
	Cell   string          `json:"cell,omitempty" doc:"The cell in which it is; left out where there is one."`
	Prefix string          `json:"prefix" doc:"The beginning of the key, as the audit log has it."`
	Scopes []tenants.Scope `json:"scopes"`
}

func (s *service) readKey() endpoint[struct{}, emptyBody] {
	return endpoint[struct{}, emptyBody]{
		id: "read-key", method: http.MethodGet, path: "/v1/key", tag: tagOps, scope: anyScope,
		summary:   "Read the key of this call",
		doc:       "The tenant and the scopes of the key that the call is made with.",
		responses: map[int]any{http.StatusOK: keyJSON{}},
		handle: func(ctx context.Context, req *request, _ *struct{}, _ *emptyBody) (response, error) {
			key := req.principal
			name, err := tenants.Name(ctx, s.pool, key.TenantID)
			if err != nil {
				return response{}, err
			}
			return jsonResponse(http.StatusOK, keyJSON{Tenant: name, Cell: s.cell, Prefix: key.Prefix, Scopes: key.Scopes}), nil
		},
	}
}

func (s *service) readOverview() endpoint[struct{}, emptyBody] {
	return endpoint[struct{}, emptyBody]{
		id: "overview", method: http.MethodGet, path: "/v1/ops/overview", tag: tagOps, scope: tenants.ScopeOps,
		summary:   "Read the state of the service",
		doc:       "What the dashboard shows. The channel `ops.overview` sends the same each second. Lanes, sweeps and subscriptions serve all tenants of the cell; cells are all of the service; the rest is your own.",
		responses: map[int]any{http.StatusOK: ops.Overview{}},
		handle: func(ctx context.Context, req *request, _ *struct{}, _ *emptyBody) (response, error) {
			body, err := s.overview(ctx, req.principal.TenantID)
			if err != nil {
				return response{}, err
			}
			return response{status: http.StatusOK, body: body}.with("Cache-Control", "no-store"), nil
		},
	}
}
