package httpapi

import (
	"context"
	"net/http"

	"github.com/holdfast/holdfast/inventory"
	"github.com/holdfast/holdfast/tenants"
)

func (s *service) getStock() endpoint[stockParams, none] {
	return endpoint[stockParams, none]{
		id: "get-stock", method: http.MethodGet, path: "/v1/stocks/{variant_id}", tag: tagStocks, scope: tenants.ScopeStock,
		summary:  "Read a stock",
		answers:  map[int]any{http.StatusOK: stockJSON{}},
		problems: []kind{notFound},
		handle: func(ctx context.Context, c *call, p *stockParams, _ *none) (answer, error) {
			stock, err := inventory.Get(ctx, s.pool, c.who.TenantID, string(p.VariantID))
			if err != nil {
				return answer{}, err
			}
			bodies, err := stockBodies(ctx, s.pool, c.who.TenantID, stock)
			if err != nil {
				return answer{}, err
			}
			return respond(http.StatusOK, bodies[0]), nil
		},
	}
}
