package reservationrows_test

import (
	"context"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/internal/pg"
	"github.com/holdfast/holdfast/internal/reservationrows"
)

// LockTx takes the locks in the order of the ids, whatever the order of its
// arguments: while it waits for the first, none of the later ones is locked. It
// returns the rows as they are under the lock, and reads the clock after that.
func TestLockOrder(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	var rs []reservationrows.Reservation
	for range 3 {
		rs = append(rs, h.hold("A1", "ann", 1, time.Hour))
	}
	refs := []reservationrows.Ref{rs[2].Ref(), {TenantID: h.tenant, ReservationID: uuid.New()}, rs[0].Ref(), rs[1].Ref()}
	before := h.get(rs[0].ReservationID).ExpiresAt
	first := h.Begin()
	_, err := first.Exec(t.Context(), `UPDATE reservations SET expires_at = expires_at + interval '1 minute' WHERE reservation_id = $1`, rs[0].ReservationID)
	h.Must(err)
	type result struct {
		locked []reservationrows.Reservation
		now    time.Time
	}
	done := make(chan result, 1)
	go func() {
		var r result
		err := h.in(func(tx pgx.Tx) (err error) {
			r.locked, r.now, err = reservationrows.LockTx(t.Context(), tx, refs)
			return err
		})
		if err != nil {
			t.Error(err)
		}
		done <- r
	}()
	h.Blocked()
	free := h.Int(`SELECT count(*) FROM (SELECT FROM reservations WHERE reservation_id <> $1 FOR UPDATE SKIP LOCKED) AS free`, rs[0].ReservationID)
	if free != 2 {
		t.Errorf("%d of the later 2 are free while it waits for the first", free)
	}
	var released time.Time
	h.Must(first.QueryRow(t.Context(), `SELECT clock_timestamp()`).Scan(&released))
	h.Must(first.Commit(t.Context()))
	got := <-done
	if len(got.locked) != 3 {
		t.Fatalf("locked %d, want 3", len(got.locked))
	}
	for i := range rs {
		if got.locked[i].ReservationID != rs[i].ReservationID {
			t.Error("the ids are out of order")
		}
	}
	if want := before.Add(time.Minute); !got.locked[0].ExpiresAt.Equal(want) {
		t.Errorf("expires %s, want %s as committed meanwhile", got.locked[0].ExpiresAt, want)
	}
	if got.now.Before(released) {
		t.Errorf("the clock was read at %s, before the lock was granted at %s", got.now, released)
	}
}

// tryLock sends QueueTryLock and reads the clock after it. others are what
// another transaction has locked.
func tryLock(ctx context.Context, tx pgx.Tx, refs []reservationrows.Ref, pairs []reservationrows.HolderKey) (locked, others []reservationrows.Reservation, now time.Time, err error) {
	b := &pgx.Batch{}
	reservationrows.QueueTryLock(b, seat, refs, pairs, func(l, o []reservationrows.Reservation) { locked, others = l, o })
	pg.QueueClock(b, &now)
	err = tx.SendBatch(ctx, b).Close()
	return locked, others, now, err
}

// QueueTryLock locks the held reservations of a holder and a key, and no
// others.
func TestLockHolderKeys(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	mine, due := h.hold("A1", "ann", 1, time.Hour), h.hold("A1", "ann", 1, -time.Second)
	h.hold("A2", "ann", 1, time.Hour)
	h.hold("A1", "bob", 1, time.Hour)
	h.Must(h.end(reservationrows.Released, h.hold("A1", "ann", 1, time.Hour)))
	other := h.hold("A1", "ann", 1, time.Hour)
	h.Exec(`UPDATE reservations SET resource_kind = 'hall.box' WHERE reservation_id = $1`, other.ReservationID)
	pairs := []reservationrows.HolderKey{{h.tenant, "ann", "A1"}, {uuid.New(), "ann", "A1"}, {h.tenant, "ann", "Z9"}}
	h.Must(h.in(func(tx pgx.Tx) error {
		locked, others, now, err := tryLock(t.Context(), tx, nil, pairs)
		if len(others) != 0 || len(locked) != 2 || locked[0].ReservationID != mine.ReservationID || locked[1].ReservationID != due.ReservationID {
			t.Errorf("locked %+v, want the live one and the due one", locked)
		}
		if err := reservationrows.MustBeLive(locked[:1], now); err != nil {
			t.Error(err)
		}
		if err := reservationrows.MustBeLive(locked, now); !conflictWith(reservationrows.Expired)(err) {
			t.Errorf("%v, want a conflict for the due one", err)
		}
		return err
	}))
}

// Without waiting, the lock of a holder and a key leaves out the reservations
// that another transaction has locked, and names their holders and keys.
func TestTryLockHolderKeys(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	stuck := h.hold("A1", "ann", 1, time.Hour)
	second, bobs := h.hold("A1", "ann", 1, time.Hour), h.hold("A1", "bob", 1, time.Hour)
	other := h.Begin()
	_, err := other.Exec(t.Context(), `SELECT FROM reservations WHERE reservation_id = $1 FOR UPDATE`, stuck.ReservationID)
	h.Must(err)
	anns, bobsPair := reservationrows.HolderKey{TenantID: h.tenant, HolderID: "ann", ResourceKey: "A1"}, reservationrows.HolderKey{TenantID: h.tenant, HolderID: "bob", ResourceKey: "A1"}
	pairs := []reservationrows.HolderKey{anns, bobsPair, {TenantID: h.tenant, HolderID: "eve", ResourceKey: "A1"}}
	h.Must(h.in(func(tx pgx.Tx) error {
		locked, others, now, err := tryLock(t.Context(), tx, nil, pairs)
		if len(locked) != 2 || locked[0].ReservationID != second.ReservationID || locked[1].ReservationID != bobs.ReservationID {
			t.Errorf("locked %+v, want ann's second and bob's", locked)
		}
		if len(others) != 1 || others[0].ReservationID != stuck.ReservationID {
			t.Errorf("locked by others are %+v, want ann's first", others)
		}
		if err := reservationrows.MustBeLive(locked, now); err != nil {
			t.Error(err)
		}
		return err
	}))
}
