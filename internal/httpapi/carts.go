package httpapi

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/google/uuid"

	"github.com/holdfast/holdfast"
	"github.com/holdfast/holdfast/internal/inventory"
	"github.com/holdfast/holdfast/internal/requestrows"
	"github.com/holdfast/holdfast/internal/tenants"
)

type cartParams struct {
	CartID cartID `path:"cart_id"`
}

type addItemBody struct {
	VariantID variantID `json:"variant_id,omitempty" example:"shirt-m"`
	Quantity  int32     `json:"quantity,omitempty" doc:"Units." example:"2"`
	Allotment allotment `json:"allotment,omitempty" example:"fan-club" doc:"With variant_id: the allotment whose units are wanted."`
	UnitsWish
	WaitForStock bool `json:"wait_for_stock,omitempty" doc:"With variant_id, or block and any_of: if too few units are free, the request waits in line for them."`
}

func (b *addItemBody) fields() []field {
	return []field{
		{"variant_id", true, into(&b.VariantID, text[variantID](checkVariantID))},
		{"quantity", true, into(&b.Quantity, whole[int32](1, inventory.MaxQuantity))},
		{"allotment", false, into(&b.Allotment, text[allotment](checkAllotment))},
		{"wait_for_stock", false, into(&b.WaitForStock, boolean())},
	}
}

func (s *service) addItem() endpoint[cartParams, addItemBody] {
	return submitEndpoint(endpoint[cartParams, addItemBody]{
		id: "add-item", method: http.MethodPost, path: "/v1/carts/{cart_id}/items",
		summary: "Add units of a variant, units of a block, kits, or several lines, to a cart",
		doc: "Queues a request and responds 202; its outcome can be read at status_url. A request for a digital variant is done at once. " +
			"A request for an unknown variant or block fails. The body has one of five forms: variant_id and quantity; block and unit_ids, for " +
			"the units that are named; block and any_of, for that many units; kit_id and quantity, as a request of one line; lines, each with one " +
			"of these forms or one_of. All units of a request are held, or none; with partial, what there is of each line, in whole kits. Once a " +
			"request of lines is finished, it has what was held for each. With wait_for_stock a request that comes up short has the status waiting, and " +
			"its place in line as position. Units that become free are offered to those in line: the request is then done, and its reservation " +
			"is held for claim_seconds. Units of an allotment are held only for a request that names it.",
		handle: func(ctx context.Context, req *request, p *cartParams, b *addItemBody) (response, error) {
			if len(b.Lines) > 0 {
				return s.submitLines(ctx, req, p.CartID, &b.UnitsWish)
			}
			if b.KitID != "" {
				return s.submitKit(ctx, req, p.CartID, b)
			}
			if b.Block != "" {
				return s.submitUnits(ctx, req, p.CartID, b)
			}
			return s.submit(req, string(p.CartID), func(opts *holdfast.CallOpts) (holdfast.Outcome, error) {
				opts.WaitForStock, opts.Allotment = b.WaitForStock, string(b.Allotment)
				return s.tenant(req).Add(ctx, string(p.CartID), string(b.VariantID), b.Quantity, opts)
			})
		},
	})
}

type itemParams struct {
	CartID    cartID    `path:"cart_id"`
	VariantID variantID `path:"variant_id"`
}

type setItemBody struct {
	Quantity  int32     `json:"quantity" doc:"Units of the variant that the cart is to hold." example:"3"`
	Allotment allotment `json:"allotment,omitempty" example:"fan-club" doc:"Change what the cart holds from this allotment. Otherwise what it holds from none is changed."`
}

func (b *setItemBody) fields() []field {
	return []field{
		{"quantity", true, into(&b.Quantity, whole[int32](1, inventory.MaxQuantity))},
		{"allotment", false, into(&b.Allotment, text[allotment](checkAllotment))},
	}
}

