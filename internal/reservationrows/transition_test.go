package reservationrows_test

import (
	"errors"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"pgregory.net/rapid"

	"github.com/holdfast/holdfast/audit"
	"github.com/holdfast/holdfast/internal/pg"
	"github.com/holdfast/holdfast/internal/pgtest"
	"github.com/holdfast/holdfast/internal/reservationrows"
)

var endings = []reservationrows.Status{reservationrows.Committed, reservationrows.Released, reservationrows.Expired}

// A reservation ends once: whatever the caller read before, the second ending
// changes no row and fails its whole transaction.
func TestEndsOnce(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	for _, first := range endings {
		for _, second := range endings {
			r, innocent := h.hold("A1", "ann", 1, -time.Second), h.hold("A2", "bob", 1, -time.Second)
			h.Must(h.end(first, r))
			ended := h.get(r.ReservationID)
			if ended.Status != first || ended.EndedAt == nil {
				t.Errorf("%+v, want it %s", ended, first)
			}
			if err := h.end(second, r, innocent); err == nil || !pg.IsData(err) {
				t.Errorf("%s after %s: %v, want an error of the row", second, first, err)
			}
			if diff := cmp.Diff(ended, h.get(r.ReservationID)); diff != "" {
				t.Errorf("%s after %s changed the row:\n%s", second, first, diff)
			}
			if got := h.get(innocent.ReservationID).Status; got != reservationrows.Held {
				t.Errorf("the other reservation of the same call is %s", got)
			}
			if n := h.Int(`SELECT count(*) FROM audit_log WHERE target_id = $1`, r.ReservationID); n != 2 {
				t.Errorf("%d audit rows, want 2: held and %s", n, first)
			}
		}
	}
}

// An empty set of endings or holds does nothing.
func TestNothing(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	h.Must(h.end(reservationrows.Committed))
	h.Must(h.in(func(tx pgx.Tx) error { return reservationrows.HoldTx(t.Context(), tx, nil) }))
	h.Must(h.in(func(tx pgx.Tx) error {
		locked, now, err := reservationrows.LockTx(t.Context(), tx, nil)
		if len(locked) != 0 || now.IsZero() {
			t.Errorf("locked %d at %s", len(locked), now)
		}
		return err
	}))
}

// All holds of a call are made, or none. An id is never used for a second
// reservation of a tenant.
func TestHoldIDOnce(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	r := h.hold("A1", "ann", 1, time.Hour)
	h.Must(h.end(reservationrows.Released, r))
	again, fresh := h.wish("A1", "ann", 1, time.Hour), h.wish("A2", "ann", 1, time.Hour)
	again.ReservationID = r.ReservationID
	err := h.in(func(tx pgx.Tx) error {
		return reservationrows.HoldTx(t.Context(), tx, []reservationrows.Hold{fresh, again})
	})
	if !pg.IsUnique(err, "reservations_pkey") {
		t.Errorf("%v, want the primary key to refuse it", err)
	}
	if _, err := reservationrows.Get(t.Context(), h.DB, h.tenant, fresh.ReservationID); !errors.Is(err, reservationrows.ErrNotFound) {
		t.Errorf("the other hold: %v, want ErrNotFound", err)
	}
	if _, err := reservationrows.Get(t.Context(), h.DB, uuid.New(), r.ReservationID); !errors.Is(err, reservationrows.ErrNotFound) {
		t.Errorf("another tenant's: %v, want ErrNotFound", err)
	}
	neighbour := *h
	neighbour.tenant = uuid.New()
	same := neighbour.wish("A1", "ann", 1, time.Hour)
	same.ReservationID = r.ReservationID
	h.Must(h.in(func(tx pgx.Tx) error { return reservationrows.HoldTx(t.Context(), tx, []reservationrows.Hold{same}) }))
}

