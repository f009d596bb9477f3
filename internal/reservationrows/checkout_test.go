package reservationrows_test

import (
	"errors"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/internal/pgtest"
	"github.com/holdfast/holdfast/internal/reservationrows"
)

// lockTo locks the reservations to a checkout for an hour.
func (h *fixture) lockTo(checkout uuid.UUID, rs ...reservationrows.Reservation) error {
	return h.in(func(tx pgx.Tx) error {
		b := &pgx.Batch{}
		reservationrows.QueueLockToCheckout(b, rs, checkout, rs[0].HeldAt.Add(time.Hour), usher)
		return tx.SendBatch(h.TB.Context(), b).Close()
	})
}

// A reservation is locked to one checkout, while it is held, and no other verb
// takes it from there.
func TestLockToCheckout(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	a, b, ended := h.hold("x", "cart", 1, time.Minute), h.hold("y", "cart", 2, time.Minute), h.hold("z", "cart", 1, time.Minute)
	h.Must(h.end(reservationrows.Released, ended))
	checkout := uuid.New()
	if err := h.lockTo(checkout, a, ended); !errors.Is(err, reservationrows.ErrChanged) {
		t.Errorf("with one that has ended: %v", err)
	}
	h.Must(h.lockTo(checkout, a, b))
	if err := h.lockTo(uuid.New(), a); !errors.Is(err, reservationrows.ErrChanged) {
		t.Errorf("to a second checkout: %v", err)
	}
	if r := h.get(a.ReservationID); r.CheckoutID != checkout || !r.InCheckout() || !r.ExpiresAt.Equal(a.HeldAt.Add(time.Hour)) {
		t.Errorf("%+v", r)
	}
	now := a.HeldAt.Add(2 * time.Minute)
	if err := reservationrows.MustBeLive([]reservationrows.Reservation{h.get(a.ReservationID)}, now); !errors.Is(err, reservationrows.ErrCheckoutInProgress) {
		t.Errorf("another verb: %v", err)
	}
	if n := h.Int(`SELECT count(*) FROM audit_log WHERE action = 'reservation.extended' AND checkout_id = $1 AND before->'checkout_id' = 'null'`,
		checkout); n != 2 {
		t.Errorf("%d audit rows, want one for each", n)
	}
	of, err := reservationrows.OfCheckout(t.Context(), h.DB, h.tenant, checkout)
	if err != nil || len(of) != 2 {
		t.Errorf("%d of the checkout, %v", len(of), err)
	}
	if other, err := reservationrows.OfCheckout(t.Context(), h.DB, uuid.New(), checkout); err != nil || len(other) != 0 {
		t.Errorf("%d of another tenant's, %v", len(other), err)
	}
}

// KeepCheckoutTx moves the deadlines of what is live, and leaves the rest. It
// waits for a reservation that another transaction has locked.
func TestKeepCheckout(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	live, due, ended := h.hold("x", "cart", 1, time.Minute), h.hold("y", "cart", 2, time.Minute), h.hold("z", "cart", 1, time.Minute)
	checkout := uuid.New()
	h.Must(h.lockTo(checkout, live, due, ended))
	h.Must(h.end(reservationrows.Released, h.get(ended.ReservationID)))
	h.Exec(`UPDATE reservations SET expires_at = clock_timestamp() WHERE reservation_id = $1`, due.ReservationID)
	locking := h.Begin()
	_, err := h.stored(locking, live.ReservationID)
	h.Must(err)
	kept := make(chan int, 1)
	go func() {
		err := h.in(func(tx pgx.Tx) error {
			rs, err := reservationrows.KeepCheckoutTx(t.Context(), tx, h.tenant, checkout, 24*time.Hour, usher)
			kept <- len(rs)
			return err
		})
		if err != nil {
			t.Error(err)
		}
		close(kept)
	}()
	h.Blocked()
	h.Must(locking.Rollback(t.Context()))
	if n := <-kept; n != 1 {
		t.Errorf("%d were kept, want the live one", n)
	}
	pgtest.Until(t, "it is committed", func() bool {
		return h.get(live.ReservationID).ExpiresAt.After(live.HeldAt.Add(23 * time.Hour))
	})
	<-kept
	if r := h.get(due.ReservationID); r.ExpiresAt.After(live.HeldAt.Add(time.Hour)) {
		t.Errorf("a due one was kept: %+v", r)
	}
}
