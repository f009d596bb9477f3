package reservations_test

import (
	"context"
	"errors"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/internal/pgtest"
	"github.com/holdfast/holdfast/internal/reservationrows"
	"github.com/holdfast/holdfast/reservations"
)

// hall is a database in which one tenant reserves.
type hall struct {
	t      *testing.T
	db     *pgxpool.Pool
	tenant uuid.UUID
}

func newHall(t *testing.T) *hall {
	t.Helper()
	return &hall{t, pgtest.New(t), uuid.New()}
}

func (h *hall) must(err error) {
	h.t.Helper()
	pgtest.Must(h.t, err)
}

func (h *hall) int(sql string, args ...any) int64 {
	h.t.Helper()
	return pgtest.Int(h.t, h.db, sql, args...)
}

func (h *hall) exec(sql string, args ...any) {
	h.t.Helper()
	pgtest.Exec(h.t, h.db, sql, args...)
}

func (h *hall) in(fn func(tx pgx.Tx) error) error {
	return pgx.BeginFunc(h.t.Context(), h.db, fn)
}

func (h *hall) begin() pgx.Tx {
	h.t.Helper()
	tx, err := h.db.Begin(h.t.Context())
	h.must(err)
	h.t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	return tx
}

// get reads the stored reservation. There a hold past its deadline is held
// until its expiry is recorded.
func (h *hall) get(id uuid.UUID) reservations.Reservation {
	h.t.Helper()
	return h.of(h.tenant, id)
}

func (h *hall) of(tenantID, id uuid.UUID) reservations.Reservation {
	h.t.Helper()
	var locked []reservations.Reservation
	h.must(h.in(func(tx pgx.Tx) (err error) {
		locked, _, err = reservationrows.LockTx(h.t.Context(), tx, []reservationrows.Ref{{TenantID: tenantID, ReservationID: id}})
		return err
	}))
	if len(locked) != 1 {
		h.t.Fatalf("%d reservations have the id %s", len(locked), id)
	}
	return locked[0]
}

// until polls a query until it returns true.
func (h *hall) until(sql string, args ...any) {
	h.t.Helper()
	pgtest.Until(h.t, sql, func() (holds bool) {
		h.must(h.db.QueryRow(h.t.Context(), sql, args...).Scan(&holds))
		return holds
	})
}

func conflictWith(actual reservations.Status) func(error) bool {
	return func(err error) bool {
		conflict, ok := errors.AsType[*reservations.ConflictError](err)
		return ok && conflict.Actual == actual && conflict.Expected == reservations.Held
	}
}
