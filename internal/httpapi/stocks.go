package httpapi

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/audit"
	"github.com/holdfast/holdfast/internal/inventory"
	"github.com/holdfast/holdfast/internal/lanes"
	"github.com/holdfast/holdfast/internal/tenants"
	"github.com/holdfast/holdfast/queues/hot"
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
	Lane           laneWish  `json:"lane" doc:"The lane that was asked for."`
	CurrentLane    laneName  `json:"current_lane" doc:"The lane that takes new requests now."`
	CreatedAt      time.Time `json:"created_at"`
	UpdatedAt      time.Time `json:"updated_at"`
}

func stockBody(s inventory.Stock, in lanes.Variant) stockJSON {
	return stockJSON{
		VariantID: variantID(s.VariantID), Stock: s.Stock, Reserved: s.Reserved, Available: s.Available,
		Tracked: s.Tracked, Backorder: s.Backorder, HoldTTLSeconds: s.HoldTTLSeconds, MaxPerCart: s.MaxPerCart,
		Admission: s.Admission, Lane: laneWish(s.Lane), CurrentLane: laneName(in.Lane()), CreatedAt: s.CreatedAt.UTC(), UpdatedAt: s.UpdatedAt.UTC(),
	}
}

// stockBodies returns the bodies of the stocks. It reads their lanes.
func stockBodies(ctx context.Context, db audit.Querier, tenantID uuid.UUID, stocks ...inventory.Stock) ([]stockJSON, error) {
	ids := make([]string, len(stocks))
	for i := range stocks {
		ids[i] = stocks[i].VariantID
	}
	variants, err := lanes.Lookup(ctx, db, tenantID, ids)
	if err != nil {
		return nil, err
	}
	bodies := make([]stockJSON, len(stocks))
	for i := range stocks {
		bodies[i] = stockBody(stocks[i], variants[stocks[i].VariantID])
	}
	return bodies, nil
}

type stockParams struct {
	VariantID variantID `path:"variant_id"`
}

type putStockBody struct {
	Stock          *int64    `json:"stock,omitempty" doc:"Units that exist. A new variant needs it, unless it is not tracked." example:"100"`
	Tracked        *bool     `json:"tracked,omitempty" doc:"False makes the variant digital. New variants are tracked." example:"true"`
	Backorder      *bool     `json:"backorder,omitempty" doc:"Allow holds beyond the stock; false for new variants." example:"false"`
	HoldTTLSeconds *int32    `json:"hold_ttl_seconds,omitempty" doc:"How long a hold lasts; null or 0 for the service's default." example:"900"`
	MaxPerCart     *int32    `json:"max_per_cart,omitempty" doc:"How many units one cart may hold at one time; null or 0 for no limit. It does not limit a customer, who can use several carts, or check out and add again." example:"5"`
	Admission      *string   `json:"admission,omitempty" doc:"token: a caller that adds units to a cart needs an admission token, which requires METERED_COMMANDS_ENABLED. New variants are open."`
	Lane           *laneWish `json:"lane,omitempty" doc:"hot pins the variant to the hot lane, normal to the normal one; auto removes the pin, and the service chooses the lane."`
}

func (b *putStockBody) fields() []field {
	return []field{
		{"stock", false, optional(&b.Stock, whole[int64](0, inventory.MaxStock))},
		{"tracked", false, optional(&b.Tracked, boolean())},
		{"backorder", false, optional(&b.Backorder, boolean())},
		{"hold_ttl_seconds", false, clearable(&b.HoldTTLSeconds, whole[int32](0, ttlMax))},
		{"max_per_cart", false, clearable(&b.MaxPerCart, whole[int32](0, inventory.MaxQuantity))},
		{"admission", false, optional(&b.Admission, oneOf(inventory.AdmissionOpen, inventory.AdmissionToken))},
		{"lane", false, optional(&b.Lane, oneOf(laneWishes()...))},
	}
}

func (b *putStockBody) patch() inventory.StockPatch {
	return inventory.StockPatch{
		Stock: b.Stock, Tracked: b.Tracked, Backorder: b.Backorder,
		HoldTTLSeconds: b.HoldTTLSeconds, MaxPerCart: b.MaxPerCart, Lane: (*lanes.Wish)(b.Lane), Admission: b.Admission,
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
			if s.metering == nil && b.Admission != nil && *b.Admission == inventory.AdmissionToken {
				return response{}, fieldErrors{}.with("admission", "must be open: tokens are off, set METERED_COMMANDS_ENABLED to turn them on")
			}
			return s.runTx(ctx, req, func(ctx context.Context, tx pgx.Tx) (any, error) {
				stock, in, err := hot.SetStockTx(ctx, tx, s.inserter, req.principal.TenantID, string(p.VariantID), b.patch(), req.origin(""))
				if err != nil {
					return nil, err
				}
				return stockBody(stock, in), nil
			})
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
			stock, err := inventory.Get(ctx, s.pool, req.principal.TenantID, string(p.VariantID))
			if err != nil {
				return response{}, err
			}
			bodies, err := stockBodies(ctx, s.pool, req.principal.TenantID, stock)
			if err != nil {
				return response{}, err
			}
			return jsonResponse(http.StatusOK, bodies[0]), nil
		},
	}
}

type listStocksParams struct {
	Limit  stockLimit `query:"limit"`
	Cursor string     `query:"cursor" doc:"next_cursor of the previous page."`
}

// stockLimit is how many stocks a page holds at most; 0 if left out.
type stockLimit int

// Schema describes the limit, for huma.
func (stockLimit) Schema(huma.Registry) *huma.Schema {
	return numberSchema(inventory.MaxPage, fmt.Sprintf("How many at most; %d if left out.", inventory.DefaultPage))
}

type stockPageJSON struct {
	Items      []stockJSON `json:"items"`
	NextCursor *string     `json:"next_cursor" doc:"The cursor of the next page; null on the last page."`
}

func (s *service) listStocks() endpoint[listStocksParams, emptyBody] {
	return endpoint[listStocksParams, emptyBody]{
		id: "list-stocks", method: http.MethodGet, path: "/v1/stocks", tag: tagStocks, scope: tenants.ScopeStock,
		summary:   "List stocks",
		doc:       "In the order of their ids. A variant that exists during the whole listing is on exactly one page.",
		responses: map[int]any{http.StatusOK: stockPageJSON{}},
		handle: func(ctx context.Context, req *request, p *listStocksParams, _ *emptyBody) (response, error) {
			page, err := inventory.List(ctx, s.pool, req.principal.TenantID, int(p.Limit), p.Cursor)
			if err != nil {
				return response{}, err
			}
			items, err := stockBodies(ctx, s.pool, req.principal.TenantID, page.Items...)
			if err != nil {
				return response{}, err
			}
			body := stockPageJSON{Items: items}
			if page.NextCursor != "" {
				body.NextCursor = &page.NextCursor
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
			return s.runTx(ctx, req, func(ctx context.Context, tx pgx.Tx) (any, error) {
				stock, err := inventory.AdjustTx(ctx, tx, req.principal.TenantID, string(p.VariantID), b.Delta, req.origin(b.Reason))
				if err != nil {
					return nil, err
				}
				bodies, err := stockBodies(ctx, tx, req.principal.TenantID, stock)
				if err != nil {
					return nil, err
				}
				return bodies[0], nil
			})
		},
	}
}
