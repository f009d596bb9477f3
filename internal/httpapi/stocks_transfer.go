package httpapi

import (
	"context"
	"net/http"

	"github.com/holdfast/holdfast/internal/inventory"
	"github.com/holdfast/holdfast/internal/tenants"
)

type transferStockBody struct {
	From     variantID `json:"from" example:"shirt@berlin"`
	To       variantID `json:"to" example:"shirt@paris"`
	Quantity int64     `json:"quantity" doc:"Units to move." example:"10"`
	Reason   string    `json:"reason,omitempty" doc:"Why, for the audit log." example:"rebalance"`
}

func (b *transferStockBody) fields() []field {
	return []field{
		{"from", true, into(&b.From, text[variantID](checkVariantID))},
		{"to", true, into(&b.To, text[variantID](checkVariantID))},
		{"quantity", true, into(&b.Quantity, whole[int64](1, inventory.MaxStock))},
		{"reason", false, into(&b.Reason, note())},
	}
}

type transferredJSON struct {
	From stockJSON `json:"from"`
	To   stockJSON `json:"to"`
}

func (s *service) transferStock() endpoint[struct{}, transferStockBody] {
	return endpoint[struct{}, transferStockBody]{
		id: "transfer-stock", method: http.MethodPost, path: "/v1/stocks/transfer", tag: tagStocks, scope: tenants.ScopeStock,
		summary:   "Move units from one stock to another",
		doc:       "Both change or neither does. Units that are held are not moved.",
		responses: map[int]any{http.StatusOK: transferredJSON{}},
		problems:  []kind{notFound, tooFewFree},
		handle: func(ctx context.Context, req *request, _ *struct{}, b *transferStockBody) (response, error) {
			opts := req.opts()
			opts.Reason = b.Reason
			moved, err := s.tenant(req).TransferStock(ctx, string(b.From), string(b.To), b.Quantity, opts)
			return req.respond(transferredJSON{stockBody(moved.From), stockBody(moved.To)}, err)
		},
	}
}

type deletedJSON struct {
	VariantID variantID `json:"variant_id"`
}

func (s *service) deleteStock() endpoint[stockParams, emptyBody] {
	return endpoint[stockParams, emptyBody]{
		id: "delete-stock", method: http.MethodDelete, path: "/v1/stocks/{variant_id}", tag: tagStocks, scope: tenants.ScopeStock,
		summary: "Delete a stock",
		doc: "Deletes a variant, or a block with its units; refused while units are held. The record stays. Requests for it fail with " +
			"unknown_variant, and its id can be used again.",
		responses: map[int]any{http.StatusOK: deletedJSON{}},
		problems:  []kind{notFound, belowReserved},
		handle: func(ctx context.Context, req *request, p *stockParams, _ *emptyBody) (response, error) {
			return req.respond(deletedJSON{p.VariantID}, s.tenant(req).DeleteStock(ctx, string(p.VariantID), req.opts()))
		},
	}
}
