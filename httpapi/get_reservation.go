package httpapi

import (
	"context"
	"net/http"

	"github.com/google/uuid"

	"github.com/holdfast/holdfast/tenants"
)

type reservationParams struct {
	ReservationID uuid.UUID `path:"reservation_id" format:"uuid"`
}

func (s *service) getReservation() endpoint[reservationParams, none] {
	return endpoint[reservationParams, none]{
		id: "get-reservation", method: http.MethodGet, path: "/v1/reservations/{reservation_id}", tag: tagReservations, scope: tenants.ScopeCart,
		summary:  "Read a reservation",
		answers:  map[int]any{http.StatusOK: reservationJSON{}},
		problems: []kind{notFound},
		handle: func(ctx context.Context, c *call, p *reservationParams, _ *none) (answer, error) {
			r, err := s.reservation(ctx, s.pool, c, p.ReservationID)
			if err != nil {
				return answer{}, err
			}
			return respond(http.StatusOK, reservationBody(r)), nil
		},
	}
}
