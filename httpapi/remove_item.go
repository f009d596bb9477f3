package httpapi

import (
	"cmp"
	"context"
	"net/http"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/inventory"
	"github.com/holdfast/holdfast/requests"
	"github.com/holdfast/holdfast/reservations"
	"github.com/holdfast/holdfast/tenants"
)

type removeItemParams struct {
	CartID    cartID                     `path:"cart_id"`
	VariantID variantID                  `path:"variant_id"`
	Reason    reservations.ReleaseReason `query:"reason" enum:"cart_removed,payment_failed,abandoned,operator" doc:"Why; cart_removed if left out."`
}

type removedJSON struct {
	Released  int64       `json:"released" doc:"Units that were released. Holds past their deadline have expired and are not counted."`
	Cancelled []uuid.UUID `json:"cancelled" doc:"Requests that were queued and will not be decided: they failed with reason cancelled."`
}

func (s *service) removeItem() endpoint[removeItemParams, none] {
	return endpoint[removeItemParams, none]{
		id: "remove-item", method: http.MethodDelete, path: "/v1/carts/{cart_id}/items/{variant_id}", tag: tagCarts, scope: tenants.ScopeCart,
		summary:  "Remove a variant from a cart",
		doc:      "Releases what is held of it and cancels what is queued for it. Removing what is not there is no error.",
		answers:  map[int]any{http.StatusOK: removedJSON{}},
		problems: []kind{overLimit},
		handle: func(ctx context.Context, c *call, p *removeItemParams, _ *none) (answer, error) {
			return s.remove(ctx, c, string(p.CartID), string(p.VariantID), p.Reason)
		},
	}
}

// remove takes a variant, or (variantID "") everything, out of a cart.
func (s *service) remove(ctx context.Context, c *call, cartID, variantID string, reason reservations.ReleaseReason) (answer, error) {
	reason = cmp.Or(reason, reservations.CartRemoved)
	var cancelled []requests.Request
	body := func(released []reservations.Reservation) any {
		return removedJSON{Released: unitsOf(released), Cancelled: []uuid.UUID{}}
	}
	v := inventory.Call{Action: inventory.ReleaseCart, CartID: cartID, VariantID: variantID, Reason: reason}
	a, err := s.grouped(ctx, c, v, body, func(ctx context.Context, tx pgx.Tx) (any, error) {
		removed, err := requests.RemoveTx(ctx, tx, c.who.TenantID, cartID, variantID, reason, c.origin(""))
		if err != nil {
			return nil, err
		}
		body := removedJSON{Released: unitsOf(removed.Released), Cancelled: removed.Cancelled}
		if body.Cancelled == nil {
			body.Cancelled = []uuid.UUID{}
		}
		cancelled = nil
		for _, id := range removed.Cancelled {
			cancelled = append(cancelled, requests.Request{TenantID: c.who.TenantID, RequestID: id})
		}
		return body, nil
	})
	if err != nil {
		return answer{}, err
	}
	if err := requests.Announce(ctx, s.pool, cancelled); err != nil { // waiters read again by themselves
		s.log.WarnContext(ctx, "cancelled requests were not announced", "error", err)
	}
	return a, nil
}
