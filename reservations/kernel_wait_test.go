package reservations_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/audit"
	"github.com/holdfast/holdfast/reservations"
)

// A stalled session has locked one key. Holds on 63 other keys finish. A hold
// on that key waits, and one of another tenant does not.
func TestOtherKeysDoNotWait(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	stalled, end := h.session()
	_, err := h.seats.HoldTx(t.Context(), stalled, h.by, "0", all, reservations.HoldOpts{Quantity: 5, TTL: time.Hour})
	h.Must(err)
	var callers sync.WaitGroup
	for i := 1; i < 64; i++ {
		callers.Go(func() {
			if _, err := h.seats.Hold(t.Context(), h.by, fmt.Sprint(i), all, reservations.HoldOpts{Quantity: 5, TTL: time.Hour}); err != nil {
				t.Error(err)
			}
		})
	}
	callers.Go(func() {
		if _, err := h.seats.Hold(t.Context(), reservations.By(uuid.New(), audit.System()), "0", all, reservations.HoldOpts{Quantity: 5, TTL: time.Hour}); err != nil {
			t.Error(err)
		}
	})
	callers.Wait()
	waited, over := h.behind(func(tx pgx.Tx) error {
		_, err := h.seats.HoldTx(t.Context(), tx, h.by, "0", all, reservations.HoldOpts{Quantity: 1, TTL: time.Hour})
		return err
	})
	if !waited {
		t.Error("a hold on the stalled key did not wait")
	}
	end(nil)
	h.wantInsufficient(<-over, 1, 0, 5)
}

// Holds of one key with overlapping windows wait for each other. So they never
// exceed the capacity, whichever windows overlap.
func TestOverlappingWindowsTakeTurns(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	first, end := h.session()
	_, err := h.rooms.HoldTx(t.Context(), first, h.by, "twin", span{10, 12}, reservations.HoldOpts{Quantity: 2, TTL: time.Hour})
	h.Must(err)
	waited, over := h.behind(func(tx pgx.Tx) error {
		_, err := h.rooms.HoldTx(t.Context(), tx, h.by, "twin", span{11, 13}, reservations.HoldOpts{Quantity: 1, TTL: time.Hour})
		return err
	})
	if !waited {
		t.Error("11–13 did not wait for 10–12")
	}
	end(nil)
	h.wantInsufficient(<-over, 1, 0, 2)
	_, err = h.rooms.Hold(t.Context(), h.by, "twin", span{12, 13}, reservations.HoldOpts{Quantity: 2, TTL: time.Hour})
	h.Must(err)

	var held atomic.Int64
	var callers sync.WaitGroup
	for i := range 48 {
		callers.Go(func() {
			from := i % 6
			_, err := h.rooms.Hold(t.Context(), h.by, "double", span{from, from + 2}, reservations.HoldOpts{Quantity: 1, TTL: time.Hour})
			if insufficient, ok := errors.AsType[*reservations.InsufficientError](err); err == nil {
				held.Add(1)
			} else if !ok || insufficient.Capacity != 2 {
				t.Error(err)
			}
		})
	}
	callers.Wait()
	for hour := range 7 {
		const atHourSQL = `
			SELECT coalesce(sum(quantity), 0) FROM reservations
			WHERE resource_key = '"double"' AND (resource_window::json->>'From')::int <= $1 AND (resource_window::json->>'To')::int > $1`
		if n := h.Int(atHourSQL, hour); n > 2 {
			t.Errorf("%d rooms held at %d:00, want at most 2", n, hour)
		}
	}
	if held.Load() < 4 {
		t.Errorf("%d holds of the rooms, too few for this test", held.Load())
	}
}

// Holds of disjoint windows do not wait for each other, not even to expire due
// holds. Holds of equal windows do.
func TestDisjointWindowsDoNotWait(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	monday, err := h.desks.Hold(t.Context(), h.by, "3rd", 1, reservations.HoldOpts{Quantity: 3, TTL: time.Hour})
	h.Must(err)
	tuesday, err := h.desks.Hold(t.Context(), h.by, "3rd", 2, reservations.HoldOpts{Quantity: 3, TTL: time.Hour})
	h.Must(err)
	h.lapse(monday, tuesday)
	first, end := h.session()
	_, err = h.desks.HoldTx(t.Context(), first, h.by, "3rd", 1, reservations.HoldOpts{Quantity: 3, TTL: time.Hour})
	h.Must(err)
	for _, key := range []string{"3rd", "4th"} {
		waited, over := h.behind(func(tx pgx.Tx) error {
			_, err := h.desks.HoldTx(t.Context(), tx, h.by, key, 2, reservations.HoldOpts{Quantity: 3, TTL: time.Hour})
			return err
		})
		if err := <-over; err != nil || waited {
			t.Errorf("%s floor, another day: %v, waited %t", key, err, waited)
		}
	}
	h.wantStatus(tuesday.ID(), reservations.Expired)
	waited, over := h.behind(func(tx pgx.Tx) error {
		_, err := h.desks.HoldTx(t.Context(), tx, h.by, "3rd", 1, reservations.HoldOpts{Quantity: 1, TTL: time.Hour})
		return err
	})
	if !waited {
		t.Error("the same day did not wait")
	}
	end(nil)
	h.wantInsufficient(<-over, 1, 0, 3)
}

