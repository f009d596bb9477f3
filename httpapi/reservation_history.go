package httpapi

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/holdfast/holdfast/audit"
	"github.com/holdfast/holdfast/tenants"
)

// recordJSON is an audit row as it is answered.
type recordJSON struct {
	AuditID       int64           `json:"audit_id" doc:"Grows in the order of what happened to the reservation."`
	Action        string          `json:"action" example:"reservation.held"`
	ActorKind     audit.ActorKind `json:"actor_kind" enum:"user,system,job,anonymous"`
	ActorID       string          `json:"actor_id,omitempty" doc:"The beginning of an API key, or the name of a job."`
	CorrelationID string          `json:"correlation_id,omitempty"`
	Reason        string          `json:"reason,omitempty"`
	Before        json.RawMessage `json:"before" doc:"The reservation as it was; null where it began."`
	After         json.RawMessage `json:"after" doc:"The reservation as it became."`
	CreatedAt     time.Time       `json:"created_at"`
}

type historyJSON struct {
	Items []recordJSON `json:"items" doc:"The newest 1000, oldest first."`
}

func (s *service) reservationHistory() endpoint[reservationParams, none] {
	return endpoint[reservationParams, none]{
		id: "get-reservation-history", method: http.MethodGet, path: "/v1/reservations/{reservation_id}/history", tag: tagReservations, scope: tenants.ScopeCart,
		summary:  "Read what happened to a reservation",
		answers:  map[int]any{http.StatusOK: historyJSON{}},
		problems: []kind{notFound},
		handle: func(ctx context.Context, c *call, p *reservationParams, _ *none) (answer, error) {
			if _, err := s.reservation(ctx, s.pool, c, p.ReservationID); err != nil {
				return answer{}, err
			}
			records, err := audit.History(ctx, s.pool, c.who.TenantID, p.ReservationID)
			if err != nil {
				return answer{}, err
			}
			body := historyJSON{Items: make([]recordJSON, len(records))}
			for i, r := range records {
				body.Items[i] = recordJSON{
					AuditID: r.AuditID, Action: r.Action, ActorKind: r.Actor.Kind, ActorID: r.Actor.ID,
					CorrelationID: r.CorrelationID, Reason: r.Reason, Before: r.Before, After: r.After, CreatedAt: r.CreatedAt.UTC(),
				}
			}
			return respond(http.StatusOK, body), nil
		},
	}
}
