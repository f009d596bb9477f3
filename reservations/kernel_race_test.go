package reservations_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/internal/reservationrows"
	"github.com/holdfast/holdfast/reservations"
)

// move is a verb on the one hold of a show, in a session's transaction.
type move func(h *house, tx pgx.Tx, show string, handle *reservations.Handle) error

// moves are the five verbs. A hold wants more than is left beside the row, so that it is decided by the row.
var moves = map[string]move{
	"hold": func(h *house, tx pgx.Tx, show string, _ *reservations.Handle) error {
		_, err := h.seats.HoldTx(h.t.Context(), tx, h.by, show, all, reservations.HoldOpts{Quantity: 4, TTL: time.Hour})
		return err
	},
	"commit": func(h *house, tx pgx.Tx, _ string, handle *reservations.Handle) error {
		return failure(h.seats.CommitTx(h.t.Context(), tx, h.by, handle))
	},
	"release": func(h *house, tx pgx.Tx, _ string, handle *reservations.Handle) error {
		return failure(h.seats.ReleaseTx(h.t.Context(), tx, h.by, handle, reservations.Abandoned))
	},
	"extend": func(h *house, tx pgx.Tx, _ string, handle *reservations.Handle) error {
		_, err := h.seats.ExtendTx(h.t.Context(), tx, h.by, handle, time.Minute)
		return err
	},
	// An expiry that waits for the row, as that of a hold which comes up short does. A sweep would pass it by.
	"expire": func(h *house, tx pgx.Tx, _ string, handle *reservations.Handle) error {
		locked, now, err := reservationrows.LockTx(h.t.Context(), tx, []reservationrows.Ref{{TenantID: h.tenant, ReservationID: handle.ID()}})
		if err != nil || len(locked) != 1 || !locked[0].Due(now) {
			return errors.Join(err, errNotDue)
		}
		return reservationrows.EndTx(h.t.Context(), tx, reservationrows.Ending{To: reservations.Expired, Reason: reservations.TTL, At: now}, locked)
	},
}

var errNotDue = errors.New("not due")

// said puts an error in few words that do not depend on ids.
func said(err error) string {
	if conflict, ok := errors.AsType[*reservations.ConflictError](err); ok {
		return "is " + string(conflict.Actual)
	}
	if insufficient, ok := errors.AsType[*reservations.InsufficientError](err); ok {
		return fmt.Sprintf("%d of %d left", insufficient.Available, insufficient.Capacity)
	}
	if errors.Is(err, reservations.ErrNotFound) {
		return "not found"
	}
	if err != nil {
		return err.Error()
	}
	return "done"
}

// aftermath is what two moves say and leave behind.
type aftermath struct {
	First, Second string
	Status        reservations.Status
	Reason        reservations.ReleaseReason
	Extended      bool
	Endings       int64 // rows of the record that end it
	Taken         int64 // units held or committed of the show
}

func (h *house) aftermath(show string, id uuid.UUID, first, second error) aftermath {
	h.t.Helper()
	r := h.get(id)
	return aftermath{
		said(first), said(second), r.Status, r.ReleaseReason, r.ExpiresAt.Sub(r.HeldAt) > time.Hour,
		h.int(`SELECT count(*) FROM audit_log WHERE target_id = $1 AND action NOT IN ('reservation.held', 'reservation.extended')`, id),
		h.int(`SELECT coalesce(sum(quantity), 0) FROM reservations WHERE resource_key = to_json($1::text)::text AND status IN ('held', 'committed')`, show),
	}
}

// Two verbs on one row at the same moment: the second begins while the first one's transaction is open. What they say and
// leave behind is what they would one after the other, in one of the two orders; and the row has at most one ending.
func TestEveryPairOfVerbs(t *testing.T) {
	t.Parallel()
	names := slices.Sorted(maps.Keys(moves))
	for _, due := range []bool{false, true} {
		t.Run(map[bool]string{false: "live", true: "due"}[due], func(t *testing.T) {
			t.Parallel()
			h := newHouse(t)
			h.hasty()
			for _, first := range names {
				for _, second := range names {
					for _, rolledBack := range []bool{false, true} {
						t.Run(fmt.Sprintf("%s, %s, rolled back %t", first, second, rolledBack), func(t *testing.T) {
							h.pair(t, pair{first, second, due, rolledBack})
						})
					}
				}
			}
		})
	}
}

type pair struct {
	first, second   string
	due, rolledBack bool // the first session's transaction
}

func (h *house) pair(t *testing.T, p pair) {
	t.Helper()
	raced := h.twoMoves(p, true)
	if raced.Endings > 1 {
		t.Errorf("%d endings", raced.Endings)
	}
	inOrder := h.twoMoves(p, false)
	if cmp.Equal(inOrder, raced) {
		return
	}
	if p.rolledBack {
		t.Fatalf("behind what never happened: %+v\nalone: %+v", raced, inOrder)
	}
	reversed := h.twoMoves(pair{p.second, p.first, p.due, false}, false)
	reversed.First, reversed.Second = reversed.Second, reversed.First
	if !cmp.Equal(reversed, raced) {
		t.Errorf("at once: %+v\none after the other: %+v\nthe other way round: %+v", raced, inOrder, reversed)
	}
}