func TestExtendAllOrNone(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	live, old, due := h.hold("A1", "ann", 1, time.Minute), h.hold("A2", "ann", 1, time.Hour), h.hold("A3", "bob", 1, -time.Second)
	ended := h.hold("A4", "bob", 1, time.Hour)
	h.Must(h.end(reservationrows.Committed, ended))
	unknown := reservationrows.Reservation{TenantID: h.tenant, ReservationID: uuid.New()}
	foreign := live
	foreign.TenantID = uuid.New()
	for name, c := range map[string]struct {
		with reservationrows.Reservation
		want func(error) bool
	}{
		"past its lifetime": {old, func(err error) bool { return errors.Is(err, reservationrows.ErrLifetimeExceeded) }},
		"due":               {due, conflictWith(reservationrows.Expired)},
		"ended":             {ended, conflictWith(reservationrows.Committed)},
		"unknown":           {unknown, func(err error) bool { return errors.Is(err, reservationrows.ErrNotFound) }},
		"another tenant's":  {foreign, func(err error) bool { return errors.Is(err, reservationrows.ErrNotFound) }},
	} {
		refs := []reservationrows.Ref{c.with.Ref(), live.Ref()}
		h.Must(h.in(func(tx pgx.Tx) error { // commits what the call did, if anything
			if _, err := reservationrows.ExtendTx(t.Context(), tx, refs, time.Minute, time.Hour, usher); !c.want(err) {
				t.Errorf("with one that is %s: %v", name, err)
			}
			return nil
		}))
	}
	if got := h.get(live.ReservationID); !got.ExpiresAt.Equal(live.ExpiresAt) {
		t.Errorf("the live one was extended by %s", got.ExpiresAt.Sub(live.ExpiresAt))
	}
	h.Must(h.in(func(tx pgx.Tx) error {
		extended, err := reservationrows.ExtendTx(t.Context(), tx, []reservationrows.Ref{old.Ref(), live.Ref()}, time.Minute, 2*time.Hour, usher)
		if len(extended) != 2 {
			t.Errorf("extended %d, want 2", len(extended))
		}
		return err
	}))
	for _, r := range []reservationrows.Reservation{live, old} {
		if got := h.get(r.ReservationID).ExpiresAt.Sub(r.ExpiresAt); got != time.Minute {
			t.Errorf("extended by %s, want 1m", got)
		}
	}
	if n := h.Int(`SELECT count(*) FROM audit_log WHERE action = 'reservation.extended'`); n != 2 {
		t.Errorf("%d audit rows of extensions, want 2", n)
	}
}

func conflictWith(actual reservationrows.Status) func(error) bool {
	return func(err error) bool {
		conflict, ok := errors.AsType[*reservationrows.ConflictError](err)
		return ok && conflict.Actual == actual && conflict.Expected == reservationrows.Held
	}
}

// lifecycle is a model of the state machine: what each reservation should be.
type lifecycle struct {
	t     *rapid.T
	h     *fixture
	tx    pgx.Tx
	want  map[uuid.UUID]reservationrows.Reservation
	steps map[uuid.UUID][]string // the actions of its audit rows
	last  uuid.UUID              // the reservation that the last step changed
}

// try runs fn in a savepoint, which an error rolls back.
func (l *lifecycle) try(fn func(tx pgx.Tx) error) error {
	return pgx.BeginFunc(l.h.TB.Context(), l.tx, fn)
}

func (l *lifecycle) pick() (reservationrows.Reservation, bool) {
	if len(l.want) == 0 {
		return reservationrows.Reservation{}, false
	}
	ids := slices.SortedFunc(maps.Keys(l.want), func(a, b uuid.UUID) int { return slices.Compare(a[:], b[:]) })
	l.last = rapid.SampledFrom(ids).Draw(l.t, "id")
	return l.want[l.last], true
}

func (l *lifecycle) hold(*rapid.T) {
	left := rapid.SampledFrom([]time.Duration{-time.Minute, time.Hour}).Draw(l.t, "left")
	wish := l.h.wish("A1", "ann", rapid.Int64Range(1, 3).Draw(l.t, "quantity"), left)
	if err := l.try(func(tx pgx.Tx) error {
		return reservationrows.HoldTx(l.h.TB.Context(), tx, []reservationrows.Hold{wish})
	}); err != nil {
		l.t.Fatal(err)
	}
	wish.Status = reservationrows.Held
	l.last = wish.ReservationID
	l.want[wish.ReservationID] = wish.Reservation
	l.steps[wish.ReservationID] = []string{"reservation.held"}
}

