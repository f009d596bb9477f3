package httpapi

import (
	"context"
	"net/http"
	"reflect"

	"github.com/danielgtaylor/huma/v2"

	"github.com/holdfast/holdfast"
	"github.com/holdfast/holdfast/internal/inventory"
	"github.com/holdfast/holdfast/internal/tenants"
	"github.com/holdfast/holdfast/internal/unitrows"
)

// partBody names some of the units of a reservation.
type partBody struct {
	Quantity int64    `json:"quantity,omitempty" doc:"How many units." example:"1"`
	UnitIDs  []string `json:"unit_ids,omitempty" doc:"Which units, of a block." example:"[\"A1\"]"`
}

func (b *partBody) fields() []field {
	return []field{
		{"quantity", false, into(&b.Quantity, whole[int64](1, inventory.MaxQuantity))},
		{"unit_ids", false, into(&b.UnitIDs, texts(unitrows.UnitsMax))},
	}
}

// committedPartJSON is the response to the commit of a part.
type committedPartJSON struct {
	Committed reservationJSON  `json:"committed" doc:"A reservation of its own, with its part_of; or the hold, if all of it was committed."`
	Rest      *reservationJSON `json:"rest" doc:"What is still held, with its id and deadline; null if nothing is."`
}

// TransformSchema allows null for the rest.
func (committedPartJSON) TransformSchema(r huma.Registry, s *huma.Schema) *huma.Schema {
	rest := s.Properties["rest"]
	s.Properties["rest"] = &huma.Schema{
		Description: rest.Description,
		AnyOf:       []*huma.Schema{r.Schema(reflect.TypeFor[reservationJSON](), true, ""), {Type: "null"}},
	}
	return s
}

// committedJSON documents the response to a commit.
type committedJSON struct{}

// Schema is that of both responses, for huma.
func (committedJSON) Schema(r huma.Registry) *huma.Schema {
	return &huma.Schema{OneOf: []*huma.Schema{
		r.Schema(reflect.TypeFor[reservationJSON](), true, ""), r.Schema(reflect.TypeFor[committedPartJSON](), true, ""),
	}}
}

func (s *service) commitReservation() endpoint[reservationParams, partBody] {
	e := verbEndpoint("commit", endpoint[reservationParams, partBody]{
		summary: "Commit a reservation, or a part of it",
		doc: "Stock and reserved decrease by its units. With quantity or unit_ids only these are committed, as a reservation of its own, and the " +
			"rest stays held; the response then has both.",
		problems: []kind{partOfKit},
		handle: func(ctx context.Context, req *request, p *reservationParams, b *partBody) (response, error) {
			if b.Quantity == 0 && b.UnitIDs == nil {
				r, err := s.tenant(req).Commit(ctx, p.ReservationID, req.opts())
				return req.respond(reservationBody(r), err)
			}
			c, err := s.tenant(req).CommitPart(ctx, p.ReservationID, holdfast.Part{Quantity: b.Quantity, UnitIDs: b.UnitIDs}, req.opts())
			body := committedPartJSON{Committed: reservationBody(c.Committed)}
			if c.Rest != nil {
				body.Rest = new(reservationBody(*c.Rest))
			}
			return req.respond(body, err)
		},
	})
	e.responses = map[int]any{http.StatusOK: committedJSON{}}
	return e
}

type returnBody struct {
	Quantity int64    `json:"quantity,omitempty" doc:"How many units; of a block, left out." example:"1"`
	UnitIDs  []string `json:"unit_ids,omitempty" doc:"Which units, of a block." example:"[\"A1\"]"`
	Reason   string   `json:"reason,omitempty" doc:"Why, for the audit log." example:"did not fit"`
}

func (b *returnBody) fields() []field {
	return []field{
		{"quantity", false, into(&b.Quantity, whole[int64](1, inventory.MaxQuantity))},
		{"unit_ids", false, into(&b.UnitIDs, texts(unitrows.UnitsMax))},
		{"reason", false, into(&b.Reason, note())},
	}
}

func (s *service) returnReservation() endpoint[reservationParams, returnBody] {
	return verbEndpoint("return", endpoint[reservationParams, returnBody]{
		summary: "Return units of a committed reservation",
		doc: "The units are for sale again, and returned_quantity grows; the status stays committed. Of a block, unit_ids names the units. 409 " +
			"if so many units, or these, are not committed.",
		problems: []kind{returnExceeds},
		handle: func(ctx context.Context, req *request, p *reservationParams, b *returnBody) (response, error) {
			opts := req.opts()
			opts.Reason = b.Reason
			r, err := s.tenant(req).Return(ctx, p.ReservationID, holdfast.Part{Quantity: b.Quantity, UnitIDs: b.UnitIDs}, opts)
			return req.respond(reservationBody(r), err)
		},
	})
}

type transferCartBody struct {
	To cartID `json:"to" doc:"The cart that the holds move to." example:"customer-17"`
}

func (b *transferCartBody) fields() []field {
	return []field{{"to", true, into(&b.To, text[cartID](checkCartID))}}
}

type transferredCartJSON struct {
	Moved        int64             `json:"moved" doc:"Units."`
	Reservations []reservationJSON `json:"reservations" doc:"The holds that were moved, as they are now."`
}

func (s *service) transferCart() endpoint[cartParams, transferCartBody] {
	return endpoint[cartParams, transferCartBody]{
		id: "transfer-cart", method: http.MethodPost, path: "/v1/carts/{cart_id}/transfer", tag: tagCarts, scope: tenants.ScopeCart,
		summary: "Move what a cart holds to another cart",
		doc: "All or nothing: a guest logs in. Each hold keeps its id and deadline. The limits of the other cart and of the customer in " +
			"Customer-Id are checked. What is past its deadline is not moved.",
		responses: map[int]any{http.StatusOK: transferredCartJSON{}},
		problems:  []kind{requestsPending, checkoutRunning, limitExceeded},
		requestHeaders: []*huma.Param{{
			Name: customerHeader, In: "header", Schema: idSchema("The customer's id."),
			Description: "The customer whose limits count the holds from then on. If left out, a hold keeps its customer, and one without counts for the cart.",
		}},
		handle: func(ctx context.Context, req *request, p *cartParams, b *transferCartBody) (response, error) {
			opts := req.opts()
			if err := s.credentials(req, opts); err != nil {
				return response{}, err
			}
			moved, err := s.tenant(req).TransferCart(ctx, string(p.CartID), string(b.To), opts)
			return req.respond(transferredCartJSON{unitsOf(moved), reservationBodies(moved)}, err)
		},
	}
}
