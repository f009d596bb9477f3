package httpapi

import (
	"cmp"
	"context"
	"errors"
	"net/http"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/inventory"
	"github.com/holdfast/holdfast/reservations"
	"github.com/holdfast/holdfast/tenants"
)

type releaseBody struct {
	Reason reservations.ReleaseReason `json:"reason,omitempty" enum:"cart_removed,payment_failed,abandoned,operator" doc:"Why; cart_removed if left out."`
}

func (b *releaseBody) fields() []field {
	return []field{{"reason", false, into(&b.Reason, oneOf(callerReasons...))}}
}

func (s *service) releaseReservation() endpoint[reservationParams, releaseBody] {
	return endpoint[reservationParams, releaseBody]{
		id: "release-reservation", method: http.MethodPost, path: "/v1/reservations/{reservation_id}/release", tag: tagReservations, scope: tenants.ScopeCart,
		summary:  "Release a reservation",
		doc:      "Gives its units back. One that is past its deadline has expired: that is a 409, and its expiry is recorded.",
		answers:  map[int]any{http.StatusOK: reservationJSON{}},
		problems: []kind{notFound, conflictingState, overLimit},
		handle: func(ctx context.Context, c *call, p *reservationParams, b *releaseBody) (answer, error) {
			reason := cmp.Or(b.Reason, reservations.CartRemoved)
			v := inventory.Call{Action: inventory.ReleaseHold, ReservationID: p.ReservationID, Reason: reason}
			a, err := s.grouped(ctx, c, v, oneBody, func(ctx context.Context, tx pgx.Tx) (any, error) {
				r, err := inventory.ReleaseTx(ctx, tx, c.who.TenantID, p.ReservationID, reason, c.origin(""))
				if err != nil {
					return nil, err
				}
				return reservationBody(r), nil
			})
			if conflict, ok := errors.AsType[*reservations.ConflictError](err); ok && conflict.Actual == reservations.Expired {
				// The call's transaction was rolled back, its idempotency key with it. The expiry is recorded in one of its own.
				r, err := inventory.Release(ctx, s.pool, c.who.TenantID, p.ReservationID, reason, c.origin(""))
				if err != nil {
					return answer{}, err
				}
				return respond(http.StatusOK, reservationBody(r)), nil // the database's clock was set back in between
			}
			return a, err
		},
	}
}
