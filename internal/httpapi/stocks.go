package httpapi

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/holdfast/holdfast"
	"github.com/holdfast/holdfast/internal/inventory"
	"github.com/holdfast/holdfast/internal/lanes"
	"github.com/holdfast/holdfast/internal/tenants"
)

// stockJSON is a stock in a response.
type stockJSON struct {
	VariantID      variantID `json:"variant_id"`
	Stock          int64     `json:"stock" doc:"Units that exist. Below 0 only after checkouts of a backordered variant."`
	Reserved       int64     `json:"reserved" doc:"Units held."`
	Available      int64     `json:"available" doc:"Units that a new request can hold: stock minus reserved plus the units of due holds. Of the due holds of a variant, the 200 oldest are counted: with more of them it is a lower bound."`
	Tracked        bool      `json:"tracked" doc:"False for a digital variant: requests for it are done at once and hold nothing."`
	Backorder      bool      `json:"backorder" doc:"Holds may exceed the stock."`
	HoldTTLSeconds *int32    `json:"hold_ttl_seconds" doc:"How long a hold lasts; null for the service's default."`
	MaxPerCart     *int32    `json:"max_per_cart" doc:"How many units one cart may hold at one time; null for no limit. It does not limit a customer, who can use several carts, or check out and add again."`
	Admission      string    `json:"admission" enum:"open,token" doc:"token: a caller that adds units to a cart needs an admission token."`
	SaleJSON
	PreorderMax *int64    `json:"preorder_max" doc:"How far holds may exceed the stock of a variant that allows backorder, a part of available; null for no limit."`
	Lane        laneWish  `json:"lane" doc:"The lane that was asked for."`
	CurrentLane laneName  `json:"current_lane" doc:"The lane that takes new requests now."`
	CreatedAt   time.Time `json:"created_at"`
	UpdatedAt   time.Time `json:"updated_at"`
}

// SaleJSON has the rules of a variant's sale. It is exported for huma, which
// leaves out embedded fields of other types.
type SaleJSON struct {
	SaleStartsAt          *time.Time `json:"sale_starts_at" doc:"When units can be added, by the database's clock; null for at once."`
	SaleEndsAt            *time.Time `json:"sale_ends_at" doc:"Until when units can be added; null for no end. What is held then can be checked out, and its quantity lowered."`
	QuantityMin           *int32     `json:"quantity_min" doc:"The least quantity of a cart; null for 1."`
	QuantityStep          *int32     `json:"quantity_step" doc:"Of what the quantity of a cart is a multiple; null for 1."`
	MaxPerCustomer        *int32     `json:"max_per_customer" doc:"How many units a customer may hold and have bought; null for no limit. Released, expired and returned ones do not count."`
	CustomerPeriodSeconds *int32     `json:"customer_period_seconds" doc:"Of which last seconds max_per_customer counts, from the hold; null for all that is on record."`
	Group                 *string    `json:"group" doc:"The group of the variant; null for none."`
	ClaimSeconds          *int32     `json:"claim_seconds" doc:"How long units are held that were offered to a request in line; null for the time of any hold."`
}

func saleBody(s *inventory.Sale) SaleJSON {
	if s == nil {
		return SaleJSON{}
	}
	return SaleJSON{
		SaleStartsAt: s.StartsAt, SaleEndsAt: s.EndsAt, QuantityMin: s.QuantityMin, QuantityStep: s.QuantityStep,
		MaxPerCustomer: s.MaxPerCustomer, CustomerPeriodSeconds: s.CustomerPeriodSeconds, Group: s.Group, ClaimSeconds: s.ClaimSeconds,
	}
}

func stockBody(s holdfast.Stock) stockJSON {
	return stockJSON{
		SaleJSON: saleBody(s.Sale), PreorderMax: s.PreorderMax,
		VariantID: variantID(s.VariantID), Stock: s.Stock, Reserved: s.Reserved, Available: s.Available,
		Tracked: s.Tracked, Backorder: s.Backorder, HoldTTLSeconds: s.HoldTTLSeconds, MaxPerCart: s.MaxPerCart,
		Admission: s.Admission, Lane: laneWish(s.Lane), CurrentLane: laneName(s.CurrentLane), CreatedAt: s.CreatedAt.UTC(), UpdatedAt: s.UpdatedAt.UTC(),
	}
}

type stockParams struct {
	VariantID variantID `path:"variant_id"`
}

