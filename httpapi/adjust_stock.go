package httpapi

import (
	"context"
	"errors"
	"net/http"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/inventory"
	"github.com/holdfast/holdfast/tenants"
)

type adjustStockBody struct {
	Delta  int64  `json:"delta" minimum:"-1000000000" maximum:"1000000000" doc:"Units to add; below 0 to take away, never 0." example:"-3"`
	Reason string `json:"reason,omitempty" maxLength:"255" doc:"Why, for the audit log." example:"damaged"`
}

func (b *adjustStockBody) fields() []field {
	return []field{
		{"delta", true, into(&b.Delta, whole[int64](-inventory.MaxStock, inventory.MaxStock))},
		{"reason", false, into(&b.Reason, text[string](checkReason))},
	}
}

func checkReason(reason string) error {
	if reason == "" || isToken(reason) {
		return nil
	}
	return errors.New("must be at most 255 characters of UTF-8 without control characters")
}

func (s *service) adjustStock() endpoint[stockParams, adjustStockBody] {
	return endpoint[stockParams, adjustStockBody]{
		id: "adjust-stock", method: http.MethodPost, path: "/v1/stocks/{variant_id}/adjust", tag: tagStocks, scope: tenants.ScopeStock,
		summary:  "Add to a stock or take from it",
		answers:  map[int]any{http.StatusOK: stockJSON{}},
		problems: []kind{notFound, belowReserved},
		handle: func(ctx context.Context, c *call, p *stockParams, b *adjustStockBody) (answer, error) {
			return s.finish(ctx, c, func(ctx context.Context, tx pgx.Tx) (any, error) {
				stock, err := inventory.AdjustTx(ctx, tx, c.who.TenantID, string(p.VariantID), b.Delta, c.origin(b.Reason))
				if err != nil {
					return nil, err
				}
				bodies, err := stockBodies(ctx, tx, c.who.TenantID, stock)
				if err != nil {
					return nil, err
				}
				return bodies[0], nil
			})
		},
	}
}
