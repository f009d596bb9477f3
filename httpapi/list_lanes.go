package httpapi

import (
	"context"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/holdfast/holdfast/queues"
	"github.com/holdfast/holdfast/queues/hot"
	"github.com/holdfast/holdfast/tenants"
)

type lanesJSON struct {
	Items       []queues.LaneState `json:"items" doc:"Over all tenants and processes."`
	HotVariants []hotVariantJSON   `json:"hot_variants" doc:"Your variants in the hot lane, the busiest first, 1,000 at most."`
	Diversion   *diversionJSON     `json:"diversion" doc:"Set while your requests for other variants are decided in a stream of their own, because there are so many; else null."`
}

// TransformSchema lets the diversion be null, which huma can't be told by a tag.
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
	State         string    `json:"state" enum:"entering,hot,leaving" doc:"entering and leaving while requests of it stand in the other lane."`
	Slot          int16     `json:"slot" doc:"Its slot of the hot lane."`
	Pinned        bool      `json:"pinned" doc:"Pinned ones stay hot; the others became hot by themselves."`
	RatePerSecond float64   `json:"rate_per_second" doc:"Requests that arrive."`
	Since         time.Time `json:"since" doc:"When it came to this state, or was about to."`
	Why           *string   `json:"why" doc:"What moved it; null where a pin did."`
}

type diversionJSON struct {
	Since time.Time `json:"since"`
	Why   string    `json:"why"`
}

func (s *service) listLanes() endpoint[struct{}, none] {
	return endpoint[struct{}, none]{
		id: "list-lanes", method: http.MethodGet, path: "/v1/lanes", tag: tagLanes, scope: tenants.ScopeOps,
		summary: "Read how the lanes stand",
		doc:     "The lanes are the installation's; of hot variants only your own are named.",
		answers: map[int]any{http.StatusOK: lanesJSON{}},
		handle: func(ctx context.Context, c *call, _ *struct{}, _ *none) (answer, error) {
			lanes, err := queues.Lanes(ctx, s.pool)
			if err != nil {
				return answer{}, err
			}
			listed, err := hot.List(ctx, s.pool, c.who.TenantID)
			if err != nil {
				return answer{}, err
			}
			diversion, err := hot.DiversionOf(ctx, s.pool, c.who.TenantID)
			if err != nil {
				return answer{}, err
			}
			return respond(http.StatusOK, lanesJSON{lanes, hotVariantBodies(listed), diversionBody(diversion)}), nil
		},
	}
}

func hotVariantBodies(listed []hot.Listed) []hotVariantJSON {
	bodies := make([]hotVariantJSON, len(listed))
	for i := range listed {
		v := &listed[i]
		bodies[i] = hotVariantJSON{variantID(v.VariantID), v.State, v.Slot, v.Pinned, v.Rate, v.MovedAt.UTC(), v.Why}
	}
	return bodies
}

func diversionBody(d *hot.Diversion) *diversionJSON {
	if d == nil {
		return nil
	}
	return &diversionJSON{d.Since.UTC(), d.Why}
}
