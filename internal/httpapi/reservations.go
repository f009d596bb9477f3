package httpapi

import (
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/google/uuid"

	"github.com/holdfast/holdfast/audit"
	"github.com/holdfast/holdfast/internal/tenants"
	"github.com/holdfast/holdfast/reservations"
)

// reservationJSON is a reservation in a response.
type reservationJSON struct {
	ReservationID    uuid.UUID                   `json:"reservation_id" format:"uuid"`
	RequestID        uuid.UUID                   `json:"request_id" format:"uuid" doc:"The request that it was made for: its own id, or that of part_of."`
	CartID           cartID                      `json:"cart_id"`
	VariantID        variantID                   `json:"variant_id"`
	Quantity         int64                       `json:"quantity" doc:"Units."`
	ReturnedQuantity int64                       `json:"returned_quantity,omitempty" doc:"How many of the units came back after they were committed; left out if none did."`
	PartOf           *uuid.UUID                  `json:"part_of,omitempty" format:"uuid" doc:"The reservation of which this one was committed as a part; left out if it was not."`
	Block            blockID                     `json:"block,omitempty" doc:"The block, which is also the variant_id; left out for units that are counted."`
	UnitIDs          []string                    `json:"unit_ids,omitempty" doc:"The units of the block, in the order of their positions, without those that were returned; left out for units that are counted."`
	KitID            kitID                       `json:"kit_id,omitempty" doc:"The kit that it is a part of; left out if it is of none."`
	Allotment        allotment                   `json:"allotment,omitempty" doc:"The allotment from which the units were taken; left out if there is none."`
	Status           reservations.Status         `json:"status" enum:"held,committed,released,expired" doc:"A hold is expired from expires_at on, by the database's clock."`
	ReleaseReason    *reservations.ReleaseReason `json:"release_reason" enum:"cart_removed,payment_failed,abandoned,replaced,operator,incomplete,ttl" doc:"Why it was released or expired, else null."`
	FirstHeldAt      time.Time                   `json:"first_held_at" doc:"The lifetime cap counts from here. It is earlier than held_at after a change of quantity."`
	HeldAt           time.Time                   `json:"held_at"`
	ExpiresAt        time.Time                   `json:"expires_at" doc:"From then on the hold is expired, and its units are available to others."`
	EndedAt          *time.Time                  `json:"ended_at" doc:"When it was committed or released, or its expiry was recorded. Null before that; an expiry can be recorded some time after expires_at."`
}

func reservationBody(r reservations.Reservation) reservationJSON {
	body := reservationJSON{
		ReservationID: r.ReservationID, RequestID: r.ReservationID, CartID: cartID(r.HolderID), VariantID: variantID(r.ResourceKey),
		Quantity: r.Quantity, ReturnedQuantity: r.ReturnedQuantity, KitID: kitID(r.KitID), Allotment: allotment(strings.TrimRight(r.AllotmentID, "\x1f")), Status: r.Status,
		FirstHeldAt: r.FirstHeldAt.UTC(), HeldAt: r.HeldAt.UTC(), ExpiresAt: r.ExpiresAt.UTC(),
	}
	if len(r.UnitIDs) > 0 {
		body.Block, body.UnitIDs = blockID(r.ResourceKey), r.UnitIDs
	}
	if r.PartOf != uuid.Nil {
		body.RequestID, body.PartOf = r.PartOf, &r.PartOf
	}
	if r.ReleaseReason != "" {
		body.ReleaseReason = &r.ReleaseReason
	}
	if r.EndedAt != nil {
		ended := r.EndedAt.UTC()
		body.EndedAt = &ended
	}
	return body
}

func reservationBodies(rs []reservations.Reservation) []reservationJSON {
	bodies := make([]reservationJSON, len(rs))
	for i := range rs {
		bodies[i] = reservationBody(rs[i])
	}
	return bodies
}

// unitsOf returns the sum of the units of the reservations.
func unitsOf(rs []reservations.Reservation) (units int64) {
	for i := range rs {
		units += rs[i].Quantity
	}
	return units
}

// releaseReason is a reason of a release that a caller may give; "" if left
// out.
type releaseReason reservations.ReleaseReason

// callerReasons are the reasons that a caller may give. Only the service knows
// whether the others are true.
var callerReasons = []releaseReason{
	releaseReason(reservations.CartRemoved), releaseReason(reservations.PaymentFailed),
	releaseReason(reservations.Abandoned), releaseReason(reservations.Operator),
}

// Schema lists the reasons, for huma.
func (releaseReason) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{Type: huma.TypeString, Enum: enum(callerReasons)}
}

func (r releaseReason) orDefault() reservations.ReleaseReason {
	return cmp.Or(reservations.ReleaseReason(r), reservations.CartRemoved)
}

type reservationParams struct {
	ReservationID uuid.UUID `path:"reservation_id" format:"uuid"`
}

