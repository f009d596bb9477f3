package httpapi

import (
	"context"
	"net/http"

	"github.com/holdfast/holdfast"
	"github.com/holdfast/holdfast/internal/inventory"
	"github.com/holdfast/holdfast/internal/tenants"
)

// groupJSON is a group of variants in a response.
type groupJSON struct {
	Group                 groupID `json:"group"`
	Variants              int64   `json:"variants" doc:"How many variants are in it: GET /v1/stocks?group= lists them."`
	Stock                 int64   `json:"stock" doc:"Units that exist, of all variants that are not digital."`
	Reserved              int64   `json:"reserved" doc:"Units held."`
	Available             int64   `json:"available" doc:"The sum of what is available of each variant."`
	MaxPerCustomer        *int32  `json:"max_per_customer" doc:"How many units of all variants a customer may hold and have bought; null for no limit."`
	CustomerPeriodSeconds *int32  `json:"customer_period_seconds" doc:"Of which last seconds max_per_customer counts, from the hold; null for all that is on record."`
}

func groupBody(g holdfast.Group) groupJSON {
	return groupJSON{
		Group: groupID(g.GroupID), Variants: g.Variants, Stock: g.Stock, Reserved: g.Reserved, Available: g.Available,
		MaxPerCustomer: g.MaxPerCustomer, CustomerPeriodSeconds: g.CustomerPeriodSeconds,
	}
}

type groupParams struct {
	Group groupID `path:"group"`
}

func (s *service) getGroup() endpoint[groupParams, emptyBody] {
	return endpoint[groupParams, emptyBody]{
		id: "get-group", method: http.MethodGet, path: "/v1/groups/{group}", tag: tagStocks, scope: tenants.ScopeStock,
		summary:   "Read a group of variants",
		doc:       "The sums of its variants, and its limit. A group exists while a variant names it, and once it was set.",
		responses: map[int]any{http.StatusOK: groupJSON{}},
		problems:  []kind{notFound},
		handle: func(ctx context.Context, req *request, p *groupParams, _ *emptyBody) (response, error) {
			g, err := s.tenant(req).Group(ctx, string(p.Group))
			return req.respond(groupBody(g), err)
		},
	}
}

type putGroupBody struct {
	MaxPerCustomer        *int32 `json:"max_per_customer,omitempty" doc:"How many units of all its variants a customer may hold and have bought; null or 0 for no limit." example:"4"`
	CustomerPeriodSeconds *int32 `json:"customer_period_seconds,omitempty" doc:"Of which last seconds max_per_customer counts, from the hold; null or 0 for all that is on record." example:"86400"`
}

func (b *putGroupBody) fields() []field {
	return []field{
		{"max_per_customer", false, clearable(&b.MaxPerCustomer, whole[int32](0, inventory.MaxQuantity))},
		{"customer_period_seconds", false, clearable(&b.CustomerPeriodSeconds, whole[int32](0, inventory.CustomerPeriodMax))},
	}
}

func (s *service) putGroup() endpoint[groupParams, putGroupBody] {
	return endpoint[groupParams, putGroupBody]{
		id: "put-group", method: http.MethodPut, path: "/v1/groups/{group}", tag: tagStocks, scope: tenants.ScopeStock,
		summary:   "Set the limit of a group of variants",
		doc:       "Changes the fields that are given. A limit that is exceeded already leaves what is held.",
		responses: map[int]any{http.StatusOK: groupJSON{}},
		handle: func(ctx context.Context, req *request, p *groupParams, b *putGroupBody) (response, error) {
			patch := holdfast.GroupPatch{MaxPerCustomer: b.MaxPerCustomer, CustomerPeriodSeconds: b.CustomerPeriodSeconds}
			g, err := s.tenant(req).SetGroup(ctx, string(p.Group), patch, req.opts())
			return req.respond(groupBody(g), err)
		},
	}
}

// stocksOf returns the page that the parameters ask for.
func (s *service) stocksOf(ctx context.Context, req *request, p *listStocksParams) (inventory.Page, error) {
	if len(p.VariantID) > 0 {
		if p.Group != "" || p.Limit != 0 || p.Cursor != "" {
			return inventory.Page{}, fieldErrors{{Field: "variant_id", Message: "can't be given with group, limit or cursor"}}
		}
		items, err := s.tenant(req).StocksOf(ctx, p.VariantID)
		return inventory.Page{Items: items}, err
	}
	if p.Group != "" {
		return s.tenant(req).GroupStocks(ctx, p.Group, int(p.Limit), p.Cursor)
	}
	return s.tenant(req).Stocks(ctx, int(p.Limit), p.Cursor)
}
