package httpapi

import (
	"context"
	"net/http"

	"github.com/holdfast/holdfast/inventory"
	"github.com/holdfast/holdfast/tenants"
)

type listStocksParams struct {
	Limit  int    `query:"limit" minimum:"1" maximum:"500" doc:"How many at most; 100 if left out."`
	Cursor string `query:"cursor" doc:"next_cursor of the page before."`
}

type stockPageJSON struct {
	Items      []stockJSON `json:"items"`
	NextCursor *string     `json:"next_cursor" doc:"Asks for the next page; null on the last."`
}

func (s *service) listStocks() endpoint[listStocksParams, none] {
	return endpoint[listStocksParams, none]{
		id: "list-stocks", method: http.MethodGet, path: "/v1/stocks", tag: tagStocks, scope: tenants.ScopeStock,
		summary: "List stocks",
		doc:     "In the order of their ids. A variant that exists throughout stands on exactly one page.",
		answers: map[int]any{http.StatusOK: stockPageJSON{}},
		handle: func(ctx context.Context, c *call, p *listStocksParams, _ *none) (answer, error) {
			page, err := inventory.List(ctx, s.pool, c.who.TenantID, p.Limit, p.Cursor)
			if err != nil {
				return answer{}, err
			}
			items, err := stockBodies(ctx, s.pool, c.who.TenantID, page.Items...)
			if err != nil {
				return answer{}, err
			}
			body := stockPageJSON{Items: items}
			if page.NextCursor != "" {
				body.NextCursor = &page.NextCursor
			}
			return respond(http.StatusOK, body), nil
		},
	}
}
