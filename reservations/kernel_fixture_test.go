package reservations_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/audit"
	"github.com/holdfast/holdfast/internal/pgtest"
	"github.com/holdfast/holdfast/reservations"
)

// span is a window that may overlap others: from one hour to another, excluding
// the latter.
type span struct{ From, To int }

func (s span) Interval() (start, end int64) { return int64(s.From), int64(s.To) }

func (s span) overlaps(other span) bool { return s.From < other.To && other.From < s.To }

// rooms are a number of equal rooms. They can be booked for overlapping spans.
type rooms struct {
	reservations.HeldAndCommitted[string, span]
	capacity int64
}

func (r rooms) Capacity(context.Context, pgx.Tx, uuid.UUID, string, span) (int64, error) {
	return r.capacity, nil
}

// desks are a number of desks per floor and day. Days do not overlap.
type desks struct {
	reservations.HeldOnly[string, int]
	reservations.DisjointWindows
	capacity int64
}

func (d desks) Capacity(context.Context, pgx.Tx, uuid.UUID, string, int) (int64, error) {
	return d.capacity, nil
}

type (
	roomKernel = reservations.Kernel[string, span]
	deskKernel = reservations.Kernel[string, int]
)

// house is a fixture with kernels.
type house struct {
	*fixture
	by    reservations.Actor
	seats *seatKernel // 5 per show, committed ones count
	rooms *roomKernel // 2 per key
	desks *deskKernel // 3 per floor and day, committed ones do not count
}

func newHouse(t *testing.T) *house {
	t.Helper()
	h := &house{fixture: newFixture(t)}
	h.by = reservations.By(h.tenant, audit.User("ann")).WithCorrelation("c-1").WithReason("why")
	h.seats = kernelOf(h, seats{"venue.seat", 5}, reservations.Config{})
	h.rooms = kernelOf(h, rooms{"house.room", 2}, reservations.Config{})
	h.desks = kernelOf(h, desks{HeldOnly: "house.desk", capacity: 3}, reservations.Config{})
	return h
}

func kernelOf[K, W any](h *house, resource reservations.Resource[K, W], config reservations.Config) *reservations.Kernel[K, W] {
	h.TB.Helper()
	k, err := reservations.NewKernel(h.DB, resource, config)
	h.Must(err)
	return k
}

// hasty turns off synchronous_commit, for tests with many commits.
func (h *house) hasty() {
	h.TB.Helper()
	h.Exec(`ALTER DATABASE ` + pgx.Identifier{h.DB.Config().ConnConfig.Database}.Sanitize() + ` SET synchronous_commit = off`)
	h.DB.Reset() // the setting is for new connections
}

// seat holds seats of a show for an hour.
func (h *house) seat(show string, quantity int64) *reservations.Handle {
	h.TB.Helper()
	handle, err := h.seats.Hold(h.TB.Context(), h.by, show, all, reservations.HoldOpts{Quantity: quantity, TTL: time.Hour})
	h.Must(err)
	return handle
}

// failure returns the error of a verb without its rows.
func failure[T any](_ T, err error) error { return err }

// refusal is the conflict of a release in the caller's transaction, or its
// error.
func refusal[T any](_ T, conflict *reservations.ConflictError, err error) error {
	if err == nil && conflict != nil {
		return conflict
	}
	return err
}

// again returns a second handle for the same hold, as another process has.
func (h *house) again(handle *reservations.Handle) *reservations.Handle {
	return h.seats.Handle(h.tenant, handle.ID())
}

// lapse makes holds due.
func (h *house) lapse(handles ...*reservations.Handle) {
	h.TB.Helper()
	for _, handle := range handles {
		h.Exec(`UPDATE reservations SET expires_at = clock_timestamp() - interval '1 second' WHERE reservation_id = $1`, handle.ID())
	}
}

// wantStatus checks the stored status. It does not wait for a transaction that
// has locked the row.
func (h *house) wantStatus(id uuid.UUID, want reservations.Status) {
	h.TB.Helper()
	var got reservations.Status
	h.Must(h.DB.QueryRow(h.TB.Context(), `SELECT status FROM reservations WHERE reservation_id = $1`, id).Scan((*string)(&got)))
	if got != want {
		h.TB.Errorf("it is %s, want %s", got, want)
	}
}

func (h *house) wantInsufficient(err error, requested, available, capacity int64) {
	h.TB.Helper()
	got, ok := errors.AsType[*reservations.InsufficientError](err)
	if !ok || got.Requested != requested || got.Available != available || got.Capacity != capacity {
		h.TB.Errorf("%v, want %d requested, %d of %d available", err, requested, available, capacity)
	}
}

// session returns an open transaction.
func (h *house) session() (tx pgx.Tx, end func(error)) {
	h.TB.Helper()
	tx = h.Begin()
	return tx, func(err error) {
		h.TB.Helper()
		done := tx.Commit
		if err != nil {
			done = tx.Rollback
		}
		if err := done(h.TB.Context()); err != nil {
			h.TB.Error(err)
		}
	}
}

// behind runs do in a separate session. It returns once the session waits for a
// lock (waited is true) or has ended. The channel receives the error when the
// session has ended.
func (h *house) behind(do func(tx pgx.Tx) error) (waited bool, over <-chan error) {
	h.TB.Helper()
	tx, end := h.session()
	var pid uint32
	h.Must(tx.QueryRow(h.TB.Context(), `SELECT pg_backend_pid()`).Scan(&pid))
	done := make(chan error, 1)
	go func() {
		err := do(tx)
		end(err)
		done <- err
	}()
	pgtest.Until(h.TB, "the session waits for a lock or has ended", func() bool {
		waited = h.Int(`SELECT count(*) FROM pg_stat_activity WHERE pid = $1 AND wait_event_type = 'Lock'`, pid) > 0
		return waited || len(done) > 0
	})
	return waited, done
}
