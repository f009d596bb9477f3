package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"net/http"
	"reflect"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/google/uuid"

	"github.com/holdfast/holdfast"
	"github.com/holdfast/holdfast/audit"
	"github.com/holdfast/holdfast/internal/inventory"
	"github.com/holdfast/holdfast/internal/lanes"
	"github.com/holdfast/holdfast/internal/ops"
	"github.com/holdfast/holdfast/internal/requestrows"
	"github.com/holdfast/holdfast/internal/tenants"
)

type timelineParams struct {
	Kind thingKind  `query:"kind" required:"true"`
	ID   timelineID `query:"id" required:"true"`
	// Before is 0 if it is left out.
	Before beforeAuditID `query:"before"`
}

// beforeAuditID is the id of an audit row.
type beforeAuditID int64

// Schema describes the id, for huma.
func (beforeAuditID) Schema(huma.Registry) *huma.Schema {
	return numberSchema(math.MaxInt64, "Only events with a lower audit_id: the first one of the response before.")
}

// timelineID is the id of something of any kind.
type timelineID string

// Schema describes the id, for huma.
func (timelineID) Schema(huma.Registry) *huma.Schema { return idSchema("Its id.") }

type timelineJSON struct {
	Kind   thingKind   `json:"kind"`
	ID     string      `json:"id"`
	Now    any         `json:"now"`
	Events []eventJSON `json:"events" doc:"The newest 200 before the given audit_id, oldest first."`
	More   bool        `json:"more" doc:"There are older ones."`
}

// TransformSchema describes the present state, which depends on the kind.
func (timelineJSON) TransformSchema(r huma.Registry, s *huma.Schema) *huma.Schema {
	var states []*huma.Schema
	for _, state := range []any{presentCartJSON{}, requestJSON{}, reservationJSON{}, stockJSON{}} {
		t := reflect.TypeOf(state)
		states = append(states, r.Schema(t, true, t.Name()))
	}
	s.Properties["now"] = &huma.Schema{
		Description: "The present state, in the form of its kind; null if only the audit rows are left.",
		AnyOf:       append(states, &huma.Schema{Type: "null"}),
	}
	return s
}

// presentCartJSON is the beginning of a cart.
type presentCartJSON struct {
	Reservations []reservationJSON `json:"reservations" doc:"The newest 20, newest first."`
	Requests     []cartRequestJSON `json:"requests" doc:"The oldest 20 that are not decided yet, oldest first."`
	Failed       []cartRequestJSON `json:"failed" doc:"The latest 20 that failed, latest first."`
}

type eventJSON struct {
	AuditID       int64           `json:"audit_id" doc:"Increases in the order of the changes of one target."`
	At            time.Time       `json:"at"`
	Action        string          `json:"action" example:"reservation.held"`
	TargetID      uuid.UUID       `json:"target_id" format:"uuid" doc:"The reservation, request or checkout that changed, or the audit log's id of a stock or a variant's lane."`
	Actor         string          `json:"actor" doc:"user, system, job or anonymous, and the beginning of the API key or the name of the job." example:"user hf_abc123"`
	Reason        string          `json:"reason" doc:"Empty for none."`
	CorrelationID string          `json:"correlation_id" doc:"Empty for none."`
	Before        json.RawMessage `json:"before" doc:"The target before the change; null for its first row."`
	After         json.RawMessage `json:"after" doc:"The target after the change."`
}

// Bounds of a history.
const (
	timelineMax       = 200 // events
	timelineCartMax   = 20  // rows of a cart
	timelineUnitsMax  = 50  // reservations, and failed requests, of a variant
	timelineHolderMax = 200 // reservations, and failed requests, of a cart
)

