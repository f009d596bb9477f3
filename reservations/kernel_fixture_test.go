package reservations_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/reservations"
)

// span is a window that may overlap others: from one hour up to, not including, another.
type span struct{ From, To int }

func (s span) Interval() (start, end int64) { return int64(s.From), int64(s.To) }

func (s span) overlaps(other span) bool { return s.From < other.To && other.From < s.To }

// rooms are so many of a kind of room. They can be booked for spans that overlap.
type rooms struct {
	reservations.PeakHeldAndCommitted[string, span]
	capacity int64
}

func (r rooms) Capacity(context.Context, pgx.Tx, uuid.UUID, string, span) (int64, error) {
	return r.capacity, nil
}

// desks are so many of each floor a day; days do not overlap.
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

// house is a hall with kernels.
type house struct {
	*hall
	by    reservations.Actor
	seats *seatKernel // 5 of each, committed ones count
	rooms *roomKernel // 2 of each
	desks *deskKernel // 3 of each, committed ones do not count
}

func newHouse(t *testing.T) *house {
	t.Helper()
	h := &house{hall: newHall(t)}
	h.by = reservations.User(h.tenant, "ann").WithCorrelation("c-1").WithReason("why")
	h.seats = kernelOf(h, seats{"venue.seat", 5}, reservations.Config{})
	h.rooms = kernelOf(h, rooms{"house.room", 2}, reservations.Config{})
	h.desks = kernelOf(h, desks{HeldOnly: "house.desk", capacity: 3}, reservations.Config{})
	return h
}

func kernelOf[K, W any](h *house, resource reservations.Resource[K, W], config reservations.Config) *reservations.Kernel[K, W] {
	h.t.Helper()
	k, err := reservations.NewKernel(h.db, resource, config)
	h.must(err)
	return k
}

// hasty lets commits not wait for the disk, for tests of many.
func (h *house) hasty() {
	h.t.Helper()
	h.exec(`ALTER DATABASE ` + pgx.Identifier{h.db.Config().ConnConfig.Database}.Sanitize() + ` SET synchronous_commit = off`)
	h.db.Reset() // the setting is for new connections
}

// seat holds seats of a show for an hour.
func (h *house) seat(show string, quantity int64) *reservations.Handle {
	h.t.Helper()
	handle, err := h.seats.Hold(h.t.Context(), h.by, show, all, reservations.HoldOpts{Quantity: quantity, TTL: time.Hour})
	h.must(err)
	return handle
}

// failure is the error of a verb that ends holds, without their rows.
func failure[T any](_ T, err error) error { return err }

// again is a second handle for the same hold, as another process makes one.
func (h *house) again(handle *reservations.Handle) *reservations.Handle {
	return h.seats.Handle(h.tenant, handle.ID())
}

// lapse lets deadlines pass.
func (h *house) lapse(handles ...*reservations.Handle) {
	h.t.Helper()
	for _, handle := range handles {
		h.exec(`UPDATE reservations SET expires_at = clock_timestamp() - interval '1 second' WHERE reservation_id = $1`, handle.ID())
	}
}

// wantStatus checks the status that the row has, without waiting for a transaction that has it locked.
func (h *house) wantStatus(id uuid.UUID, want reservations.Status) {
	h.t.Helper()
	var got reservations.Status
	h.must(h.db.QueryRow(h.t.Context(), `SELECT status FROM reservations WHERE reservation_id = $1`, id).Scan((*string)(&got)))
	if got != want {
		h.t.Errorf("it is %s, want %s", got, want)
	}
}

func (h *house) wantInsufficient(err error, requested, available, capacity int64) {
	h.t.Helper()
	got, ok := errors.AsType[*reservations.InsufficientError](err)
	if !ok || got.Requested != requested || got.Available != available || got.Capacity != capacity {
		h.t.Errorf("%v, want %d requested, %d of %d available", err, requested, available, capacity)
	}
}

// session is a transaction that is left open.
func (h *house) session() (tx pgx.Tx, end func(error)) {
	h.t.Helper()
	tx = h.begin()
	return tx, func(err error) {
		h.t.Helper()
		done := tx.Commit
		if err != nil {
			done = tx.Rollback
		}
		if err := done(h.t.Context()); err != nil {
			h.t.Error(err)
		}
	}
}

// behind does something in a session of its own and returns once it waits for a lock, or is over; which of the two it
// is, waited says. The error comes by the channel when the session has ended.
func (h *house) behind(do func(tx pgx.Tx) error) (waited bool, over <-chan error) {
	h.t.Helper()
	tx, end := h.session()
	var pid uint32
	h.must(tx.QueryRow(h.t.Context(), `SELECT pg_backend_pid()`).Scan(&pid))
	done := make(chan error, 1)
	go func() {
		err := do(tx)
		end(err)
		done <- err
	}()
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline) && len(done) == 0; {
		if h.int(`SELECT count(*) FROM pg_stat_activity WHERE pid = $1 AND wait_event_type = 'Lock'`, pid) > 0 {
			return true, done
		}
	}
	return false, done
}
