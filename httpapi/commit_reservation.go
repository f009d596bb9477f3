package httpapi

import (
	"context"
	"net/http"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/inventory"
	"github.com/holdfast/holdfast/tenants"
)

func (s *service) commitReservation() endpoint[reservationParams, none] {
	return endpoint[reservationParams, none]{
		id: "commit-reservation", method: http.MethodPost, path: "/v1/reservations/{reservation_id}/commit", tag: tagReservations, scope: tenants.ScopeCart,
		summary:  "Commit a reservation",
		doc:      "Its units leave stock and reserved together.",
		answers:  map[int]any{http.StatusOK: reservationJSON{}},
		problems: []kind{notFound, conflictingState, overLimit},
		handle: func(ctx context.Context, c *call, p *reservationParams, _ *none) (answer, error) {
			v := inventory.Call{Action: inventory.CommitHold, ReservationID: p.ReservationID}
			return s.grouped(ctx, c, v, oneBody, func(ctx context.Context, tx pgx.Tx) (any, error) {
				r, err := inventory.CommitTx(ctx, tx, c.who.TenantID, p.ReservationID, c.origin(""))
				if err != nil {
					return nil, err
				}
				return reservationBody(r), nil
			})
		},
	}
}
