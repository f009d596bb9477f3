package reservations_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"pgregory.net/rapid"

	"github.com/holdfast/holdfast/internal/pgtest"
	"github.com/holdfast/holdfast/reservations"
)

// One of two rooms is booked 9–10, the other 10–11. At every moment of 9–11 a
// room is free, so one hold of that window is possible.
func TestNeighboursLeaveRoom(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	book := func(from, to int) error {
		handle, err := h.rooms.Hold(t.Context(), h.by, "twin", span{from, to}, reservations.HoldOpts{Quantity: 1, TTL: time.Hour})
		if err == nil {
			err = failure(h.rooms.Commit(t.Context(), h.by, handle))
		}
		return err
	}
	h.Must(book(9, 10))
	h.Must(book(10, 11))
	h.Must(book(9, 11))
	h.wantInsufficient(book(9, 11), 1, 0, 2)
	h.wantInsufficient(book(8, 10), 1, 0, 2)
	h.Must(book(8, 9))
	h.Must(book(11, 12))
	for _, window := range []span{{10, 10}, {11, 10}} {
		if err := book(window.From, window.To); !errors.Is(err, reservations.ErrInvalid) {
			t.Errorf("%v: %v, want %v", window, err, reservations.ErrInvalid)
		}
	}
}

// shift is an interval by a method of its pointer. stay has another method of
// that name.
type (
	shift struct{ From, To int }
	stay  struct{ From, To int }
)

func (s *shift) Interval() (start, end int64) { return int64(s.From), int64(s.To) }

func (stay) Interval() int { return 0 }

// single has one unit of each key.
type single[W any] struct {
	reservations.HeldOnly[string, W]
}

func (single[W]) Capacity(context.Context, pgx.Tx, uuid.UUID, string, W) (int64, error) {
	return 1, nil
}

// Windows overlap also if the method is one of their pointer. A window with
// another method of that name is refused, because its overlaps would not count.
func TestIntervalMethods(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	shifts, err := reservations.NewKernel(h.DB, single[shift]{"house.shift"}, reservations.Config{})
	h.Must(err)
	opts := reservations.HoldOpts{Quantity: 1, TTL: time.Hour}
	_, err = shifts.Hold(t.Context(), h.by, "desk", shift{9, 11}, opts)
	h.Must(err)
	_, err = shifts.Hold(t.Context(), h.by, "desk", shift{10, 12}, opts)
	h.wantInsufficient(err, 1, 0, 1)
	_, err = shifts.Hold(t.Context(), h.by, "desk", shift{11, 12}, opts)
	h.Must(err)
	if _, err := reservations.NewKernel(h.DB, single[stay]{"house.stay"}, reservations.Config{}); !errors.Is(err, reservations.ErrInvalid) {
		t.Errorf("%v, want %v", err, reservations.ErrInvalid)
	}
}

// heldRooms are rooms of which only held ones count.
type heldRooms struct {
	reservations.HeldOnly[string, span]
}

// The number of units taken of a window is the largest number taken in one of
// its hours, including committed ones if they count.
func TestPeakLikeCounting(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.hasty()
	held, all := heldRooms{"house.room"}, rooms{"house.room", 0}
	rapid.Check(t, pgtest.Fewer(func(rt *rapid.T) {
		type booking struct {
			window    span
			quantity  int64
			committed bool
		}
		windows := rapid.Custom(func(t *rapid.T) span {
			from := rapid.IntRange(-2, 5).Draw(t, "from")
			return span{from, from + rapid.IntRange(1, 4).Draw(t, "hours")}
		})
		bookings := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) booking {
			return booking{windows.Draw(t, "window"), rapid.Int64Range(1, 9).Draw(t, "quantity"), rapid.Bool().Draw(t, "committed")}
		}), 0, 8).Draw(rt, "bookings")
		asked := windows.Draw(rt, "asked")
		tx, err := h.DB.Begin(t.Context())
		if err != nil {
			rt.Fatal(err)
		}
		defer func() { _ = tx.Rollback(t.Context()) }()
		plenty := kernelOf(h, rooms{"house.room", 1000}, reservations.Config{})
		for _, b := range bookings {
			handle, err := plenty.HoldTx(t.Context(), tx, h.by, "a", b.window, reservations.HoldOpts{Quantity: b.quantity, TTL: time.Hour})
			if err == nil && b.committed {
				err = failure(plenty.CommitTx(t.Context(), tx, h.by, handle))
			}
			if err != nil {
				rt.Fatal(err)
			}
		}
		var wantHeld, wantAll int64
		for hour := asked.From; hour < asked.To; hour++ {
			var heldNow, allNow int64
			for _, b := range bookings {
				if !b.window.overlaps(span{hour, hour + 1}) {
					continue
				}
				allNow += b.quantity
				if !b.committed {
					heldNow += b.quantity
				}
			}
			wantHeld, wantAll = max(wantHeld, heldNow), max(wantAll, allNow)
		}
		gotHeld, err1 := held.Held(t.Context(), tx, h.tenant, "a", asked)
		gotAll, err2 := all.Held(t.Context(), tx, h.tenant, "a", asked)
		if gotHeld != wantHeld || gotAll != wantAll || err1 != nil || err2 != nil {
			rt.Fatalf("%v of %+v: held %d, with committed %d, want %d and %d: %v %v", asked, bookings, gotHeld, gotAll, wantHeld, wantAll, err1, err2)
		}
	}))
}
