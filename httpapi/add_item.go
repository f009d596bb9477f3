package httpapi

import (
	"context"
	"net/http"

	"github.com/holdfast/holdfast/inventory"
	"github.com/holdfast/holdfast/requests"
	"github.com/holdfast/holdfast/tenants"
)

type cartParams struct {
	CartID cartID `path:"cart_id"`
}

type addItemBody struct {
	VariantID variantID `json:"variant_id" example:"shirt-m"`
	Quantity  int32     `json:"quantity" minimum:"1" maximum:"1000000" doc:"Units." example:"2"`
}

func (b *addItemBody) fields() []field {
	return []field{
		{"variant_id", true, into(&b.VariantID, text[variantID](checkVariantID))},
		{"quantity", true, into(&b.Quantity, whole[int32](1, inventory.MaxQuantity))},
	}
}

func (s *service) addItem() endpoint[cartParams, addItemBody] {
	return endpoint[cartParams, addItemBody]{
		id: "add-item", method: http.MethodPost, path: "/v1/carts/{cart_id}/items", tag: tagCarts, scope: tenants.ScopeCart,
		summary: "Add units of a variant to a cart",
		doc: "Queues a request and answers 202; what came of it stands at status_url. A request for a digital variant is done at once. " +
			"An unknown variant is a request that fails.",
		answers: submitAnswers, problems: submitProblems, headers: submitHeaders, replies: submitReplies, timeout: ownBounds,
		handle: func(ctx context.Context, c *call, p *cartParams, b *addItemBody) (answer, error) {
			return s.submit(ctx, c, requests.Submission{
				Kind: requests.Add, CartID: string(p.CartID), VariantID: string(b.VariantID), Quantity: b.Quantity,
			})
		},
	}
}
