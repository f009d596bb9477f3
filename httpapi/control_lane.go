package httpapi

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/queues"
	"github.com/holdfast/holdfast/requests"
	"github.com/holdfast/holdfast/tenants"
)

type laneParams struct {
	Lane string `path:"lane" doc:"hot or normal."`
}

type controlLaneBody struct {
	Paused  *bool  `json:"paused,omitempty" doc:"A paused lane takes requests and decides none." example:"false"`
	RateCap *int32 `json:"rate_cap,omitempty" nullable:"true" minimum:"1" doc:"Requests a second over all processes; null for no cap." example:"500"`
}

func (b *controlLaneBody) fields() []field {
	return []field{
		{"paused", false, optional(&b.Paused, boolean)},
		{"rate_cap", false, clearable(&b.RateCap, whole[int32](1, math.MaxInt32))},
	}
}

func (s *service) controlLane() endpoint[laneParams, controlLaneBody] {
	return endpoint[laneParams, controlLaneBody]{
		id: "control-lane", method: http.MethodPatch, path: "/v1/lanes/{lane}", tag: tagLanes, scope: tenants.ScopeOps,
		summary:  "Pause, resume or cap a lane",
		doc:      "Changes the fields that are given, for all tenants, and within two seconds for all processes. A change is recorded with who made it; what is so already is not.",
		answers:  map[int]any{http.StatusOK: queues.LaneState{}},
		problems: []kind{notFound},
		handle: func(ctx context.Context, c *call, p *laneParams, b *controlLaneBody) (answer, error) {
			if p.Lane != requests.Hot && p.Lane != requests.Normal {
				return answer{}, queues.ErrUnknownLane
			}
			return s.finish(ctx, c, func(ctx context.Context, tx pgx.Tx) (any, error) {
				if err := queues.ControlTx(ctx, tx, p.Lane, queues.LanePatch{Paused: b.Paused, RateCap: b.RateCap}, c.origin("")); err != nil {
					return nil, err
				}
				lanes, err := queues.Lanes(ctx, tx)
				if err != nil {
					return nil, err
				}
				i := slices.IndexFunc(lanes, func(l queues.LaneState) bool { return l.Lane == p.Lane })
				if i < 0 {
					return nil, fmt.Errorf("read lane %q: %w", p.Lane, queues.ErrUnknownLane)
				}
				return lanes[i], nil
			})
		},
	}
}
