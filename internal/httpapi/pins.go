package httpapi

import (
	"context"
	"net/http"

	"github.com/holdfast/holdfast/internal/lanes"
	"github.com/holdfast/holdfast/internal/tenants"
)

// pinJSON is the lane of a variant in a response.
type pinJSON struct {
	VariantID variantID `json:"variant_id"`
	Lane      laneName  `json:"lane" doc:"The lane that takes new requests now."`
	Pinned    bool      `json:"pinned" doc:"The variant stays in the hot lane until the pin is removed."`
}

func (s *service) pinVariant() endpoint[stockParams, emptyBody] {
	return pinEndpoint(endpoint[stockParams, emptyBody]{
		id: "pin-variant", method: http.MethodPut,
		summary: "Pin a variant to the hot lane",
		doc:     "The same as a stock's lane `hot`. The change is recorded in the audit log with the key that made it; a variant that is pinned already is not changed.",
		handle: func(ctx context.Context, req *request, p *stockParams, _ *emptyBody) (response, error) {
			return s.pin(ctx, req, p.VariantID, true)
		},
	})
}

func (s *service) unpinVariant() endpoint[stockParams, emptyBody] {
	return pinEndpoint(endpoint[stockParams, emptyBody]{
		id: "unpin-variant", method: http.MethodDelete,
		summary: "Remove the pin of a variant",
		doc: "The same as a stock's lane `auto`: the service chooses the lane, also if the stock's lane was `normal` before the pin. The change is recorded in the audit log with the key that made it. " +
			"A variant that is not pinned to the hot lane is not changed.",
		handle: func(ctx context.Context, req *request, p *stockParams, _ *emptyBody) (response, error) {
			return s.pin(ctx, req, p.VariantID, false)
		},
	})
}

// pinEndpoint completes an endpoint that pins or unpins a variant.
func pinEndpoint(e endpoint[stockParams, emptyBody]) endpoint[stockParams, emptyBody] {
	e.path = "/v1/lanes/hot/variants/{variant_id}"
	e.tag = tagLanes
	e.scope = tenants.ScopeOps
	e.responses = map[int]any{http.StatusOK: pinJSON{}}
	e.problems = []kind{notFound}
	return e
}

// pin pins a variant to the hot lane, or removes its pin.
func (s *service) pin(ctx context.Context, req *request, variant variantID, pinned bool) (response, error) {
	stock, err := s.tenant(req).Pin(ctx, string(variant), pinned, req.opts())
	return req.respond(pinJSON{VariantID: variantID(stock.VariantID), Lane: laneName(stock.CurrentLane), Pinned: stock.Lane == lanes.WishHot}, err)
}