func (s *service) setItem() endpoint[itemParams, setItemBody] {
	return submitEndpoint(endpoint[itemParams, setItemBody]{
		id: "set-item", method: http.MethodPatch, path: "/v1/carts/{cart_id}/items/{variant_id}",
		summary: "Change how many units of a variant a cart holds",
		doc: "Queues a request, as adding does. It is decided after the cart's earlier requests for the variant. The old hold is released " +
			"and the new one made, both or neither. To hold none, remove the item. variant_id may be the id of a block: the cart keeps as many " +
			"of its units as the quantity allows, and gets any others. What the cart holds from an allotment is changed separately. While the cart holds units of the variant for a kit, it fails (part_of_kit).",
		handle: func(ctx context.Context, req *request, p *itemParams, b *setItemBody) (response, error) {
			return s.submit(req, string(p.CartID), func(opts *holdfast.CallOpts) (holdfast.Outcome, error) {
				opts.Allotment = string(b.Allotment)
				return s.tenant(req).Set(ctx, string(p.CartID), string(p.VariantID), b.Quantity, opts)
			})
		},
	})
}

type removeItemParams struct {
	CartID    cartID        `path:"cart_id"`
	VariantID variantID     `path:"variant_id"`
	Reason    releaseReason `query:"reason" doc:"Why; cart_removed if left out."`
}

type removedJSON struct {
	Released  int64       `json:"released" doc:"Units that were released. Holds past their deadline have expired and are not counted."`
	Cancelled []uuid.UUID `json:"cancelled" doc:"Requests that were queued and will not be decided: they failed with reason cancelled."`
}

func (s *service) removeItem() endpoint[removeItemParams, emptyBody] {
	return endpoint[removeItemParams, emptyBody]{
		id: "remove-item", method: http.MethodDelete, path: "/v1/carts/{cart_id}/items/{variant_id}", tag: tagCarts, scope: tenants.ScopeCart,
		summary:   "Remove a variant from a cart",
		doc:       "Releases the cart's holds of it and cancels the queued requests for it. To remove a variant that is not in the cart is no error. variant_id may be the id of a block. Units that are held for a kit are removed with the kit only.",
		responses: map[int]any{http.StatusOK: removedJSON{}},
		problems:  []kind{partOfKit, checkoutRunning, overLimit},
		handle: func(ctx context.Context, req *request, p *removeItemParams, _ *emptyBody) (response, error) {
			return s.remove(ctx, req, string(p.CartID), string(p.VariantID), p.Reason)
		},
	}
}

// remove releases the holds and cancels the requests of a cart for one variant,
// or for all if variantID is "".
func (s *service) remove(ctx context.Context, req *request, cartID, variantID string, given releaseReason) (response, error) {
	removed, err := s.tenant(req).Remove(ctx, cartID, variantID, given.orDefault(), req.opts())
	return req.respond(removedJSON{Released: unitsOf(removed.Released), Cancelled: append([]uuid.UUID{}, removed.Cancelled...)}, err)
}

type removeCartParams struct {
	CartID cartID        `path:"cart_id"`
	Reason releaseReason `query:"reason" doc:"Why; cart_removed if left out."`
}

func (s *service) removeCart() endpoint[removeCartParams, emptyBody] {
	return endpoint[removeCartParams, emptyBody]{
		id: "remove-cart", method: http.MethodDelete, path: "/v1/carts/{cart_id}", tag: tagCarts, scope: tenants.ScopeCart,
		summary:   "Empty a cart",
		doc:       "Releases all its holds and cancels all its queued requests. An unknown cart is empty.",
		responses: map[int]any{http.StatusOK: removedJSON{}},
		problems:  []kind{checkoutRunning, overLimit},
		handle: func(ctx context.Context, req *request, p *removeCartParams, _ *emptyBody) (response, error) {
			return s.remove(ctx, req, string(p.CartID), "", p.Reason)
		},
	}
}

type getCartParams struct {
	CartID cartID    `path:"cart_id"`
	Limit  cartLimit `query:"limit"`
	Cursor string    `query:"cursor" doc:"next_cursor of the previous page."`
}