func (l *lifecycle) end(*rapid.T) {
	r, ok := l.pick()
	if !ok {
		return
	}
	to := rapid.SampledFrom(endings).Draw(l.t, "to")
	at := r.HeldAt.Add(time.Hour)
	allowed := r.Status == reservationrows.Held && (to != reservationrows.Expired || !r.ExpiresAt.After(at))
	believed := r
	believed.Status = reservationrows.Held // whatever it is
	err := l.try(func(tx pgx.Tx) error {
		return reservationrows.EndTx(l.h.TB.Context(), tx, endingOf(to, at), []reservationrows.Reservation{believed})
	})
	if (err == nil) != allowed || err != nil && !errors.Is(err, reservationrows.ErrChanged) {
		l.t.Fatalf("%s at %s of one that is %s until %s: %v", to, at, r.Status, r.ExpiresAt, err)
	}
	if err == nil {
		r.Status, r.ReleaseReason, r.EndedAt = to, endingOf(to, at).Reason, &at
		l.want[r.ReservationID] = r
		l.steps[r.ReservationID] = append(l.steps[r.ReservationID], "reservation."+string(to))
	}
}

func (l *lifecycle) extend(*rapid.T) {
	r, ok := l.pick()
	if !ok {
		return
	}
	by := time.Duration(rapid.IntRange(1, 40).Draw(l.t, "minutes")) * time.Minute
	const lifetimeMax = 2 * time.Hour
	allowed := r.Status == reservationrows.Held && r.ExpiresAt.Sub(r.HeldAt) > time.Minute && r.ExpiresAt.Add(by).Sub(r.FirstHeldAt) <= lifetimeMax
	err := l.try(func(tx pgx.Tx) error {
		_, err := reservationrows.ExtendTx(l.h.TB.Context(), tx, []reservationrows.Ref{r.Ref()}, by, lifetimeMax, usher)
		return err
	})
	if (err == nil) != allowed {
		l.t.Fatalf("by %s, of %+v: %v", by, r, err)
	}
	if err == nil {
		r.ExpiresAt = r.ExpiresAt.Add(by)
		l.want[r.ReservationID] = r
		l.steps[r.ReservationID] = append(l.steps[r.ReservationID], "reservation.extended")
	}
}

// check compares the changed row, and its record, with the model.
func (l *lifecycle) check(*rapid.T) {
	if want, ok := l.want[l.last]; ok {
		l.checkRows(map[uuid.UUID]reservationrows.Reservation{l.last: want})
	}
}

func (l *lifecycle) checkRows(rows map[uuid.UUID]reservationrows.Reservation) {
	ctx := l.h.TB.Context()
	for id, want := range rows {
		got, err := l.h.stored(l.tx, id)
		if err != nil {
			l.t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			l.t.Fatalf("(-want +got):\n%s", diff)
		}
		records, err := audit.History(ctx, l.tx, l.h.tenant, id)
		if err != nil {
			l.t.Fatal(err)
		}
		var actions []string
		for i, r := range records {
			actions = append(actions, r.Action)
			if i > 0 && string(r.Before) != string(records[i-1].After) {
				l.t.Fatalf("%s begins with %s, the previous one left %s", r.Action, r.Before, records[i-1].After)
			}
		}
		if diff := cmp.Diff(l.steps[id], actions); diff != "" {
			l.t.Fatalf("record (-want +got):\n%s", diff)
		}
	}
}

// Under random operations a reservation changes only as its state machine
// allows, and its record has every transition.
func TestLifecycle(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	rapid.Check(t, pgtest.Fewer(func(rt *rapid.T) {
		tx, err := h.DB.Begin(t.Context())
		if err != nil {
			rt.Fatal(err)
		}
		defer func() { _ = tx.Rollback(t.Context()) }()
		l := &lifecycle{rt, h, tx, make(map[uuid.UUID]reservationrows.Reservation), make(map[uuid.UUID][]string), uuid.Nil}
		rt.Repeat(map[string]func(*rapid.T){"hold": l.hold, "end": l.end, "extend": l.extend, "": l.check})
		l.checkRows(l.want) // and no other row was changed
	}))
}
