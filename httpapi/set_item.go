package httpapi

import (
	"context"
	"net/http"

	"github.com/holdfast/holdfast/inventory"
	"github.com/holdfast/holdfast/requests"
	"github.com/holdfast/holdfast/tenants"
)

type itemParams struct {
	CartID    cartID    `path:"cart_id"`
	VariantID variantID `path:"variant_id"`
}

type setItemBody struct {
	Quantity int32 `json:"quantity" minimum:"1" maximum:"1000000" doc:"Units that the cart is to hold of the variant." example:"3"`
}

func (b *setItemBody) fields() []field {
	return []field{{"quantity", true, into(&b.Quantity, whole[int32](1, inventory.MaxQuantity))}}
}

func (s *service) setItem() endpoint[itemParams, setItemBody] {
	return endpoint[itemParams, setItemBody]{
		id: "set-item", method: http.MethodPatch, path: "/v1/carts/{cart_id}/items/{variant_id}", tag: tagCarts, scope: tenants.ScopeCart,
		summary: "Change how many units of a variant a cart holds",
		doc: "Queues a request, as adding does. It is decided after the cart's earlier requests for the variant: the old hold is released " +
			"and the new one made, both or neither. To hold none, remove the item.",
		answers: submitAnswers, problems: submitProblems, headers: submitHeaders, replies: submitReplies, timeout: ownBounds,
		handle: func(ctx context.Context, c *call, p *itemParams, b *setItemBody) (answer, error) {
			return s.submit(ctx, c, requests.Submission{
				Kind: requests.Set, CartID: string(p.CartID), VariantID: string(p.VariantID), Quantity: b.Quantity,
			})
		},
	}
}
