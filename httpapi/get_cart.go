package httpapi

import (
	"context"
	"net/http"

	"github.com/holdfast/holdfast/requests"
	"github.com/holdfast/holdfast/tenants"
)

type getCartParams struct {
	CartID cartID `path:"cart_id"`
	Limit  int    `query:"limit" minimum:"1" maximum:"1000" doc:"How many reservations, and how many requests, at most; 1000 if left out."`
	Cursor string `query:"cursor" doc:"next_cursor of the page before."`
}

type cartJSON struct {
	CartID       cartID            `json:"cart_id"`
	Reservations []reservationJSON `json:"reservations" doc:"In any status, newest first."`
	Requests     []cartRequestJSON `json:"requests" doc:"What is not decided yet, oldest first."`
	Failed       []cartRequestJSON `json:"failed" doc:"The latest 20 that failed, latest first, so that a page can put a quantity back; on every page the same."`
	NextCursor   *string           `json:"next_cursor" doc:"Asks for the next page of reservations and requests; null on the last."`
}

func (s *service) getCart() endpoint[getCartParams, none] {
	return endpoint[getCartParams, none]{
		id: "get-cart", method: http.MethodGet, path: "/v1/carts/{cart_id}", tag: tagCarts, scope: tenants.ScopeCart,
		summary: "Read a cart",
		doc: "An unknown cart is empty. One of more than 1000 reservations or requests has several pages: what exists throughout is on " +
			"exactly one of them.",
		answers: map[int]any{http.StatusOK: cartJSON{}},
		handle: func(ctx context.Context, c *call, p *getCartParams, _ *none) (answer, error) {
			cart, err := requests.ViewCart(ctx, s.pool, c.who.TenantID, string(p.CartID), p.Limit, p.Cursor)
			if err != nil {
				return answer{}, err
			}
			body := cartJSON{
				CartID: p.CartID, Reservations: reservationBodies(cart.Reservations),
				Requests: cartRequestBodies(cart.Unfinished), Failed: cartRequestBodies(cart.Failed),
			}
			if cart.NextCursor != "" {
				body.NextCursor = &cart.NextCursor
			}
			return respond(http.StatusOK, body), nil
		},
	}
}
