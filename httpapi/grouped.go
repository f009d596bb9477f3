package httpapi

import (
	"context"
	"errors"
	"net/http"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/inventory"
	"github.com/holdfast/holdfast/requests"
	"github.com/holdfast/holdfast/reservations"
	"github.com/holdfast/holdfast/tenants"
	"github.com/holdfast/holdfast/verbs"
)

// grouped makes a call that finishes at once in a group with others, answered 200 with what body makes of the reservations
// that it changed. One that does not belong into a group is made by finish, which alone is the work of.
func (s *service) grouped(ctx context.Context, c *call, v inventory.Call, body func([]reservations.Reservation) any,
	alone func(ctx context.Context, tx pgx.Tx) (any, error),
) (answer, error) {
	if s.groups == nil {
		return s.finish(ctx, c, alone)
	}
	v.TenantID, v.Origin = c.who.TenantID, c.origin("")
	made := verbs.Call{Call: v, Key: c.key}
	if c.key != "" {
		made.Fingerprint = c.fingerprint()
		made.Answer = func(r inventory.Result) (tenants.Answer, error) {
			a := respond(http.StatusOK, body(r.Reservations))
			return tenants.Answer{StatusCode: a.status, Body: a.body}, nil
		}
	}
	r, err := s.groups.Do(ctx, made)
	switch {
	case errors.Is(err, verbs.ErrAlone):
		return s.finish(ctx, c, alone)
	case errors.Is(err, requests.ErrOutcomeUnknown):
		return answer{}, &unknownOutcomeError{err}
	case err != nil:
		return answer{}, err
	case r.Kept != nil:
		return replayed(*r.Kept), nil
	}
	return respond(http.StatusOK, body(r.Reservations)), nil
}

// oneBody is the body of an answer about one reservation.
func oneBody(changed []reservations.Reservation) any { return reservationBody(changed[0]) }
