package httpapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"unicode/utf8"

	"github.com/danielgtaylor/huma/v2"
	"github.com/google/uuid"

	"github.com/holdfast/holdfast/internal/inventory"
	"github.com/holdfast/holdfast/internal/requestrows"
	"github.com/holdfast/holdfast/internal/tenants"
	"github.com/holdfast/holdfast/reservations"
)

// thingKind is the kind of what a search finds.
type thingKind string

// The kinds, in the order in which a search lists them.
const (
	kindCart        thingKind = "cart"
	kindRequest     thingKind = "request"
	kindReservation thingKind = "reservation"
	kindVariant     thingKind = "variant"
)

// Schema lists the kinds, for huma.
func (thingKind) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{Type: huma.TypeString, Enum: enum([]thingKind{kindCart, kindRequest, kindReservation, kindVariant})}
}

// searchText is what a search is for.
type searchText string

// Schema describes the text, for huma.
func (searchText) Schema(huma.Registry) *huma.Schema {
	return idSchema("The id of a cart, a request or a reservation, or the beginning of the id of a variant.")
}

type searchParams struct {
	Q searchText `query:"q" required:"true"`
}

type foundJSON struct {
	Kind    thingKind `json:"kind"`
	ID      string    `json:"id"`
	Summary string    `json:"summary" doc:"Its present state, for a person." example:"held: 2 × shirt-m for cart cart-1"`
}

type searchJSON struct {
	Q     string      `json:"q"`
	Items []foundJSON `json:"items" doc:"At most 20 variants, and one of each other kind."`
}

// Bounds of a search: variants that it lists, and rows of a cart that it counts.
const (
	foundVariantsMax = 20
	countedMax       = 100
)

func (s *service) search() endpoint[searchParams, emptyBody] {
	return endpoint[searchParams, emptyBody]{
		id: "search", method: http.MethodGet, path: "/v1/ops/search", tag: tagOps, scope: tenants.ScopeOps,
		summary:   "Find a cart, a request, a reservation or a variant",
		doc:       "Finds your own: carts, requests and reservations by their whole ids, variants by the beginning of their ids, in upper and lower case as given.",
		responses: map[int]any{http.StatusOK: searchJSON{}},
		handle: func(ctx context.Context, req *request, p *searchParams, _ *emptyBody) (response, error) {
			q := string(p.Q)
			found := searchJSON{Q: q, Items: []foundJSON{}}
			for _, find := range []func(context.Context, uuid.UUID, string) ([]foundJSON, error){s.findCart, s.findRequest, s.findReservation, s.findVariants} {
				items, err := find(ctx, req.principal.TenantID, q)
				if err != nil {
					return response{}, err
				}
				found.Items = append(found.Items, items...)
			}
			return jsonResponse(http.StatusOK, found), nil
		},
	}
}

func (s *service) findCart(ctx context.Context, tenantID uuid.UUID, q string) ([]foundJSON, error) {
	if checkCartID(q) != nil {
		return nil, nil
	}
	cart, err := requestrows.ViewCart(ctx, s.pool, tenantID, q, countedMax, "")
	held, unfinished, failed := len(cart.Reservations), len(cart.Unfinished), len(cart.Failed)
	if err != nil || held+unfinished+failed == 0 {
		return nil, err
	}
	counts := []string{atLeast(held, countedMax, "reservation"), atLeast(unfinished, countedMax, "undecided request"), atLeast(failed, requestrows.FailedMax, "failed request")}
	return []foundJSON{{kindCart, q, strings.Join(counts, ", ")}}, nil
}

// atLeast returns the number and the name of what was counted, up to most.
func atLeast(n, most int, name string) string {
	switch n {
	case 1:
		return "1 " + name
	case most:
		return fmt.Sprintf("%d or more %ss", n, name)
	}
	return fmt.Sprintf("%d %ss", n, name)
}

func (s *service) findRequest(ctx context.Context, tenantID uuid.UUID, q string) ([]foundJSON, error) {
	id, err := uuid.Parse(q)
	if err != nil {
		return nil, nil //nolint:nilerr // it is the id of something else
	}
	v, err := requestrows.Get(ctx, s.pool, tenantID, id)
	if errors.Is(err, requestrows.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	state := string(v.Status)
	if v.Reason != "" {
		state += ", " + string(v.Reason)
	}
	return []foundJSON{{kindRequest, id.String(), unitsFor(state, int64(v.Quantity), v.VariantID, v.CartID)}}, nil
}

func (s *service) findReservation(ctx context.Context, tenantID uuid.UUID, q string) ([]foundJSON, error) {
	id, err := uuid.Parse(q)
	if err != nil {
		return nil, nil //nolint:nilerr // it is the id of something else
	}
	r, err := reservations.Get(ctx, s.pool, tenantID, id)
	if errors.Is(err, reservations.ErrNotFound) || err == nil && r.ResourceKind != inventory.Kind {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return []foundJSON{{kindReservation, id.String(), unitsFor(string(r.Status), r.Quantity, r.ResourceKey, r.HolderID)}}, nil
}

func unitsFor(state string, quantity int64, variant, cart string) string {
	return fmt.Sprintf("%s: %d × %s for cart %s", state, quantity, variant, cart)
}

func (s *service) findVariants(ctx context.Context, tenantID uuid.UUID, q string) ([]foundJSON, error) {
	if !isText(q) || utf8.RuneCountInString(q) > inventory.MaxIDLength {
		return nil, nil
	}
	stocks, err := inventory.Search(ctx, s.pool, tenantID, q, foundVariantsMax)
	if err != nil {
		return nil, err
	}
	found := make([]foundJSON, len(stocks))
	for i := range stocks {
		summary := "digital"
		if stocks[i].Tracked {
			summary = fmt.Sprintf("stock %d, reserved %d, available %d", stocks[i].Stock, stocks[i].Reserved, stocks[i].Available)
		}
		found[i] = foundJSON{kindVariant, stocks[i].VariantID, summary}
	}
	return found, nil
}
