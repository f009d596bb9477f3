package httpapi

import (
	"context"
	"net/http"

	"github.com/holdfast/holdfast/reservations"
	"github.com/holdfast/holdfast/tenants"
)

type removeCartParams struct {
	CartID cartID                     `path:"cart_id"`
	Reason reservations.ReleaseReason `query:"reason" enum:"cart_removed,payment_failed,abandoned,operator" doc:"Why; cart_removed if left out."`
}

func (s *service) removeCart() endpoint[removeCartParams, none] {
	return endpoint[removeCartParams, none]{
		id: "remove-cart", method: http.MethodDelete, path: "/v1/carts/{cart_id}", tag: tagCarts, scope: tenants.ScopeCart,
		summary:  "Empty a cart",
		doc:      "Releases everything it holds and cancels everything it has queued. An unknown cart is empty.",
		answers:  map[int]any{http.StatusOK: removedJSON{}},
		problems: []kind{overLimit},
		handle: func(ctx context.Context, c *call, p *removeCartParams, _ *none) (answer, error) {
			return s.remove(ctx, c, string(p.CartID), "", p.Reason)
		},
	}
}
