package httpapi

import (
	"context"
	"math"
	"net/http"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/inventory"
	"github.com/holdfast/holdfast/reservations"
	"github.com/holdfast/holdfast/tenants"
)

type extendBody struct {
	Seconds int32 `json:"seconds" minimum:"1" doc:"By how long the deadlines move." example:"300"`
}

func (b *extendBody) fields() []field {
	return []field{{"seconds", true, into(&b.Seconds, whole[int32](1, math.MaxInt32))}}
}

func (b *extendBody) by() time.Duration { return time.Duration(b.Seconds) * time.Second }

type extendedJSON struct {
	Extended []reservationJSON `json:"extended"`
}

func (s *service) extendCart() endpoint[cartParams, extendBody] {
	return endpoint[cartParams, extendBody]{
		id: "extend-cart", method: http.MethodPost, path: "/v1/carts/{cart_id}/extend", tag: tagCarts, scope: tenants.ScopeCart,
		summary:  "Move the deadlines of everything a cart holds",
		doc:      "All or nothing. What would last longer in all than holds may is refused.",
		answers:  map[int]any{http.StatusOK: extendedJSON{}},
		problems: []kind{cartEmpty, holdExpired, lifetimeExceeded, overLimit},
		handle: func(ctx context.Context, c *call, p *cartParams, b *extendBody) (answer, error) {
			body := func(extended []reservations.Reservation) any { return extendedJSON{reservationBodies(extended)} }
			v := inventory.Call{Action: inventory.ExtendCart, CartID: string(p.CartID), By: b.by(), LifetimeMax: s.terms.LifetimeMax}
			return s.grouped(ctx, c, v, body, func(ctx context.Context, tx pgx.Tx) (any, error) {
				extended, err := inventory.ExtendCartTx(ctx, tx, c.who.TenantID, string(p.CartID), b.by(), s.terms.LifetimeMax, c.origin(""))
				if err != nil {
					return nil, err
				}
				return body(extended), nil
			})
		},
	}
}
