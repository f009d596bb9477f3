package httpapi

import (
	"context"
	"net/http"

	"github.com/holdfast/holdfast/requests"
	"github.com/holdfast/holdfast/tenants"
)

type cartJSON struct {
	CartID       cartID            `json:"cart_id"`
	Reservations []reservationJSON `json:"reservations" doc:"The newest 1000 in any status, newest first."`
	Requests     []cartRequestJSON `json:"requests" doc:"What is not decided yet, oldest first."`
	Failed       []cartRequestJSON `json:"failed" doc:"The latest 20 that failed, latest first, so that a page can put a quantity back."`
}

func (s *service) getCart() endpoint[cartParams, none] {
	return endpoint[cartParams, none]{
		id: "get-cart", method: http.MethodGet, path: "/v1/carts/{cart_id}", tag: tagCarts, scope: tenants.ScopeCart,
		summary: "Read a cart",
		doc:     "An unknown cart is empty.",
		answers: map[int]any{http.StatusOK: cartJSON{}},
		handle: func(ctx context.Context, c *call, p *cartParams, _ *none) (answer, error) {
			cart, err := requests.ViewCart(ctx, s.pool, c.who.TenantID, string(p.CartID))
			if err != nil {
				return answer{}, err
			}
			return respond(http.StatusOK, cartJSON{
				CartID: p.CartID, Reservations: reservationBodies(cart.Reservations),
				Requests: cartRequestBodies(cart.Unfinished), Failed: cartRequestBodies(cart.Failed),
			}), nil
		},
	}
}
