package httpapi

import (
	"context"
	"errors"
	"net/http"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/internal/inventory"
	"github.com/holdfast/holdfast/internal/lanes"
	"github.com/holdfast/holdfast/internal/tenants"
	"github.com/holdfast/holdfast/queues/hot"
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
			return s.runTx(ctx, req, func(ctx context.Context, tx pgx.Tx) (any, error) {
				return s.placeTx(ctx, tx, req, p.VariantID, lanes.WishHot)
			})
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
			return s.runTx(ctx, req, func(ctx context.Context, tx pgx.Tx) (any, error) {
				stock, err := inventory.Get(ctx, tx, req.principal.TenantID, string(p.VariantID))
				if err != nil {
					return nil, err
				}
				wish := lanes.WishAuto
				if stock.Lane != lanes.WishHot {
					wish = stock.Lane
				}
				return s.placeTx(ctx, tx, req, p.VariantID, wish)
			})
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

// placeTx sets the lane of a stock, which must exist.
func (s *service) placeTx(ctx context.Context, tx pgx.Tx, req *request, variant variantID, wish lanes.Wish) (any, error) {
	patch := inventory.StockPatch{Lane: &wish}
	stock, in, err := hot.SetStockTx(ctx, tx, s.inserter, req.principal.TenantID, string(variant), patch, req.origin(""))
	if errors.Is(err, inventory.ErrStockRequired) { // to create the stock
		err = inventory.ErrUnknownVariant
	}
	if err != nil {
		return nil, err
	}
	return pinJSON{VariantID: variantID(stock.VariantID), Lane: laneName(in.Lane()), Pinned: stock.Lane == lanes.WishHot}, nil
}