// Many concurrent calls hold the same keys together, in every order. There is
// no deadlock, and each call holds all keys or none.
func TestHoldAllInCrossingOrders(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	var held atomic.Int64
	var callers sync.WaitGroup
	for range 40 {
		callers.Go(func() {
			parts := []reservations.Part{
				h.seats.Part("a", all, reservations.HoldOpts{Quantity: 1, TTL: time.Hour}),
				h.seats.Part("b", all, reservations.HoldOpts{Quantity: 1, TTL: time.Hour}),
				h.rooms.Part("a", span{1, 2}, reservations.HoldOpts{Quantity: 1, TTL: time.Hour}),
				h.desks.Part("a", 1, reservations.HoldOpts{Quantity: 1, TTL: time.Hour}),
				h.desks.Part("a", 2, reservations.HoldOpts{Quantity: 1, TTL: time.Hour}),
			}
			rand.Shuffle(len(parts), func(i, j int) { parts[i], parts[j] = parts[j], parts[i] })
			handles, err := reservations.HoldAll(t.Context(), h.DB, h.by, parts...)
			if _, ok := errors.AsType[*reservations.InsufficientError](err); err == nil && len(handles) == 5 {
				held.Add(1)
			} else if !ok {
				t.Error(err)
			}
		})
	}
	callers.Wait()
	if held.Load() != 2 || h.Int(`SELECT count(*) FROM reservations`) != 10 {
		t.Errorf("%d held, in %d rows; want 2 in 10 rows", held.Load(), h.Int(`SELECT count(*) FROM reservations`))
	}
}

// A hold of two keys has locked the due rows of one key, and waits for those of
// the other, which a sweep has locked. There is no deadlock, because the sweep
// waits for no lock.
func TestReclaimAgainstSweep(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	b, a := h.seat("b", 5), h.seat("a", 5) // the ids are in the other order than the keys
	h.lapse(a, b)
	gate, open := h.session()
	_, err := gate.Exec(t.Context(), `SELECT FROM reservations WHERE reservation_id = $1 FOR UPDATE`, b.ID())
	h.Must(err)
	waited, over := h.behind(func(tx pgx.Tx) error { // has locked a, waits for b
		_, err := reservations.HoldAllTx(t.Context(), tx, h.by,
			h.seats.Part("a", all, reservations.HoldOpts{Quantity: 5, TTL: time.Hour}), h.seats.Part("b", all, reservations.HoldOpts{Quantity: 5, TTL: time.Hour}))
		return err
	})
	report, err := h.seats.SweepOnce(t.Context(), 10)
	if err != nil || report.ExpiredCount != 0 || !waited {
		t.Errorf("%+v, %v, waited %t: want a sweep that skips the row", report, err, waited)
	}
	open(nil)
	h.Must(<-over)
	h.wantStatus(a.ID(), reservations.Expired)
	h.wantStatus(b.ID(), reservations.Expired)
}

// interrupted are seats for which a function runs right after they were
// counted.
type interrupted struct {
	seats
	then func()
}

func (i interrupted) Held(ctx context.Context, tx pgx.Tx, tenantID uuid.UUID, key string, window reservations.NoWindow) (int64, error) {
	held, err := i.seats.Held(ctx, tx, tenantID, key, window)
	i.then()
	return held, err
}

// A due hold never blocks a new one, swept or not, even if the sweep or a
// release runs between the count and the query for due holds. The units of a
// live hold that is released at that moment are available too.
func TestDueNeverBlocks(t *testing.T) {
	t.Parallel()
	for name, then := range map[string]func(h *house, handle *reservations.Handle) error{
		"not swept": func(*house, *reservations.Handle) error { return nil },
		"swept between": func(h *house, _ *reservations.Handle) error {
			_, err := h.seats.SweepOnce(h.TB.Context(), 0)
			return err
		},
		"released between": func(h *house, handle *reservations.Handle) error {
			if err := failure(h.seats.Release(h.TB.Context(), h.by, handle, reservations.Abandoned)); !conflictWith(reservations.Expired)(err) {
				return err
			}
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHouse(t)
			due := h.seat("hamlet", 5)
			h.lapse(due)
			var once sync.Once
			resource := interrupted{seats{"venue.seat", 5}, func() { once.Do(func() { h.Must(then(h, due)) }) }}
			k := kernelOf(h, resource, reservations.Config{})
			handle, err := k.Hold(t.Context(), h.by, "hamlet", all, reservations.HoldOpts{Quantity: 5, TTL: time.Hour})
			h.Must(err)
			h.wantStatus(handle.ID(), reservations.Held)
			if due := h.get(due.ID()); due.Status == reservations.Held {
				t.Error("both are held")
			}
		})
	}
}

// The number of due holds of a key exceeds one batch.
func TestHoldExpiresABacklog(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.Exec(`INSERT INTO reservations (tenant_id, reservation_id, resource_kind, resource_key, holder_id, quantity, first_held_at, held_at, expires_at)
		SELECT $1, gen_random_uuid(), 'venue.seat', '"hamlet"', 'h', 1, now(), now(), now() - n * interval '1 second'
		FROM generate_series(1, 1203) AS n`, h.tenant)
	h.seat("hamlet", 5)
	_, err := h.seats.Hold(t.Context(), h.by, "hamlet", all, reservations.HoldOpts{Quantity: 1, TTL: time.Hour})
	h.wantInsufficient(err, 1, 0, 5)
	if n := h.Int(`SELECT count(*) FROM audit_log WHERE action = 'reservation.expired'`); n != 1203 {
		t.Errorf("%d expiries recorded, want 1203", n)
	}
}
