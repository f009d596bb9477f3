package reservations_test

import (
	"context"
	"errors"
	"testing"
	"time"

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
	if err != nil {
		h.t.Fatal(err)
	}
}

func (h *hall) int(sql string, args ...any) (n int64) {
	h.t.Helper()
	h.must(h.db.QueryRow(h.t.Context(), sql, args...).Scan(&n))
	return n
}

func (h *hall) exec(sql string, args ...any) {
	h.t.Helper()
	_, err := h.db.Exec(h.t.Context(), sql, args...)
	h.must(err)
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

// get reads a reservation as it is stored: a hold that is past its deadline is held until its expiry is recorded.
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

// until waits until a query returns true.
func (h *hall) until(sql string, args ...any) {
	h.t.Helper()
	deadline := time.After(20 * time.Second)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		var holds bool
		h.must(h.db.QueryRow(h.t.Context(), sql, args...).Scan(&holds))
		if holds {
			return
		}
		select {
		case <-tick.C:
		case <-deadline:
			h.t.Fatalf("in vain: %s", sql)
		}
	}
}

func conflictWith(actual reservations.Status) func(error) bool {
	return func(err error) bool {
		conflict, ok := errors.AsType[*reservations.ConflictError](err)
		return ok && conflict.Actual == actual && conflict.Expected == reservations.Held
	}
}
