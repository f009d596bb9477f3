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

// verb is a verb on the only hold of a show, in a session's transaction.
type verb func(h *house, tx pgx.Tx, show string, handle *reservations.Handle) error

// verbs are the five verbs. The hold needs more units than are left, so its
// outcome depends on the row.
var verbs = map[string]verb{
	"hold": func(h *house, tx pgx.Tx, show string, _ *reservations.Handle) error {
		_, err := h.seats.HoldTx(h.TB.Context(), tx, h.by, show, all, reservations.HoldOpts{Quantity: 4, TTL: time.Hour})
		return err
	},
	"commit": func(h *house, tx pgx.Tx, _ string, handle *reservations.Handle) error {
		return failure(h.seats.CommitTx(h.TB.Context(), tx, h.by, handle))
	},
	"release": func(h *house, tx pgx.Tx, _ string, handle *reservations.Handle) error {
		return refusal(h.seats.ReleaseTx(h.TB.Context(), tx, h.by, handle, reservations.Abandoned))
	},
	"extend": func(h *house, tx pgx.Tx, _ string, handle *reservations.Handle) error {
		_, err := h.seats.ExtendTx(h.TB.Context(), tx, h.by, handle, time.Minute)
		return err
	},
	// This expiry waits for the row, like the expiry by a hold that lacks
	// units. A sweep would skip the row.
	"expire": func(h *house, tx pgx.Tx, _ string, handle *reservations.Handle) error {
		locked, now, err := reservationrows.LockTx(h.TB.Context(), tx, []reservationrows.Ref{{TenantID: h.tenant, ReservationID: handle.ID()}})
		if err != nil || len(locked) != 1 || !locked[0].Due(now) {
			return errors.Join(err, errNotDue)
		}
		return reservationrows.EndTx(h.TB.Context(), tx, reservationrows.Ending{To: reservations.Expired, Reason: reservationrows.TTL, At: now}, locked)
	},
}

var errNotDue = errors.New("not due")

// errorText is the text of an error without ids.
func errorText(err error) string {
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

// outcome is the results of two verbs and the rows after them.
type outcome struct {
	First, Second string
	Status        reservations.Status
	Reason        reservations.ReleaseReason
	Extended      bool
	Endings       int64 // audit rows that end the hold
	Taken         int64 // units of the show that are held or committed
}

func (h *house) outcomeOf(show string, id uuid.UUID, first, second error) outcome {
	h.TB.Helper()
	r := h.get(id)
	return outcome{
		errorText(first), errorText(second), r.Status, r.ReleaseReason, r.ExpiresAt.Sub(r.HeldAt) > time.Hour,
		h.Int(`SELECT count(*) FROM audit_log WHERE target_id = $1 AND action NOT IN ('reservation.held', 'reservation.extended')`, id),
		h.Int(`SELECT coalesce(sum(quantity), 0) FROM reservations WHERE resource_key = to_json($1::text)::text AND status IN ('held', 'committed')`, show),
	}
}

// Two concurrent verbs on one row: the second begins while the transaction of
// the first is open. Their results and the rows are as if they ran one after
// the other, in one of the two orders. The row has at most one ending.
func TestEveryPairOfVerbs(t *testing.T) {
	t.Parallel()
	names := slices.Sorted(maps.Keys(verbs))
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
	due, rolledBack bool // whether the transaction of the first session was rolled back
}

func (h *house) pair(t *testing.T, p pair) {
	t.Helper()
	raced := h.twoVerbs(p, true)
	if raced.Endings > 1 {
		t.Errorf("%d endings", raced.Endings)
	}
	inOrder := h.twoVerbs(p, false)
	if cmp.Equal(inOrder, raced) {
		return
	}
	if p.rolledBack {
		t.Fatalf("after a rollback: %+v\nalone: %+v", raced, inOrder)
	}
	reversed := h.twoVerbs(pair{p.second, p.first, p.due, false}, false)
	reversed.First, reversed.Second = reversed.Second, reversed.First
	if !cmp.Equal(reversed, raced) {
		t.Errorf("concurrent: %+v\none after the other: %+v\nin the other order: %+v", raced, inOrder, reversed)
	}
}

var errTurnedBack = errors.New("rolled back")

func (h *house) twoVerbs(p pair, atOnce bool) outcome {
	h.TB.Helper()
	show := fmt.Sprintf("%+v, concurrent %t", p, atOnce)
	handle := h.seat(show, 2)
	other := h.again(handle)
	if p.due {
		h.lapse(handle)
	}
	tx, end := h.session()
	firstErr := verbs[p.first](h, tx, show, handle)
	ending := firstErr
	if p.rolledBack {
		ending = errTurnedBack
	}
	second := func(tx pgx.Tx) error { return verbs[p.second](h, tx, show, other) }
	if !atOnce {
		end(ending)
		secondErr := h.in(second)
		return h.outcomeOf(show, handle.ID(), firstErr, secondErr)
	}
	_, over := h.behind(second)
	end(ending)
	return h.outcomeOf(show, handle.ID(), firstErr, <-over)
}

// The exact result of the second of two verbs. The first one has locked the row
// and commits. The second session waits for the row, or for the lock of the
// key.
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
		"release hold":    {"3 of 5 left", false, reservations.Released}, // decided before the release commits
		"extend commit":   {"done", true, reservations.Committed},
		"extend release":  {"done", true, reservations.Released},
		"extend extend":   {"done", true, reservations.Held},
		"extend expire":   {"not due", true, reservations.Held},
		"hold hold":       {"3 of 5 left", false, reservations.Held}, // the first has released the lock of the key
		"hold commit":     {"done", false, reservations.Committed},
		"hold release":    {"done", false, reservations.Released},
		"hold extend":     {"done", false, reservations.Held},
		// on a due row
		"expire expire due":  {"not due", true, reservations.Expired},
		"expire commit due":  {"is expired", true, reservations.Expired},
		"expire release due": {"is expired", true, reservations.Expired},
		"expire extend due":  {"is expired", true, reservations.Expired},
		"expire hold due":    {"done", true, reservations.Expired},
		"release hold due":   {"done", true, reservations.Expired}, // the first is a conflict, and is rolled back
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
			firstErr := verbs[first](h, tx, order, handle)
			waited, over := h.behind(func(tx pgx.Tx) error { return verbs[second](h, tx, order, other) })
			end(firstErr)
			if got := errorText(<-over); got != want.said || waited != want.waits {
				t.Errorf("%s (waited %t), want %s (%t)", got, waited, want.said, want.waits)
			}
			h.wantStatus(handle.ID(), want.status)
		})
	}
}

// A sweep waits for no lock. It skips a due hold that another transaction is
// ending, and ends the others.
func TestSweepSkipsLockedHolds(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"release", "hold"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHouse(t)
			busy, idle := h.seat("a", 2), h.seat("b", 2)
			h.lapse(busy, idle)
			tx, end := h.session()
			err := verbs[name](h, tx, "a", busy)
			report, sweepErr := h.seats.SweepOnce(t.Context(), 10)
			if sweepErr != nil || report.ExpiredCount != 1 {
				t.Errorf("%+v, %v, want 1 expired", report, sweepErr)
			}
			h.wantStatus(idle.ID(), reservations.Expired)
			h.wantStatus(busy.ID(), reservations.Held)
			end(errors.Join(err, errTurnedBack))
			report, sweepErr = h.seats.SweepOnce(t.Context(), 10)
			if sweepErr != nil || report.ExpiredCount != 1 {
				t.Errorf("%+v, %v after the other rolled back, want 1 expired", report, sweepErr)
			}
		})
	}
}
