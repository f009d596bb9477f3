package reservations_test

import (
	"errors"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/holdfast/holdfast/reservations"
)

// A purge deletes released and expired holds of its kind that are old enough.
// Committed ones are kept, and their seats stay sold, unless
// PurgeOpts.Committed is set.
func TestPurgeKeepsWhatCounts(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	ctx := t.Context()
	k := kernelOf(h, seats{"venue.seat", 5}, reservations.Config{SweepBatch: 2})
	age := func(age time.Duration, handles ...*reservations.Handle) {
		for _, handle := range handles {
			h.Exec(`UPDATE reservations SET ended_at = clock_timestamp() - $2::interval, expires_at = clock_timestamp() - $2::interval WHERE reservation_id = $1`, handle.ID(), age)
		}
	}
	var sold, gone []*reservations.Handle
	for range 5 { // the oldest first: holds that are kept precede those that are deleted
		handle := h.seat("hamlet", 1)
		h.Must(failure(k.Commit(ctx, h.by, handle)))
		sold = append(sold, handle)
	}
	for range 3 {
		handle := h.seat("othello", 1)
		h.Must(failure(k.Release(ctx, h.by, handle, reservations.Abandoned)))
		gone = append(gone, handle)
	}
	lapsed, young, held := h.seat("othello", 1), h.seat("othello", 1), h.seat("othello", 1)
	h.lapse(lapsed)
	_, err := k.SweepOnce(ctx, 0)
	h.Must(err)
	h.Must(failure(k.Release(ctx, h.by, young, reservations.Abandoned)))
	desk, err := h.desks.Hold(ctx, h.by, "3rd", 1, reservations.HoldOpts{Quantity: 1, TTL: time.Hour})
	h.Must(err)
	h.Must(failure(h.desks.Release(ctx, h.by, desk, reservations.Abandoned)))
	gone = append(gone, lapsed)
	age(72*time.Hour, sold...)
	age(48*time.Hour, append(gone, desk)...)

	purge := func(limit int, committed bool, want int64) {
		t.Helper()
		n, err := k.PurgeEnded(ctx, reservations.PurgeOpts{Retention: 24 * time.Hour, Limit: limit, Committed: committed})
		if err != nil || n != want {
			t.Errorf("%d deleted, %v, want %d", n, err, want)
		}
	}
	purge(1, false, 1)
	purge(0, false, 2) // one batch
	purge(100, false, 1)
	purge(100, false, 0)
	for _, handle := range gone {
		if _, err := reservations.Get(ctx, h.DB, h.tenant, handle.ID()); !errors.Is(err, reservations.ErrNotFound) {
			t.Errorf("%v, want it deleted", err)
		}
	}
	h.wantStatus(young.ID(), reservations.Released)
	h.wantStatus(held.ID(), reservations.Held)
	h.wantStatus(desk.ID(), reservations.Released)
	_, err = k.Hold(ctx, h.by, "hamlet", all, reservations.HoldOpts{Quantity: 1, TTL: time.Hour})
	h.wantInsufficient(err, 1, 0, 5)
	purge(100, true, 5)
	h.seat("hamlet", 5)
	if err := failure(k.Commit(ctx, h.by, k.Handle(h.tenant, uuid.New()))); !errors.Is(err, reservations.ErrNotFound) {
		t.Errorf("%v, want %v", err, reservations.ErrNotFound)
	}
}

// A purge needs a retention, and its bound must be longer.
func TestPurgeInvalid(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	for _, opts := range []reservations.PurgeOpts{
		{},
		{Retention: -time.Hour},
		{Retention: 24 * time.Hour, EndedWithin: -time.Hour},
		{Retention: 24 * time.Hour, EndedWithin: time.Hour},
		{Retention: 24 * time.Hour, EndedWithin: 24 * time.Hour},
	} {
		if _, err := h.seats.PurgeEnded(t.Context(), opts); !errors.Is(err, reservations.ErrInvalid) {
			t.Errorf("%+v: %v", opts, err)
		}
	}
}

// A purge with a bound does not delete holds that ended before it.
func TestPurgeEndedWithin(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	for _, days := range []int{1, 4, 5, 9, 10} {
		handle := h.seat("hamlet", 1)
		h.Must(failure(h.seats.Release(t.Context(), h.by, handle, reservations.Abandoned)))
		h.Exec(`UPDATE reservations SET ended_at = clock_timestamp() - $2 * interval '1 day', expires_at = clock_timestamp() - $2 * interval '1 day' WHERE reservation_id = $1`, handle.ID(), days)
	}
	const day = 24 * time.Hour
	for _, c := range []struct {
		within time.Duration
		want   int64
	}{{7 * day, 2}, {7 * day, 0}, {0, 2}} {
		n, err := h.seats.PurgeEnded(t.Context(), reservations.PurgeOpts{Retention: 3 * day, EndedWithin: c.within})
		if err != nil || n != c.want {
			t.Errorf("within %s: %d deleted, %v, want %d", c.within, n, err, c.want)
		}
	}
	if n := h.Int(`SELECT count(*) FROM reservations`); n != 1 {
		t.Errorf("%d left, want the youngest", n)
	}
}
