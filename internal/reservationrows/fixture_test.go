package reservationrows_test

import (
	"context"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/audit"
	"github.com/holdfast/holdfast/internal/pgtest"
	"github.com/holdfast/holdfast/internal/reservationrows"
)

const seat = "hall.seat"

var usher = audit.Origin{Actor: audit.User("hf_usher0"), CorrelationID: "c-3"}

// hall is a database in which one tenant reserves seats.
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

// wish is a hold to be made that becomes due after left, or that has been due
// for -left if left is negative.
func (h *hall) wish(key, holder string, quantity int64, left time.Duration) reservationrows.Hold {
	h.t.Helper()
	var now time.Time
	h.must(h.db.QueryRow(h.t.Context(), `SELECT clock_timestamp()`).Scan(&now))
	since := now.Add(min(0, left) - time.Minute)
	return reservationrows.Hold{Origin: usher, Reservation: reservationrows.Reservation{
		TenantID: h.tenant, ReservationID: uuid.Must(uuid.NewV7()), ResourceKind: seat, ResourceKey: key, HolderID: holder,
		Quantity: quantity, FirstHeldAt: since, HeldAt: since, ExpiresAt: now.Add(left),
	}}
}

// hold makes a hold.
func (h *hall) hold(key, holder string, quantity int64, left time.Duration) reservationrows.Reservation {
	h.t.Helper()
	wish := h.wish(key, holder, quantity, left)
	h.must(h.in(func(tx pgx.Tx) error { return reservationrows.HoldTx(h.t.Context(), tx, []reservationrows.Hold{wish}) }))
	return h.get(wish.ReservationID)
}

// get reads a reservation as it is stored.
func (h *hall) get(id uuid.UUID) (r reservationrows.Reservation) {
	h.t.Helper()
	h.must(h.in(func(tx pgx.Tx) (err error) {
		r, err = h.stored(tx, id)
		return err
	}))
	return r
}

func (h *hall) stored(tx pgx.Tx, id uuid.UUID) (reservationrows.Reservation, error) {
	locked, _, err := reservationrows.LockTx(h.t.Context(), tx, []reservationrows.Ref{{TenantID: h.tenant, ReservationID: id}})
	if err == nil && len(locked) != 1 {
		err = reservationrows.ErrNotFound
	}
	if err != nil {
		return reservationrows.Reservation{}, err
	}
	return locked[0], nil
}

// end ends reservations that the caller passes as held.
func (h *hall) end(to reservationrows.Status, rs ...reservationrows.Reservation) error {
	return h.in(func(tx pgx.Tx) error {
		var now time.Time
		if err := tx.QueryRow(h.t.Context(), `SELECT clock_timestamp()`).Scan(&now); err != nil {
			return err
		}
		return reservationrows.EndTx(h.t.Context(), tx, endingOf(to, now), rs)
	})
}

func endingOf(to reservationrows.Status, at time.Time) reservationrows.Ending {
	ending := reservationrows.Ending{To: to, At: at, Origin: usher}
	switch to {
	case reservationrows.Released:
		ending.Reason = reservationrows.Operator
	case reservationrows.Expired:
		ending.Reason = reservationrows.TTL
	default:
	}
	return ending
}

// blocked waits until a session waits for a lock.
func (h *hall) blocked() {
	h.t.Helper()
	pgtest.Until(h.t, "a session waits for a lock", func() bool {
		return h.int(`SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`) > 0
	})
}
