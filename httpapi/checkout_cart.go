package httpapi

import (
	"context"
	"net/http"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/inventory"
	"github.com/holdfast/holdfast/requests"
	"github.com/holdfast/holdfast/reservations"
	"github.com/holdfast/holdfast/tenants"
)

type checkedOutJSON struct {
	Committed []reservationJSON `json:"committed"`
}

func (s *service) checkoutCart() endpoint[cartParams, none] {
	return endpoint[cartParams, none]{
		id: "checkout-cart", method: http.MethodPost, path: "/v1/carts/{cart_id}/checkout", tag: tagCarts, scope: tenants.ScopeCart,
		summary: "Check out a cart",
		doc: "Commits everything it holds, all or nothing: stock and reserved go down by what was held. Refused while the cart has " +
			"requests that are not decided, and while it has lost a hold to expiry that was neither removed nor added again.",
		answers:  map[int]any{http.StatusOK: checkedOutJSON{}},
		problems: []kind{requestsPending, holdExpired, cartEmpty, overLimit},
		handle: func(ctx context.Context, c *call, p *cartParams, _ *none) (answer, error) {
			body := func(committed []reservations.Reservation) any { return checkedOutJSON{reservationBodies(committed)} }
			v := inventory.Call{Action: inventory.CheckoutCart, CartID: string(p.CartID)}
			return s.grouped(ctx, c, v, body, func(ctx context.Context, tx pgx.Tx) (any, error) {
				committed, err := requests.CheckoutTx(ctx, tx, c.who.TenantID, string(p.CartID), c.origin(""))
				if err != nil {
					return nil, err
				}
				return body(committed), nil
			})
		},
	}
}