type putStockBody struct {
	Stock          *int64  `json:"stock,omitempty" doc:"Units that exist. A new variant needs it, unless it is not tracked." example:"100"`
	Tracked        *bool   `json:"tracked,omitempty" doc:"False makes the variant digital. New variants are tracked." example:"true"`
	Backorder      *bool   `json:"backorder,omitempty" doc:"Allow holds beyond the stock; false for new variants." example:"false"`
	HoldTTLSeconds *int32  `json:"hold_ttl_seconds,omitempty" doc:"How long a hold lasts; null or 0 for the service's default." example:"900"`
	MaxPerCart     *int32  `json:"max_per_cart,omitempty" doc:"How many units one cart may hold at one time; null or 0 for no limit. It does not limit a customer, who can use several carts, or check out and add again." example:"5"`
	Admission      *string `json:"admission,omitempty" doc:"token: a caller that adds units to a cart needs an admission token, which requires METERED_COMMANDS_ENABLED. New variants are open."`
	PreorderMax    *int64  `json:"preorder_max,omitempty" doc:"How far holds may exceed the stock; needs backorder. null or 0 for no limit." example:"50"`

	SaleStartsAt          *time.Time `json:"sale_starts_at,omitempty" doc:"When units can be added, by the database's clock; null for at once." example:"2026-12-01T10:00:00Z"`
	SaleEndsAt            *time.Time `json:"sale_ends_at,omitempty" doc:"Until when units can be added; null for no end." example:"2026-12-24T00:00:00Z"`
	QuantityMin           *int32     `json:"quantity_min,omitempty" doc:"The least quantity of a cart; null or 0 for 1." example:"6"`
	QuantityStep          *int32     `json:"quantity_step,omitempty" doc:"Of what the quantity of a cart is a multiple; null or 0 for 1." example:"6"`
	MaxPerCustomer        *int32     `json:"max_per_customer,omitempty" doc:"How many units a customer may hold and have bought; null or 0 for no limit." example:"2"`
	CustomerPeriodSeconds *int32     `json:"customer_period_seconds,omitempty" doc:"Of which last seconds max_per_customer counts, from the hold; null or 0 for all that is on record." example:"86400"`

	Group *string `json:"group,omitempty" doc:"The group of the variant, such as its product; null or empty for none. A group's sums are at /v1/groups/{group}, where it can have a limit per customer." example:"shirt"`

	ClaimSeconds *int32 `json:"claim_seconds,omitempty" doc:"How long units are held that were offered to a request in line; null or 0 for the time of any hold." example:"600"`

	Lane *laneWish `json:"lane,omitempty" doc:"hot pins the variant to the hot lane, normal to the normal one; auto removes the pin, and the service chooses the lane."`
}

func (b *putStockBody) fields() []field {
	return []field{
		{"stock", false, optional(&b.Stock, whole[int64](0, inventory.MaxStock))},
		{"tracked", false, optional(&b.Tracked, boolean())},
		{"backorder", false, optional(&b.Backorder, boolean())},
		{"hold_ttl_seconds", false, clearable(&b.HoldTTLSeconds, whole[int32](0, ttlMax))},
		{"max_per_cart", false, clearable(&b.MaxPerCart, whole[int32](0, inventory.MaxQuantity))},
		{"preorder_max", false, clearable(&b.PreorderMax, whole[int64](0, inventory.MaxStock))},
		{"sale_starts_at", false, instant(&b.SaleStartsAt)},
		{"sale_ends_at", false, instant(&b.SaleEndsAt)},
		{"quantity_min", false, clearable(&b.QuantityMin, whole[int32](0, inventory.MaxQuantity))},
		{"quantity_step", false, clearable(&b.QuantityStep, whole[int32](0, inventory.MaxQuantity))},
		{"max_per_customer", false, clearable(&b.MaxPerCustomer, whole[int32](0, inventory.MaxQuantity))},
		{"customer_period_seconds", false, clearable(&b.CustomerPeriodSeconds, whole[int32](0, inventory.CustomerPeriodMax))},
		{"group", false, clearable(&b.Group, newGroup())},
		{"claim_seconds", false, clearable(&b.ClaimSeconds, whole[int32](0, ttlMax))},
		{"admission", false, optional(&b.Admission, oneOf(inventory.AdmissionOpen, inventory.AdmissionToken))},
		{"lane", false, optional(&b.Lane, oneOf(laneWishes()...))},
	}
}

func (b *putStockBody) patch() inventory.StockPatch {
	return inventory.StockPatch{
		Stock: b.Stock, Tracked: b.Tracked, Backorder: b.Backorder,
		HoldTTLSeconds: b.HoldTTLSeconds, MaxPerCart: b.MaxPerCart, Lane: (*lanes.Wish)(b.Lane), Admission: b.Admission,
		PreorderMax: b.PreorderMax, Sale: &inventory.Sale{
			StartsAt: b.SaleStartsAt, EndsAt: b.SaleEndsAt, QuantityMin: b.QuantityMin, QuantityStep: b.QuantityStep,
			MaxPerCustomer: b.MaxPerCustomer, CustomerPeriodSeconds: b.CustomerPeriodSeconds, Group: b.Group, ClaimSeconds: b.ClaimSeconds,
		},
	}
}

// ttlMax is inventory.MaxTTL in seconds.
const ttlMax = int32(inventory.MaxTTL / 1e9)

