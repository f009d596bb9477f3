package reservations_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/holdfast/holdfast/internal/pg"
	"github.com/holdfast/holdfast/reservations"
)

// A hold lacks units of two keys. It expires the due holds of a, then of b. A
// release has locked the hold of b, which is the older one, and waits for that
// of a. Postgres ends one of the two to resolve the deadlock. Neither caller
// receives an error.
func TestHoldsAgainstReleases(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	b, a := h.seat("b", 5), h.seat("a", 5) // the ids are in the other order than the keys
	h.lapse(a, b)
	gate, open := h.session()
	_, err := gate.Exec(t.Context(), `SELECT FROM reservations WHERE reservation_id = $1 FOR UPDATE`, b.ID())
	h.Must(err)
	released, held := make(chan error, 1), make(chan error, 1)
	go func() {
		release := func() error {
			return failure(reservations.ReleaseAll(t.Context(), h.DB, h.by, []*reservations.Handle{a, b}, reservations.Abandoned))
		}
		err := release()
		if pg.IsDeadlock(err) { // on a busy machine Postgres may end it three times
			err = release()
		}
		released <- err
	}()
	h.untilWaiting(1)
	go func() {
		opts := reservations.HoldOpts{Quantity: 5, TTL: time.Hour}
		_, err := reservations.HoldAll(t.Context(), h.DB, h.by, h.seats.Part("a", all, opts), h.seats.Part("b", all, opts))
		held <- err
	}()
	h.untilWaiting(2) // it has locked a, and waits for the release at b
	open(nil)
	if err := <-held; err != nil {
		t.Errorf("hold: %v", err)
	}
	if err := <-released; !conflictWith(reservations.Expired)(err) {
		t.Errorf("release: %v, want a conflict", err)
	}
	h.wantExpiries(a, 1)
	h.wantExpiries(b, 1)
}

// untilWaiting waits until that many sessions of the database wait for a lock.
func (h *house) untilWaiting(sessions int) {
	h.TB.Helper()
	h.until(`SELECT count(*) = $1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`, sessions)
}

// Every verb that begins its own transaction repeats it after a deadlock, and
// returns the error of the third. A verb in the caller's transaction returns
// the first error.
func TestDeadlocksAreRepeated(t *testing.T) {
	t.Parallel()
	opts := reservations.HoldOpts{Quantity: 1, TTL: time.Hour}
	for name, verb := range map[string]func(ctx context.Context, h *house, handle *reservations.Handle) error{
		"hold": func(ctx context.Context, h *house, _ *reservations.Handle) error {
			_, err := h.seats.Hold(ctx, h.by, "othello", all, opts)
			return err
		},
		"hold all": func(ctx context.Context, h *house, _ *reservations.Handle) error {
			_, err := reservations.HoldAll(ctx, h.DB, h.by, h.seats.Part("othello", all, opts), h.desks.Part("3rd", 1, opts))
			return err
		},
		"commit": func(ctx context.Context, h *house, handle *reservations.Handle) error {
			return failure(h.seats.Commit(ctx, h.by, handle))
		},
		"commit all": func(ctx context.Context, h *house, handle *reservations.Handle) error {
			return failure(reservations.CommitAll(ctx, h.DB, h.by, []*reservations.Handle{handle}))
		},
		"release": func(ctx context.Context, h *house, handle *reservations.Handle) error {
			return failure(h.seats.Release(ctx, h.by, handle, reservations.Abandoned))
		},
		"release all": func(ctx context.Context, h *house, handle *reservations.Handle) error {
			return failure(reservations.ReleaseAll(ctx, h.DB, h.by, []*reservations.Handle{handle}, reservations.Abandoned))
		},
		"extend": func(ctx context.Context, h *house, handle *reservations.Handle) error {
			_, err := h.seats.Extend(ctx, h.by, handle, time.Minute)
			return err
		},
		"sweep": func(ctx context.Context, h *house, _ *reservations.Handle) error {
			_, err := h.seats.SweepOnce(ctx, 0)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHouse(t)
			handle := h.seat("hamlet", 1)
			if name == "sweep" {
				h.lapse(handle)
			}
			h.Exec(`CREATE SEQUENCE attempts`)
			h.deadlock(3)
			if err := verb(t.Context(), h, handle); pg.Code(err) != "40P01" || h.attempts() != 3 {
				t.Errorf("after 3 deadlocks: %v in %d attempts, want the error", err, h.attempts())
			}
			h.deadlock(2)
			if err := verb(t.Context(), h, handle); err != nil || h.attempts() < 3 {
				t.Errorf("after 2 deadlocks: %v in %d attempts", err, h.attempts())
			}
		})
	}
	t.Run("in the caller's transaction", func(t *testing.T) {
		t.Parallel()
		h := newHouse(t)
		handle := h.seat("hamlet", 1)
		h.Exec(`CREATE SEQUENCE attempts`)
		h.deadlock(1)
		err := h.in(func(tx pgx.Tx) error { return failure(h.seats.CommitTx(t.Context(), tx, h.by, handle)) })
		if pg.Code(err) != "40P01" || h.attempts() != 1 {
			t.Errorf("%v in %d attempts, want the deadlock", err, h.attempts())
		}
		h.Must(h.in(func(tx pgx.Tx) error { return failure(h.seats.CommitTx(t.Context(), tx, h.by, h.again(handle))) }))
	})
}

// deadlock makes the given number of writes of reservations fail with a
// deadlock. A sequence counts the attempts, because a rollback does not reset
// it.
func (h *house) deadlock(times int) {
	h.TB.Helper()
	h.Exec(`ALTER SEQUENCE attempts RESTART`)
	h.Exec(fmt.Sprintf(`
		CREATE OR REPLACE FUNCTION deadlock() RETURNS trigger LANGUAGE plpgsql AS $$
		BEGIN
		    IF nextval('attempts') <= %d THEN RAISE EXCEPTION 'deadlock detected' USING ERRCODE = 'deadlock_detected'; END IF;
		    RETURN NULL;
		END $$`, times))
	h.Exec(`CREATE OR REPLACE TRIGGER deadlock AFTER INSERT OR UPDATE ON reservations FOR EACH STATEMENT EXECUTE FUNCTION deadlock()`)
}

func (h *house) attempts() int64 {
	h.TB.Helper()
	return h.Int(`SELECT last_value FROM attempts`)
}

// deadlocked are seats whose capacity cannot be read, because every attempt
// ends with a deadlock.
type deadlocked struct {
	seats
	calls *int
}

func (d deadlocked) Capacity(context.Context, pgx.Tx, uuid.UUID, string, reservations.NoWindow) (int64, error) {
	*d.calls++
	return 0, &pgconn.PgError{Code: "40P01"}
}

// A transaction is also repeated after a deadlock in a call of the resource.
func TestDeadlockOfResource(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	var calls int
	k := kernelOf(h, deadlocked{seats{"venue.seat", 5}, &calls}, reservations.Config{})
	_, err := k.Hold(t.Context(), h.by, "hamlet", all, reservations.HoldOpts{Quantity: 1, TTL: time.Hour})
	if pg.Code(err) != "40P01" || calls != 3 {
		t.Errorf("%v after %d attempts, want the third deadlock", err, calls)
	}
}
