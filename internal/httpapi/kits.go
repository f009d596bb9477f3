package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/google/uuid"

	"github.com/holdfast/holdfast"
	"github.com/holdfast/holdfast/internal/inventory"
	"github.com/holdfast/holdfast/internal/tenants"
	"github.com/holdfast/holdfast/requests"
)

// KitPart is a part of a kit. It is exported for huma.
type KitPart struct {
	VariantID variantID `json:"variant_id" example:"tent"`
	Quantity  int32     `json:"quantity" doc:"Units in one kit." example:"1"`
}

func (p *KitPart) fields() []field {
	return []field{
		{"variant_id", true, into(&p.VariantID, text[variantID](checkVariantID))},
		{"quantity", true, into(&p.Quantity, whole[int32](1, inventory.MaxQuantity))},
	}
}

// TransformSchema adds the limits of the fields.
func (KitPart) TransformSchema(_ huma.Registry, s *huma.Schema) *huma.Schema {
	describe(s, new(KitPart).fields())
	s.AdditionalProperties = false
	return s
}

// kitJSON is a kit in a response.
type kitJSON struct {
	KitID     kitID     `json:"kit_id"`
	Parts     []KitPart `json:"parts"`
	Available *int64    `json:"available" doc:"How many whole kits a new request can hold, by what is available of each part; null if all parts are digital or backordered without a limit."`
	CreatedAt time.Time `json:"created_at"`
	UpdatedAt time.Time `json:"updated_at"`
}

func kitBody(k holdfast.Kit) kitJSON {
	body := kitJSON{KitID: kitID(k.KitID), Parts: make([]KitPart, len(k.Parts)), Available: k.Available, CreatedAt: k.CreatedAt.UTC(), UpdatedAt: k.UpdatedAt.UTC()}
	for i, p := range k.Parts {
		body.Parts[i] = KitPart{VariantID: variantID(p.VariantID), Quantity: p.Quantity}
	}
	return body
}

type kitParams struct {
	KitID kitID `path:"kit_id"`
}

type putKitBody struct {
	Parts []KitPart `json:"parts" doc:"Different variants, counted or digital."`

	rawParts []json.RawMessage // of a body that is being read
}

func (b *putKitBody) fields() []field {
	set := func(value json.RawMessage) string {
		if value[0] != '[' || json.Unmarshal(value, &b.rawParts) != nil {
			return "must be a list of objects"
		}
		if n := len(b.rawParts); n == 0 || n > inventory.KitPartsMax {
			return fmt.Sprintf("must have 1 to %d items", inventory.KitPartsMax)
		}
		return ""
	}
	describe := func(s *huma.Schema) { s.MinItems, s.MaxItems = new(1), new(inventory.KitPartsMax) }
	return []field{{"parts", true, value{set, describe}}}
}

// parts reads the parts, or returns what is wrong with each.
func (b *putKitBody) parts() ([]requests.KitPart, error) {
	parts := make([]requests.KitPart, len(b.rawParts))
	var wrong fieldErrors
	for i, raw := range b.rawParts {
		var part KitPart
		err := decodeObject(raw, &part)
		found, _ := errors.AsType[fieldErrors](err)
		for _, e := range found {
			wrong = wrong.with(fmt.Sprintf("parts[%d].%s", i, e.Field), e.Message)
		}
		parts[i] = requests.KitPart{VariantID: string(part.VariantID), Quantity: part.Quantity}
	}
	if len(wrong) > 0 {
		return nil, wrong
	}
	return parts, nil
}

func (s *service) putKit() endpoint[kitParams, putKitBody] {
	return endpoint[kitParams, putKitBody]{
		id: "put-kit", method: http.MethodPut, path: "/v1/kits/{kit_id}", tag: tagStocks, scope: tenants.ScopeStock,
		summary:   "Set the parts of a kit",
		doc:       "Creates the kit, or replaces its parts. Requests that were accepted before keep the parts that they have, and holds stay.",
		responses: map[int]any{http.StatusOK: kitJSON{}},
		handle: func(ctx context.Context, req *request, p *kitParams, b *putKitBody) (response, error) {
			parts, err := b.parts()
			if err != nil {
				return response{}, err
			}
			kit, err := s.tenant(req).SetKit(ctx, string(p.KitID), parts, req.opts())
			return req.respond(kitBody(kit), err)
		},
	}
}

