package httpapi

import (
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/google/uuid"

	"github.com/holdfast/holdfast/requests"
)

// requestJSON is a request as it is answered.
type requestJSON struct {
	RequestID   uuid.UUID        `json:"request_id" format:"uuid"`
	Status      requests.Status  `json:"status" enum:"queued,processing,done,failed" doc:"done and failed are final."`
	Reason      *requests.Reason `json:"reason" enum:"out_of_stock,unknown_variant,limit_exceeded,cancelled,expired_in_queue,internal_error" doc:"Why it failed, else null."`
	CartID      cartID           `json:"cart_id"`
	VariantID   variantID        `json:"variant_id"`
	Quantity    int32            `json:"quantity" doc:"Units asked for."`
	Lane        string           `json:"lane" enum:"hot,normal" doc:"Where it was queued."`
	Position    *int64           `json:"position" doc:"How many earlier requests for the same hot variant are not decided, 1000 standing for more; null in the normal lane and at the end."`
	Reservation *reservationJSON `json:"reservation" doc:"The hold that was made, as it is now; null if there is none: not decided, failed, or a digital variant."`
	CreatedAt   time.Time        `json:"created_at"`
	UpdatedAt   time.Time        `json:"updated_at"`
}

// TransformSchema lets the reservation be null, which huma can't be told by a tag.
func (requestJSON) TransformSchema(_ huma.Registry, s *huma.Schema) *huma.Schema {
	held := s.Properties["reservation"]
	s.Properties["reservation"] = &huma.Schema{
		Description: held.Description,
		AnyOf:       []*huma.Schema{{Ref: held.Ref}, {Type: "null"}},
	}
	return s
}

func requestBody(v requests.View) requestJSON {
	r := &v.Request
	body := requestJSON{
		RequestID: r.RequestID, Status: r.Status, Reason: reasonOf(r), CartID: cartID(r.CartID), VariantID: variantID(r.VariantID),
		Quantity: r.Quantity, Lane: r.Lane, Position: v.Position, CreatedAt: r.CreatedAt.UTC(), UpdatedAt: r.UpdatedAt.UTC(),
	}
	if v.Reservation != nil {
		held := reservationBody(*v.Reservation)
		body.Reservation = &held
	}
	return body
}

func reasonOf(r *requests.Request) *requests.Reason {
	if r.Reason == "" {
		return nil
	}
	return &r.Reason
}

// cartRequestJSON is a request as its cart shows it.
type cartRequestJSON struct {
	RequestID uuid.UUID        `json:"request_id" format:"uuid"`
	Kind      requests.Kind    `json:"kind" enum:"add,set" doc:"add asks for more units, set for a quantity in place of what the cart holds."`
	Status    requests.Status  `json:"status" enum:"queued,processing,failed"`
	Reason    *requests.Reason `json:"reason" enum:"out_of_stock,unknown_variant,limit_exceeded,cancelled,expired_in_queue,internal_error"`
	VariantID variantID        `json:"variant_id"`
	Quantity  int32            `json:"quantity"`
	Lane      string           `json:"lane" enum:"hot,normal"`
	CreatedAt time.Time        `json:"created_at"`
	UpdatedAt time.Time        `json:"updated_at"`
}

func cartRequestBodies(rs []requests.Request) []cartRequestJSON {
	bodies := make([]cartRequestJSON, len(rs))
	for i := range rs {
		r := &rs[i]
		bodies[i] = cartRequestJSON{
			RequestID: r.RequestID, Kind: r.Kind, Status: r.Status, Reason: reasonOf(r), VariantID: variantID(r.VariantID),
			Quantity: r.Quantity, Lane: r.Lane, CreatedAt: r.CreatedAt.UTC(), UpdatedAt: r.UpdatedAt.UTC(),
		}
	}
	return bodies
}