func (s *service) getReservation() endpoint[reservationParams, emptyBody] {
	return endpoint[reservationParams, emptyBody]{
		id: "get-reservation", method: http.MethodGet, path: "/v1/reservations/{reservation_id}", tag: tagReservations, scope: tenants.ScopeCart, also: operators,
		summary:   "Read a reservation",
		responses: map[int]any{http.StatusOK: reservationJSON{}},
		problems:  []kind{notFound},
		handle: func(ctx context.Context, req *request, p *reservationParams, _ *emptyBody) (response, error) {
			r, err := s.tenant(req).Reservation(ctx, p.ReservationID)
			return req.respond(reservationBody(r), err)
		},
	}
}

// operators lets a key with the scope ops make a call too.
var operators = []tenants.Scope{tenants.ScopeOps}

// recordJSON is an audit row in a response.
type recordJSON struct {
	AuditID       int64           `json:"audit_id" doc:"Increases in the order of the reservation's changes."`
	ReservationID *uuid.UUID      `json:"reservation_id,omitempty" format:"uuid" doc:"The reservation that changed, in the history of a unit."`
	Action        string          `json:"action" example:"reservation.held"`
	ActorKind     string          `json:"actor_kind" enum:"user,system,job,anonymous"`
	ActorID       string          `json:"actor_id,omitempty" doc:"The beginning of an API key, or the name of a job."`
	CorrelationID string          `json:"correlation_id,omitempty"`
	Reason        string          `json:"reason,omitempty"`
	Before        json.RawMessage `json:"before" doc:"The reservation before the change; null for its first row."`
	After         json.RawMessage `json:"after" doc:"The reservation after the change."`
	CreatedAt     time.Time       `json:"created_at"`
}

type historyJSON struct {
	Items []recordJSON `json:"items" doc:"The newest 1000, oldest first."`
}

func (s *service) reservationHistory() endpoint[reservationParams, emptyBody] {
	return endpoint[reservationParams, emptyBody]{
		id: "get-reservation-history", method: http.MethodGet, path: "/v1/reservations/{reservation_id}/history", tag: tagReservations, scope: tenants.ScopeCart, also: operators,
		summary:   "Read the history of a reservation",
		responses: map[int]any{http.StatusOK: historyJSON{}},
		problems:  []kind{notFound},
		handle: func(ctx context.Context, req *request, p *reservationParams, _ *emptyBody) (response, error) {
			if _, err := s.tenant(req).Reservation(ctx, p.ReservationID); err != nil {
				return response{}, err
			}
			records, err := s.tenant(req).History(ctx, p.ReservationID)
			if err != nil {
				return response{}, err
			}
			body := historyJSON{Items: make([]recordJSON, len(records))}
			for i, r := range records {
				body.Items[i] = recordBody(r)
			}
			return jsonResponse(http.StatusOK, body), nil
		},
	}
}

func recordBody(r audit.Record) recordJSON {
	return recordJSON{
		AuditID: r.AuditID, Action: r.Action, ActorKind: r.Actor.Kind, ActorID: r.Actor.ID,
		CorrelationID: r.CorrelationID, Reason: r.Reason, Before: r.Before, After: r.After, CreatedAt: r.CreatedAt.UTC(),
	}
}

type releaseBody struct {
	Reason releaseReason `json:"reason,omitempty" doc:"Why; cart_removed if left out."`
}

func (b *releaseBody) fields() []field {
	return []field{{"reason", false, into(&b.Reason, oneOf(callerReasons...))}}
}

func (s *service) releaseReservation() endpoint[reservationParams, releaseBody] {
	return verbEndpoint("release", endpoint[reservationParams, releaseBody]{
		also:     operators,
		summary:  "Release a reservation",
		doc:      "Returns its units. A reservation that is past its deadline is expired: the response is 409, and the expiry is recorded.",
		problems: []kind{partOfKit},
		handle: func(ctx context.Context, req *request, p *reservationParams, b *releaseBody) (response, error) {
			r, err := s.tenant(req).Release(ctx, p.ReservationID, b.Reason.orDefault(), req.opts())
			return req.respond(reservationBody(r), err)
		},
	})
}

func (s *service) extendReservation() endpoint[reservationParams, extendBody] {
	return verbEndpoint("extend", endpoint[reservationParams, extendBody]{
		also:     operators,
		summary:  "Move a reservation's deadline",
		problems: []kind{lifetimeExceeded},
		handle: func(ctx context.Context, req *request, p *reservationParams, b *extendBody) (response, error) {
			r, err := s.tenant(req).ExtendHold(ctx, p.ReservationID, b.by(), req.opts())
			return req.respond(reservationBody(r), err)
		},
	})
}

// verbEndpoint completes the endpoint of a verb on one reservation.
func verbEndpoint[B any](verb string, e endpoint[reservationParams, B]) endpoint[reservationParams, B] {
	e.id = verb + "-reservation"
	e.method = http.MethodPost
	e.path = "/v1/reservations/{reservation_id}/" + verb
	e.tag = tagReservations
	e.scope = tenants.ScopeCart
	e.responses = map[int]any{http.StatusOK: reservationJSON{}}
	e.problems = append([]kind{notFound, conflictingState, checkoutRunning, overLimit}, e.problems...)
	return e
}