func (s *service) getKit() endpoint[kitParams, emptyBody] {
	return endpoint[kitParams, emptyBody]{
		id: "get-kit", method: http.MethodGet, path: "/v1/kits/{kit_id}", tag: tagStocks, scope: tenants.ScopeStock,
		summary:   "Read a kit",
		responses: map[int]any{http.StatusOK: kitJSON{}},
		problems:  []kind{notFound},
		handle: func(ctx context.Context, req *request, p *kitParams, _ *emptyBody) (response, error) {
			kit, err := s.tenant(req).Kit(ctx, string(p.KitID))
			return req.respond(kitBody(kit), err)
		},
	}
}

type kitPageJSON struct {
	Items      []kitJSON `json:"items"`
	NextCursor *string   `json:"next_cursor" doc:"The cursor of the next page; null on the last page."`
}

type listKitsParams struct {
	Limit  stockLimit `query:"limit"`
	Cursor string     `query:"cursor" doc:"next_cursor of the previous page."`
}

func (s *service) listKits() endpoint[listKitsParams, emptyBody] {
	return endpoint[listKitsParams, emptyBody]{
		id: "list-kits", method: http.MethodGet, path: "/v1/kits", tag: tagStocks, scope: tenants.ScopeStock,
		summary:   "List kits",
		doc:       "In the order of their ids. A kit that exists during the whole listing is on exactly one page.",
		responses: map[int]any{http.StatusOK: kitPageJSON{}},
		handle: func(ctx context.Context, req *request, p *listKitsParams, _ *emptyBody) (response, error) {
			page, err := s.tenant(req).Kits(ctx, int(p.Limit), p.Cursor)
			if err != nil {
				return response{}, err
			}
			body := kitPageJSON{Items: make([]kitJSON, len(page.Items))}
			for i := range page.Items {
				body.Items[i] = kitBody(page.Items[i])
			}
			if page.NextCursor != "" {
				body.NextCursor = &page.NextCursor
			}
			return jsonResponse(http.StatusOK, body), nil
		},
	}
}

type deletedKitJSON struct {
	KitID kitID `json:"kit_id"`
}

func (s *service) deleteKit() endpoint[kitParams, emptyBody] {
	return endpoint[kitParams, emptyBody]{
		id: "delete-kit", method: http.MethodDelete, path: "/v1/kits/{kit_id}", tag: tagStocks, scope: tenants.ScopeStock,
		summary:   "Delete a kit",
		doc:       "Later requests for it fail. What carts hold of it stays held, and requests that were accepted before are decided.",
		responses: map[int]any{http.StatusOK: deletedKitJSON{}},
		problems:  []kind{notFound},
		handle: func(ctx context.Context, req *request, p *kitParams, _ *emptyBody) (response, error) {
			err := s.tenant(req).DeleteKit(ctx, string(p.KitID), req.opts())
			return req.respond(deletedKitJSON{p.KitID}, err)
		},
	}
}

// submitKit is submit for kits, as one line.
func (s *service) submitKit(ctx context.Context, req *request, cart cartID, b *addItemBody) (response, error) {
	lines := requests.Lines{Items: []requests.Line{{KitID: string(b.KitID), Quantity: b.Quantity}}}
	resp, err := s.submit(req, string(cart), func(opts *holdfast.CallOpts) (holdfast.Outcome, error) {
		return s.tenant(req).AddLines(ctx, string(cart), lines, opts)
	})
	if wrong, is := errors.AsType[*inventory.InvalidError](err); is {
		err = &inventory.InvalidError{Field: strings.TrimPrefix(wrong.Field, "lines[0]."), Message: wrong.Message}
	}
	return resp, err
}

type removeKitParams struct {
	CartID cartID        `path:"cart_id"`
	KitID  kitID         `path:"kit_id"`
	Reason releaseReason `query:"reason" doc:"Why; cart_removed if left out."`
}

func (s *service) removeKit() endpoint[removeKitParams, emptyBody] {
	return endpoint[removeKitParams, emptyBody]{
		id: "remove-kit", method: http.MethodDelete, path: "/v1/carts/{cart_id}/kits/{kit_id}", tag: tagCarts, scope: tenants.ScopeCart,
		summary:   "Remove a kit from a cart",
		doc:       "Releases all parts of all kits of that id that the cart holds, and cancels the queued requests that name the kit. To remove a kit that is not in the cart is no error.",
		responses: map[int]any{http.StatusOK: removedJSON{}},
		problems:  []kind{checkoutRunning},
		handle: func(ctx context.Context, req *request, p *removeKitParams, _ *emptyBody) (response, error) {
			removed, err := s.tenant(req).RemoveKit(ctx, string(p.CartID), string(p.KitID), p.Reason.orDefault(), req.opts())
			return req.respond(removedJSON{Released: unitsOf(removed.Released), Cancelled: append([]uuid.UUID{}, removed.Cancelled...)}, err)
		},
	}
}