// cartLimit is how many reservations, and how many requests, a page of a cart
// holds at most; 0 if left out.
type cartLimit int

// Schema describes the limit, for huma.
func (cartLimit) Schema(huma.Registry) *huma.Schema {
	return numberSchema(requestrows.CartPageMax,
		fmt.Sprintf("How many reservations, and how many requests, at most; %d if left out.", requestrows.CartPageMax))
}

type cartJSON struct {
	CartID       cartID            `json:"cart_id"`
	Reservations []reservationJSON `json:"reservations" doc:"In any status, newest first."`
	Requests     []cartRequestJSON `json:"requests" doc:"Requests that are not decided yet, oldest first."`
	Failed       []cartRequestJSON `json:"failed" doc:"The latest 20 that failed, latest first, so that a client can restore a quantity. They are the same on every page."`
	NextCursor   *string           `json:"next_cursor" doc:"The cursor of the next page of reservations and requests; null on the last page."`
}

func (s *service) getCart() endpoint[getCartParams, emptyBody] {
	return endpoint[getCartParams, emptyBody]{
		id: "get-cart", method: http.MethodGet, path: "/v1/carts/{cart_id}", tag: tagCarts, scope: tenants.ScopeCart,
		summary: "Read a cart",
		doc: fmt.Sprintf("An unknown cart is empty. One with more than %d reservations or requests has several pages. A row that exists "+
			"during the whole listing is on exactly one of them.", requestrows.CartPageMax),
		responses: map[int]any{http.StatusOK: cartJSON{}},
		handle: func(ctx context.Context, req *request, p *getCartParams, _ *emptyBody) (response, error) {
			cart, err := s.tenant(req).Cart(ctx, string(p.CartID), int(p.Limit), p.Cursor)
			if err != nil {
				return response{}, err
			}
			body := cartJSON{
				CartID: p.CartID, Reservations: reservationBodies(cart.Reservations),
				Requests: cartRequestBodies(cart.Unfinished), Failed: cartRequestBodies(cart.Failed),
			}
			if cart.NextCursor != "" {
				body.NextCursor = &cart.NextCursor
			}
			return jsonResponse(http.StatusOK, body), nil
		},
	}
}

type extendBody struct {
	Seconds int32 `json:"seconds" doc:"By how many seconds the deadlines move." example:"300"`
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
		summary:   "Move the deadlines of all holds of a cart",
		doc:       "All or nothing. Refused if a hold would last longer in total than holds may.",
		responses: map[int]any{http.StatusOK: extendedJSON{}},
		problems:  []kind{cartEmpty, holdExpired, checkoutRunning, lifetimeExceeded, overLimit},
		handle: func(ctx context.Context, req *request, p *cartParams, b *extendBody) (response, error) {
			extended, err := s.tenant(req).Extend(ctx, string(p.CartID), b.by(), req.opts())
			return req.respond(extendedJSON{reservationBodies(extended)}, err)
		},
	}
}

type checkedOutJSON struct {
	Committed []reservationJSON `json:"committed"`
}

func (s *service) checkoutCart() endpoint[cartParams, emptyBody] {
	return endpoint[cartParams, emptyBody]{
		id: "checkout-cart", method: http.MethodPost, path: "/v1/carts/{cart_id}/checkout", tag: tagCarts, scope: tenants.ScopeCart,
		summary: "Check out a cart",
		doc: "Commits all its holds, all or nothing: stock and reserved decrease by the units held. Refused while the cart has " +
			"requests that are not decided, and while it has lost a hold to expiry that was neither removed nor added again.",
		responses: map[int]any{http.StatusOK: checkedOutJSON{}},
		problems:  []kind{requestsPending, holdExpired, cartEmpty, checkoutRunning, overLimit},
		handle: func(ctx context.Context, req *request, p *cartParams, _ *emptyBody) (response, error) {
			committed, err := s.tenant(req).Checkout(ctx, string(p.CartID), req.opts())
			return req.respond(checkedOutJSON{reservationBodies(committed)}, err)
		},
	}
}