func (s *service) putStock() endpoint[stockParams, putStockBody] {
	return endpoint[stockParams, putStockBody]{
		id: "put-stock", method: http.MethodPut, path: "/v1/stocks/{variant_id}", tag: tagStocks, scope: tenants.ScopeStock,
		summary:   "Set a stock",
		doc:       "Creates the variant, or changes the fields that are given; the others stay as they are.",
		responses: map[int]any{http.StatusOK: stockJSON{}},
		problems:  []kind{belowReserved},
		handle: func(ctx context.Context, req *request, p *stockParams, b *putStockBody) (response, error) {
			if !s.metered && b.Admission != nil && *b.Admission == inventory.AdmissionToken {
				return response{}, fieldErrors{}.with("admission", "must be open: tokens are off, set METERED_COMMANDS_ENABLED to turn them on")
			}
			stock, err := s.tenant(req).SetStock(ctx, string(p.VariantID), b.patch(), req.opts())
			return req.respond(stockBody(stock), err)
		},
	}
}

func (s *service) getStock() endpoint[stockParams, emptyBody] {
	return endpoint[stockParams, emptyBody]{
		id: "get-stock", method: http.MethodGet, path: "/v1/stocks/{variant_id}", tag: tagStocks, scope: tenants.ScopeStock,
		summary:   "Read a stock",
		responses: map[int]any{http.StatusOK: stockJSON{}},
		problems:  []kind{notFound},
		handle: func(ctx context.Context, req *request, p *stockParams, _ *emptyBody) (response, error) {
			stock, err := s.tenant(req).Stock(ctx, string(p.VariantID))
			return req.respond(stockBody(stock), err)
		},
	}
}

type listStocksParams struct {
	VariantID []string   `query:"variant_id,explode" maxItems:"200" doc:"Only these variants, on one page. Not with the other parameters."`
	Group     string     `query:"group" doc:"Only the variants of the group."`
	Limit     stockLimit `query:"limit"`
	Cursor    string     `query:"cursor" doc:"next_cursor of the previous page."`
}

// stockLimit is how many stocks a page holds at most; 0 if left out.
type stockLimit int

// Schema describes the limit, for huma.
func (stockLimit) Schema(huma.Registry) *huma.Schema {
	return numberSchema(inventory.MaxPage, fmt.Sprintf("How many at most; %d if left out.", inventory.DefaultPage))
}

type stockPageJSON struct {
	Items      []stockJSON `json:"items"`
	Unknown    []string    `json:"unknown,omitempty" doc:"Those of variant_id that do not exist."`
	NextCursor *string     `json:"next_cursor" doc:"The cursor of the next page; null on the last page."`
}

func (s *service) listStocks() endpoint[listStocksParams, emptyBody] {
	return endpoint[listStocksParams, emptyBody]{
		id: "list-stocks", method: http.MethodGet, path: "/v1/stocks", tag: tagStocks, scope: tenants.ScopeStock,
		summary: "List stocks",
		doc: "In the order of their ids; of one group, if it is given. A variant that exists during the whole listing is on exactly one page. " +
			"With variant_id, up to 200 times, the stocks of these variants in that order: what a page of products needs.",
		responses: map[int]any{http.StatusOK: stockPageJSON{}},
		handle: func(ctx context.Context, req *request, p *listStocksParams, _ *emptyBody) (response, error) {
			page, err := s.stocksOf(ctx, req, p)
			if err != nil {
				return response{}, err
			}
			body := stockPageJSON{Items: make([]stockJSON, len(page.Items))}
			for i := range page.Items {
				body.Items[i] = stockBody(page.Items[i])
			}
			if page.NextCursor != "" {
				body.NextCursor = &page.NextCursor
			}
			for _, id := range p.VariantID {
				found := slices.ContainsFunc(body.Items, func(s stockJSON) bool { return string(s.VariantID) == id })
				if !found && !slices.Contains(body.Unknown, id) {
					body.Unknown = append(body.Unknown, id)
				}
			}
			return jsonResponse(http.StatusOK, body), nil
		},
	}
}

type adjustStockBody struct {
	Delta  int64  `json:"delta" doc:"Units to add, below 0 to remove units; not 0." example:"-3"`
	Reason string `json:"reason,omitempty" doc:"Why, for the audit log." example:"damaged"`
}

func (b *adjustStockBody) fields() []field {
	return []field{
		{"delta", true, into(&b.Delta, whole[int64](-inventory.MaxStock, inventory.MaxStock))},
		{"reason", false, into(&b.Reason, note())},
	}
}

func (s *service) adjustStock() endpoint[stockParams, adjustStockBody] {
	return endpoint[stockParams, adjustStockBody]{
		id: "adjust-stock", method: http.MethodPost, path: "/v1/stocks/{variant_id}/adjust", tag: tagStocks, scope: tenants.ScopeStock,
		summary:   "Add units to a stock or remove units",
		responses: map[int]any{http.StatusOK: stockJSON{}},
		problems:  []kind{notFound, belowReserved},
		handle: func(ctx context.Context, req *request, p *stockParams, b *adjustStockBody) (response, error) {
			opts := req.opts()
			opts.Reason = b.Reason
			stock, err := s.tenant(req).AdjustStock(ctx, string(p.VariantID), b.Delta, opts)
			return req.respond(stockBody(stock), err)
		},
	}
}
