package httpapi

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"slices"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast"
	"github.com/holdfast/holdfast/audit"
	"github.com/holdfast/holdfast/internal/lanes"
	"github.com/holdfast/holdfast/internal/ops"
	"github.com/holdfast/holdfast/internal/queues"
	"github.com/holdfast/holdfast/internal/tenants"
)

// laneName is the name of a lane.
type laneName lanes.Lane

// Schema lists the lanes, for huma.
func (laneName) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{Type: huma.TypeString, Enum: enum(lanes.All())}
}

// laneWish is a tenant's wish for a lane.
type laneWish lanes.Wish

// Schema lists the wishes, for huma.
func (laneWish) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{Type: huma.TypeString, Enum: enum(lanes.Wishes())}
}

// laneWishes returns the wishes that a caller can choose from.
func laneWishes() []laneWish {
	var wishes []laneWish
	for _, wish := range lanes.Wishes() {
		wishes = append(wishes, laneWish(wish))
	}
	return wishes
}

type lanesJSON struct {
	Items       []queues.LaneState `json:"items" doc:"Over all tenants and processes."`
	HotVariants []hotVariantJSON   `json:"hot_variants" doc:"Your variants in the hot lane, the busiest first, 1,000 at most."`
	Diversion   *diversionJSON     `json:"diversion" doc:"Set while your requests for other variants are decided in a separate stream, because too many of them are queued; else null."`
}

// TransformSchema allows null for the diversion. Huma has no tag for that.
func (lanesJSON) TransformSchema(_ huma.Registry, s *huma.Schema) *huma.Schema {
	diversion := s.Properties["diversion"]
	s.Properties["diversion"] = &huma.Schema{
		Description: diversion.Description,
		AnyOf:       []*huma.Schema{{Ref: diversion.Ref}, {Type: "null"}},
	}
	return s
}

type hotVariantJSON struct {
	VariantID     variantID `json:"variant_id"`
	State         string    `json:"state" enum:"entering,hot,leaving" doc:"entering and leaving while the other lane has requests for it."`
	Slot          int16     `json:"slot" doc:"Its slot of the hot lane."`
	Pinned        bool      `json:"pinned" doc:"A pinned variant stays hot. The service moves the others."`
	RatePerSecond float64   `json:"rate_per_second" doc:"Requests that arrive, per second."`
	Since         time.Time `json:"since" doc:"When it came to this state, or began to."`
	Why           *string   `json:"why" doc:"Why the service moved it; null if a pin did."`
}

type diversionJSON struct {
	Since time.Time `json:"since"`
	Why   string    `json:"why"`
}

func (s *service) listLanes() endpoint[struct{}, emptyBody] {
	return endpoint[struct{}, emptyBody]{
		id: "list-lanes", method: http.MethodGet, path: "/v1/lanes", tag: tagLanes, scope: tenants.ScopeOps,
		summary:   "Read the state of the lanes",
		doc:       "The lanes serve all tenants. Of the hot variants, only your own are listed.",
		responses: map[int]any{http.StatusOK: lanesJSON{}},
		handle: func(ctx context.Context, req *request, _ *struct{}, _ *emptyBody) (response, error) {
			states, err := queues.Lanes(ctx, s.pool)
			if err != nil {
				return response{}, err
			}
			listed, err := ops.HotVariants(ctx, s.pool, req.principal.TenantID)
			if err != nil {
				return response{}, err
			}
			diversion, err := lanes.DiversionOf(ctx, s.pool, req.principal.TenantID)
			if err != nil {
				return response{}, err
			}
			return jsonResponse(http.StatusOK, lanesJSON{states, hotVariantBodies(listed), diversionBody(diversion)}), nil
		},
	}
}

func hotVariantBodies(listed []ops.HotVariant) []hotVariantJSON {
	bodies := make([]hotVariantJSON, len(listed))
	for i := range listed {
		v := &listed[i]
		bodies[i] = hotVariantJSON{variantID(v.VariantID), v.State, v.Slot, v.Pinned, v.Rate, v.MovedAt.UTC(), v.Why}
	}
	return bodies
}

func diversionBody(d *lanes.Diversion) *diversionJSON {
	if d == nil {
		return nil
	}
	return &diversionJSON{d.Since.UTC(), d.Why}
}

type laneParams struct {
	Lane string `path:"lane" doc:"The name of a lane, as GET /v1/lanes lists it."`
}

type controlLaneBody struct {
	Paused  *bool  `json:"paused,omitempty" doc:"A paused lane queues requests and decides none." example:"false"`
	RateCap *int32 `json:"rate_cap,omitempty" doc:"Requests per second over all processes; null for no cap." example:"500"`
}

func (b *controlLaneBody) fields() []field {
	return []field{
		{"paused", false, optional(&b.Paused, boolean())},
		{"rate_cap", false, clearable(&b.RateCap, whole[int32](1, math.MaxInt32))},
	}
}

func (s *service) controlLane() endpoint[laneParams, controlLaneBody] {
	return endpoint[laneParams, controlLaneBody]{
		id: "control-lane", method: http.MethodPatch, path: "/v1/lanes/{lane}", tag: tagLanes, scope: tenants.ScopeOps,
		summary:   "Pause, resume or cap a lane",
		doc:       "Changes the fields that are given, for all tenants, and within two seconds for all processes. A change is recorded in the audit log with the key that made it. A field that already has the value is not a change.",
		responses: map[int]any{http.StatusOK: queues.LaneState{}},
		problems:  []kind{notFound},
		handle: func(ctx context.Context, req *request, p *laneParams, b *controlLaneBody) (response, error) {
			lane := lanes.Lane(p.Lane)
			if !slices.Contains(lanes.All(), lane) {
				return response{}, lanes.ErrUnknown
			}
			patch := lanes.Patch{Paused: b.Paused, RateCap: b.RateCap}
			state, err := holdfast.Once(ctx, s.tenant(req), "ControlLane", []any{lane, patch}, func(ctx context.Context, tx pgx.Tx) (queues.LaneState, error) {
				return controlTx(ctx, tx, lane, patch, req.origin())
			}, req.opts())
			return req.respond(state, err)
		},
	}
}

func controlTx(ctx context.Context, tx pgx.Tx, lane lanes.Lane, patch lanes.Patch, origin audit.Origin) (state queues.LaneState, err error) {
	if err := lanes.ControlTx(ctx, tx, lane, patch, origin); err != nil {
		return state, err
	}
	states, err := queues.Lanes(ctx, tx)
	if err != nil {
		return state, err
	}
	i := slices.IndexFunc(states, func(l queues.LaneState) bool { return l.Lane == lane })
	if i < 0 {
		return state, fmt.Errorf("read lane %q: %w", lane, lanes.ErrUnknown)
	}
	return states[i], nil
}
