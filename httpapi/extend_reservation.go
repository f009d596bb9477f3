package httpapi

import (
	"context"
	"net/http"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/inventory"
	"github.com/holdfast/holdfast/tenants"
)

func (s *service) extendReservation() endpoint[reservationParams, extendBody] {
	return endpoint[reservationParams, extendBody]{
		id: "extend-reservation", method: http.MethodPost, path: "/v1/reservations/{reservation_id}/extend", tag: tagReservations, scope: tenants.ScopeCart,
		summary:  "Move a reservation's deadline",
		answers:  map[int]any{http.StatusOK: reservationJSON{}},
		problems: []kind{notFound, conflictingState, lifetimeExceeded, overLimit},
		handle: func(ctx context.Context, c *call, p *reservationParams, b *extendBody) (answer, error) {
			v := inventory.Call{Action: inventory.ExtendHold, ReservationID: p.ReservationID, By: b.by(), LifetimeMax: s.terms.LifetimeMax}
			return s.grouped(ctx, c, v, oneBody, func(ctx context.Context, tx pgx.Tx) (any, error) {
				r, err := inventory.ExtendTx(ctx, tx, c.who.TenantID, p.ReservationID, b.by(), s.terms.LifetimeMax, c.origin(""))
				if err != nil {
					return nil, err
				}
				return reservationBody(r), nil
			})
		},
	}
}
