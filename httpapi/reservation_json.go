package httpapi

import (
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/holdfast/holdfast/audit"
	"github.com/holdfast/holdfast/inventory"
	"github.com/holdfast/holdfast/reservations"
)

// reservationJSON is a reservation as it is answered.
type reservationJSON struct {
	ReservationID uuid.UUID                   `json:"reservation_id" format:"uuid"`
	RequestID     uuid.UUID                   `json:"request_id" format:"uuid" doc:"The request that it was made for; the two ids are the same."`
	CartID        cartID                      `json:"cart_id"`
	VariantID     variantID                   `json:"variant_id"`
	Quantity      int64                       `json:"quantity" doc:"Units."`
	Status        reservations.Status         `json:"status" enum:"held,committed,released,expired" doc:"A hold is expired from expires_at on, by the database's clock."`
	ReleaseReason *reservations.ReleaseReason `json:"release_reason" enum:"cart_removed,payment_failed,abandoned,replaced,operator,ttl" doc:"Why it was released or expired, else null."`
	FirstHeldAt   time.Time                   `json:"first_held_at" doc:"Where the lifetime cap counts from: older than held_at after a change of quantity."`
	HeldAt        time.Time                   `json:"held_at"`
	ExpiresAt     time.Time                   `json:"expires_at" doc:"From then on a hold is expired, and its units are available to others."`
	EndedAt       *time.Time                  `json:"ended_at" doc:"When it was committed or released, or its expiry was recorded; null while it is held, and until an expiry is recorded, which can be a while after expires_at."`
}

func reservationBody(r reservations.Reservation) reservationJSON {
	body := reservationJSON{
		ReservationID: r.ReservationID, RequestID: r.ReservationID, CartID: cartID(r.HolderID), VariantID: variantID(r.ResourceKey),
		Quantity: r.Quantity, Status: r.Status,
		FirstHeldAt: r.FirstHeldAt.UTC(), HeldAt: r.HeldAt.UTC(), ExpiresAt: r.ExpiresAt.UTC(),
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

// unitsOf are the units of the reservations together.
func unitsOf(rs []reservations.Reservation) (units int64) {
	for i := range rs {
		units += rs[i].Quantity
	}
	return units
}

// reservation reads a reservation of a variant; one of another kind is not this API's.
func (s *service) reservation(ctx context.Context, db audit.Querier, c *call, id uuid.UUID) (reservations.Reservation, error) {
	r, err := reservations.Get(ctx, db, c.who.TenantID, id)
	if err == nil && r.ResourceKind != inventory.Kind {
		err = reservations.ErrNotFound
	}
	return r, err
}

// callerReasons are the release reasons that a caller may give: not those that only the service knows to be true.
var callerReasons = []reservations.ReleaseReason{
	reservations.CartRemoved, reservations.PaymentFailed, reservations.Abandoned, reservations.Operator,
}