var errTurnedBack = errors.New("turned back")

func (h *house) twoMoves(p pair, atOnce bool) aftermath {
	h.t.Helper()
	show := fmt.Sprintf("%+v, at once %t", p, atOnce)
	handle := h.seat(show, 2)
	other := h.again(handle)
	if p.due {
		h.lapse(handle)
	}
	tx, end := h.session()
	firstErr := moves[p.first](h, tx, show, handle)
	ending := firstErr
	if p.rolledBack {
		ending = errTurnedBack
	}
	second := func(tx pgx.Tx) error { return moves[p.second](h, tx, show, other) }
	if !atOnce {
		end(ending)
		secondErr := h.in(second)
		return h.aftermath(show, handle.ID(), firstErr, secondErr)
	}
	_, over := h.behind(second)
	end(ending)
	return h.aftermath(show, handle.ID(), firstErr, <-over)
}

// What the second of two verbs says, spelled out: the first has the row locked and commits. A session that waits does so
// at the row, or at the key's turn.
func TestSecondOfTwo(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.hasty()
	type want struct {
		said   string
		waits  bool
		status reservations.Status
	}
	for order, want := range map[string]want{
		"commit commit":   {"is committed", true, reservations.Committed},
		"commit release":  {"is committed", true, reservations.Committed},
		"commit extend":   {"is committed", true, reservations.Committed},
		"commit expire":   {"not due", true, reservations.Committed},
		"commit hold":     {"3 of 5 left", false, reservations.Committed},
		"release commit":  {"is released", true, reservations.Released},
		"release release": {"is released", true, reservations.Released},
		"release extend":  {"is released", true, reservations.Released},
		"release hold":    {"3 of 5 left", false, reservations.Released}, // decided before the release is over
		"extend commit":   {"done", true, reservations.Committed},
		"extend release":  {"done", true, reservations.Released},
		"extend extend":   {"done", true, reservations.Held},
		"extend expire":   {"not due", true, reservations.Held},
		"hold hold":       {"3 of 5 left", false, reservations.Held}, // the first gave its turn back
		"hold commit":     {"done", false, reservations.Committed},
		"hold release":    {"done", false, reservations.Released},
		"hold extend":     {"done", false, reservations.Held},
		// of a due row
		"expire expire due":  {"not due", true, reservations.Expired},
		"expire commit due":  {"is expired", true, reservations.Expired},
		"expire release due": {"is expired", true, reservations.Expired},
		"expire extend due":  {"is expired", true, reservations.Expired},
		"expire hold due":    {"done", true, reservations.Expired},
		"release hold due":   {"done", true, reservations.Expired}, // the first is a conflict, and rolled back
		"release expire due": {"done", true, reservations.Expired},
		"hold commit due":    {"is expired", true, reservations.Expired},
		"hold release due":   {"is expired", true, reservations.Expired},
		"hold extend due":    {"is expired", true, reservations.Expired},
		"hold expire due":    {"not due", true, reservations.Expired},
		"hold hold due":      {"1 of 5 left", true, reservations.Expired},
	} {
		t.Run(order, func(t *testing.T) {
			var first, second, state string
			_, _ = fmt.Sscan(order, &first, &second, &state)
			handle := h.seat(order, 2)
			other := h.again(handle)
			if state == "due" {
				h.lapse(handle)
			}
			tx, end := h.session()
			firstErr := moves[first](h, tx, order, handle)
			waited, over := h.behind(func(tx pgx.Tx) error { return moves[second](h, tx, order, other) })
			end(firstErr)
			if got := said(<-over); got != want.said || waited != want.waits {
				t.Errorf("%s (waited %t), want %s (%t)", got, waited, want.said, want.waits)
			}
			h.wantStatus(handle.ID(), want.status)
		})
	}
}

// A sweep waits for nobody: it passes by a due hold that is being ended or reclaimed, and ends the others.
func TestSweepPassesBy(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"release", "hold"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHouse(t)
			busy, idle := h.seat("a", 2), h.seat("b", 2)
			h.lapse(busy, idle)
			tx, end := h.session()
			err := moves[name](h, tx, "a", busy)
			report, sweepErr := h.seats.SweepOnce(t.Context(), 10)
			if sweepErr != nil || report.ExpiredCount != 1 {
				t.Errorf("%+v, %v, want 1 expired", report, sweepErr)
			}
			h.wantStatus(idle.ID(), reservations.Expired)
			h.wantStatus(busy.ID(), reservations.Held)
			end(errors.Join(err, errTurnedBack))
			report, sweepErr = h.seats.SweepOnce(t.Context(), 10)
			if sweepErr != nil || report.ExpiredCount != 1 {
				t.Errorf("%+v, %v after the other gave up, want 1 expired", report, sweepErr)
			}
		})
	}
}
