package httpapi

import (
	"context"
	"net/http"

	"github.com/holdfast/holdfast/queues"
	"github.com/holdfast/holdfast/tenants"
)

type lanesJSON struct {
	Items []queues.LaneState `json:"items"`
}

func (s *service) listLanes() endpoint[struct{}, none] {
	return endpoint[struct{}, none]{
		id: "list-lanes", method: http.MethodGet, path: "/v1/lanes", tag: tagLanes, scope: tenants.ScopeOps,
		summary: "Read how the lanes stand",
		doc:     "Over all tenants and processes.",
		answers: map[int]any{http.StatusOK: lanesJSON{}},
		handle: func(ctx context.Context, _ *call, _ *struct{}, _ *none) (answer, error) {
			lanes, err := queues.Lanes(ctx, s.pool)
			if err != nil {
				return answer{}, err
			}
			return respond(http.StatusOK, lanesJSON{lanes}), nil
		},
	}
}