func (s *service) timeline() endpoint[timelineParams, emptyBody] {
	return endpoint[timelineParams, emptyBody]{
		id: "get-ops-history", method: http.MethodGet, path: "/v1/ops/history", tag: tagOps, scope: tenants.ScopeOps,
		summary: "Read the history of a cart, a request, a reservation or a variant",
		doc: "Its present state and its audit rows. A cart has those of its newest 200 reservations and failed requests, and of their checkouts. A " +
			"variant has those of its stock and of its lane, and of its newest 50 reservations and failed requests, as far as they are held or " +
			"among your newest 5,000. If there are more, before reads the older ones.",
		responses: map[int]any{http.StatusOK: timelineJSON{}},
		problems:  []kind{notFound},
		handle: func(ctx context.Context, req *request, p *timelineParams, _ *emptyBody) (response, error) {
			now, targets, err := s.present(ctx, req, p)
			if err != nil {
				return response{}, err
			}
			records, err := ops.Newest(ctx, s.pool, req.principal.TenantID, targets, int64(p.Before), timelineMax+1)
			if err != nil {
				return response{}, err
			}
			if len(records) == 0 && now == nil && p.Before == 0 {
				return response{}, errNoHistory
			}
			more := len(records) > timelineMax
			records = records[max(len(records)-timelineMax, 0):]
			body := timelineJSON{Kind: p.Kind, ID: string(p.ID), Now: now, Events: make([]eventJSON, len(records)), More: more}
			for i := range records {
				body.Events[i] = eventBody(&records[i])
			}
			return jsonResponse(http.StatusOK, body), nil
		},
	}
}

// errNoHistory means that there is neither a present state nor an audit row.
var errNoHistory = errors.New("no such thing")

func eventBody(r *audit.Record) eventJSON {
	actor := r.Actor.Kind
	if r.Actor.ID != "" {
		actor += " " + r.Actor.ID
	}
	return eventJSON{
		AuditID: r.AuditID, At: r.CreatedAt.UTC(), Action: r.Action, TargetID: r.TargetID, Actor: actor,
		Reason: r.Reason, CorrelationID: r.CorrelationID, Before: r.Before, After: r.After,
	}
}

// present returns the present state of what the parameters name, nil if it does
// not exist, and the targets of its audit rows.
func (s *service) present(ctx context.Context, req *request, p *timelineParams) (now any, targets []uuid.UUID, err error) {
	tenantID, id := req.principal.TenantID, string(p.ID)
	switch p.Kind {
	case kindCart:
		return s.presentCart(ctx, tenantID, id)
	case kindVariant:
		return s.presentVariant(ctx, req, id)
	case kindRequest, kindReservation:
	}
	target, err := uuid.Parse(id)
	if err != nil {
		return nil, nil, fieldErrors{}.with("id", "must be a UUID")
	}
	if p.Kind == kindRequest {
		v, err := requestrows.Get(ctx, s.pool, tenantID, target)
		if err == nil {
			now, err = s.withRetry(ctx, v)
		}
		return now, []uuid.UUID{target}, unless(err, requestrows.ErrNotFound)
	}
	r, err := s.tenant(req).Reservation(ctx, target)
	if err == nil {
		now = reservationBody(r)
	}
	return now, []uuid.UUID{target}, unless(err, holdfast.ErrNotFound)
}

func (s *service) presentCart(ctx context.Context, tenantID uuid.UUID, id string) (now any, targets []uuid.UUID, err error) {
	cart, err := requestrows.ViewCart(ctx, s.pool, tenantID, id, timelineCartMax, "")
	if err != nil {
		return now, nil, err
	}
	if len(cart.Reservations)+len(cart.Unfinished)+len(cart.Failed) > 0 {
		now = presentCartJSON{reservationBodies(cart.Reservations), cartRequestBodies(cart.Unfinished), cartRequestBodies(cart.Failed)}
	}
	targets, err = ops.CartTargets(ctx, s.pool, tenantID, id, timelineHolderMax)
	return now, targets, err
}

func (s *service) presentVariant(ctx context.Context, req *request, id string) (now any, targets []uuid.UUID, err error) {
	tenantID := req.principal.TenantID
	stock, err := s.tenant(req).Stock(ctx, id)
	if unless(err, inventory.ErrUnknownVariant) != nil {
		return now, nil, err
	}
	if err == nil {
		now = stockBody(stock)
	}
	targets, err = ops.VariantTargets(ctx, s.pool, tenantID, id, timelineUnitsMax)
	return now, append(targets, inventory.Target(tenantID, id), lanes.VariantTarget(tenantID, id)), err
}

// unless returns err, or nil if it is the given one.
func unless(err, given error) error {
	if errors.Is(err, given) {
		return nil
	}
	return err
}
