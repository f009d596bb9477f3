package reservations_test

import (
	"errors"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/internal/pgtest"
	"github.com/holdfast/holdfast/internal/reservationrows"
	"github.com/holdfast/holdfast/reservations"
)

// fixture is a database in which one tenant reserves.
type fixture struct {
	pgtest.Fixture
	tenant uuid.UUID
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	return &fixture{pgtest.NewFixture(t), uuid.New()}
}

func (h *fixture) in(fn func(tx pgx.Tx) error) error {
	return pgx.BeginFunc(h.TB.Context(), h.DB, fn)
}

// get reads the stored reservation. There a hold past its deadline is held
// until its expiry is recorded.
func (h *fixture) get(id uuid.UUID) reservations.Reservation {
	h.TB.Helper()
	return h.of(h.tenant, id)
}

func (h *fixture) of(tenantID, id uuid.UUID) reservations.Reservation {
	h.TB.Helper()
	var locked []reservations.Reservation
	h.Must(h.in(func(tx pgx.Tx) (err error) {
		locked, _, err = reservationrows.LockTx(h.TB.Context(), tx, []reservationrows.Ref{{TenantID: tenantID, ReservationID: id}})
		return err
	}))
	if len(locked) != 1 {
		h.TB.Fatalf("%d reservations have the id %s", len(locked), id)
	}
	return locked[0]
}

// until polls a query until it returns true.
func (h *fixture) until(sql string, args ...any) {
	h.TB.Helper()
	pgtest.Until(h.TB, sql, func() (holds bool) {
		h.Must(h.DB.QueryRow(h.TB.Context(), sql, args...).Scan(&holds))
		return holds
	})
}

func conflictWith(actual reservations.Status) func(error) bool {
	return func(err error) bool {
		conflict, ok := errors.AsType[*reservations.ConflictError](err)
		return ok && conflict.Actual == actual && conflict.Expected == reservations.Held
	}
}
