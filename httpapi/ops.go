package httpapi

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/google/uuid"

	"github.com/holdfast/holdfast/requests"
	"github.com/holdfast/holdfast/tenants"
)

// tagOps is the tag of the operations for an operator's page.
const tagOps = "Operations"

// Overview returns the state of the service, as a tenant's operator sees it, in
// the form of overviewJSON.
type Overview func(ctx context.Context, tenantID uuid.UUID) (json.RawMessage, error)

// overviewJSON documents what an Overview returns.
type overviewJSON struct {
	At            time.Time                  `json:"at"`
	Lanes         []overviewLaneJSON         `json:"lanes" doc:"Over all tenants and processes."`
	Variants      []overviewVariantJSON      `json:"variants" doc:"Your busiest variants, 20 at most: up to 10 hot ones, those with the most arriving requests, those of your newest requests, and then the first by id."`
	Expiring      []overviewHoldJSON         `json:"expiring" doc:"Your next 20 holds to fall due."`
	Failed        []overviewFailedJSON       `json:"failed" doc:"20 failed requests among your newest 5,000 requests: first those with internal_error and expired_in_queue, the newest first."`
	Sweeps        []overviewSweepJSON        `json:"sweeps" doc:"Maintenance, for all tenants."`
	Subscriptions []overviewSubscriptionJSON `json:"subscriptions" doc:"Readers of the audit log, for all tenants, 50 at most."`
}

type overviewLaneJSON struct {
	Lane              laneName `json:"lane"`
	Depth             int64    `json:"depth" doc:"Requests that wait for their decision."`
	OldestSeconds     float64  `json:"oldest_seconds" doc:"How long the oldest of them has waited."`
	ArrivalsPerSecond *float64 `json:"arrivals_per_second" doc:"Requests that arrive, per second; null where HOT_DETECT is off."`
	DecidedPerSecond  float64  `json:"decided_per_second" doc:"Requests that are decided, per second."`
	Paused            bool     `json:"paused"`
	RateCap           *int32   `json:"rate_cap" doc:"Requests that may be decided, per second; null for no cap."`
	Slow              *string  `json:"slow" doc:"The reason why its requests wait, as a sentence; null if they do not wait." example:"Capped at 5 per second; 31 per second arrive."`
}

type overviewVariantJSON struct {
	VariantID     variantID `json:"variant_id"`
	Stock         int64     `json:"stock"`
	Reserved      int64     `json:"reserved"`
	Available     int64     `json:"available"`
	Tracked       bool      `json:"tracked"`
	Backorder     bool      `json:"backorder"`
	Lane          laneName  `json:"lane" doc:"The lane of its next request."`
	Pinned        bool      `json:"pinned" doc:"A pinned variant stays hot."`
	RatePerSecond float64   `json:"rate_per_second" doc:"Requests that arrive, per second."`
	SoldOut       bool      `json:"sold_out" doc:"No unit is available, and it allows no backorder."`
}

type overviewHoldJSON struct {
	ReservationID uuid.UUID `json:"reservation_id"`
	CartID        string    `json:"cart_id"`
	VariantID     variantID `json:"variant_id"`
	Quantity      int64     `json:"quantity"`
	ExpiresAt     time.Time `json:"expires_at"`
}

type overviewFailedJSON struct {
	RequestID uuid.UUID     `json:"request_id"`
	Kind      requests.Kind `json:"kind" enum:"add,set" doc:"add asks for more units, set for a quantity in place of the present one."`
	CartID    string        `json:"cart_id"`
	VariantID variantID     `json:"variant_id"`
	Quantity  int32         `json:"quantity"`
	Reason    string        `json:"reason"`
	FailedAt  time.Time     `json:"failed_at"`
	RetriedBy *string       `json:"retried_by" format:"uuid" doc:"The request that retries it; null for none."`
}

type overviewSweepJSON struct {
	Name          string     `json:"name" doc:"sweep expires due holds. recover ends due checkouts."`
	LastSuccessAt *time.Time `json:"last_success_at" doc:"When it last succeeded; null where that is not known. The metrics count it."`
	LagSeconds    float64    `json:"lag_seconds" doc:"For how long the oldest of its work is due; 0 for none."`
}

type overviewSubscriptionJSON struct {
	Name       string  `json:"name"`
	Lag        int64   `json:"lag" doc:"An upper bound of the records that it has not received."`
	LagSeconds float64 `json:"lag_seconds" doc:"The age of the oldest of them."`
	Failures   int     `json:"failures" doc:"Failed deliveries since the last successful one."`
	LastError  *string `json:"last_error" doc:"The error of the last failed one; null without failures."`
}

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
			return jsonResponse(http.StatusOK, keyJSON{Tenant: name, Prefix: key.Prefix, Scopes: key.Scopes}), nil
		},
	}
}

func (s *service) readOverview() endpoint[struct{}, emptyBody] {
	return endpoint[struct{}, emptyBody]{
		id: "overview", method: http.MethodGet, path: "/v1/ops/overview", tag: tagOps, scope: tenants.ScopeOps,
		summary:   "Read the state of the service",
		doc:       "What the dashboard shows. The channel `ops.overview` sends the same each second. Lanes, sweeps and subscriptions serve all tenants; the rest is your own.",
		responses: map[int]any{http.StatusOK: overviewJSON{}},
		handle: func(ctx context.Context, req *request, _ *struct{}, _ *emptyBody) (response, error) {
			body, err := s.overview(ctx, req.principal.TenantID)
			if err != nil {
				return response{}, err
			}
			return response{status: http.StatusOK, body: body}.with("Cache-Control", "no-store"), nil
		},
	}
}
