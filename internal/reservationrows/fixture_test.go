package reservationrows_test

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/audit"
	"github.com/holdfast/holdfast/internal/pgtest"
	"github.com/holdfast/holdfast/internal/reservationrows"
)

const seat = "hall.seat"

var usher = audit.Origin{Actor: audit.User("hf_usher0"), CorrelationID: "c-3"}

// fixture is a database in which one tenant reserves seats.
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

// wish is a hold to be made that becomes due after left, or that has been due
// for -left if left is negative.
func (h *fixture) wish(key, holder string, quantity int64, left time.Duration) reservationrows.Hold {
	h.TB.Helper()
	var now time.Time
	h.Must(h.DB.QueryRow(h.TB.Context(), `SELECT clock_timestamp()`).Scan(&now))
	since := now.Add(min(0, left) - time.Minute)
	return reservationrows.Hold{Origin: usher, Reservation: reservationrows.Reservation{
		TenantID: h.tenant, ReservationID: uuid.Must(uuid.NewV7()), ResourceKind: seat, ResourceKey: key, HolderID: holder,
		Quantity: quantity, FirstHeldAt: since, HeldAt: since, ExpiresAt: now.Add(left),
	}}
}

// hold makes a hold.
func (h *fixture) hold(key, holder string, quantity int64, left time.Duration) reservationrows.Reservation {
	h.TB.Helper()
	wish := h.wish(key, holder, quantity, left)
	h.Must(h.in(func(tx pgx.Tx) error { return reservationrows.HoldTx(h.TB.Context(), tx, []reservationrows.Hold{wish}) }))
	return h.get(wish.ReservationID)
}

// get reads a reservation as it is stored.
func (h *fixture) get(id uuid.UUID) (r reservationrows.Reservation) {
	h.TB.Helper()
	h.Must(h.in(func(tx pgx.Tx) (err error) {
		r, err = h.stored(tx, id)
		return err
	}))
	return r
}

func (h *fixture) stored(tx pgx.Tx, id uuid.UUID) (reservationrows.Reservation, error) {
	locked, _, err := reservationrows.LockTx(h.TB.Context(), tx, []reservationrows.Ref{{TenantID: h.tenant, ReservationID: id}})
	if err == nil && len(locked) != 1 {
		err = reservationrows.ErrNotFound
	}
	if err != nil {
		return reservationrows.Reservation{}, err
	}
	return locked[0], nil
}

// end ends reservations that the caller passes as held.
func (h *fixture) end(to reservationrows.Status, rs ...reservationrows.Reservation) error {
	return h.in(func(tx pgx.Tx) error {
		var now time.Time
		if err := tx.QueryRow(h.TB.Context(), `SELECT clock_timestamp()`).Scan(&now); err != nil {
			return err
		}
		return reservationrows.EndTx(h.TB.Context(), tx, endingOf(to, now), rs)
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
