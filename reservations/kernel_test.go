package reservations_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/audit"
	"github.com/holdfast/holdfast/internal/pgtest"
	"github.com/holdfast/holdfast/reservations"
)

// seats are a number of seats per show.
type seats struct {
	reservations.HeldAndCommitted[string, reservations.NoWindow]
	capacity int64
}

func (s seats) Capacity(context.Context, pgx.Tx, uuid.UUID, string, reservations.NoWindow) (int64, error) {
	return s.capacity, nil
}

type seatKernel = reservations.Kernel[string, reservations.NoWindow]

// all is the window of a resource without windows.
var all = reservations.NoWindow{}

func newSeats(t *testing.T, capacity int64) *seatKernel {
	t.Helper()
	k, err := reservations.NewKernel(pgtest.New(t), seats{"venue.seat", capacity}, reservations.Config{})
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// 64 concurrent callers request 5 units. Exactly 5 are held, and every other
// caller receives the correct numbers.
func TestHoldByManyAtOnce(t *testing.T) {
	t.Parallel()
	k := newSeats(t, 5)
	for run := range 100 {
		by := reservations.By(uuid.New(), audit.User("alice"))
		var held, rejected atomic.Int64
		var callers sync.WaitGroup
		for range 64 {
			callers.Go(func() {
				_, err := k.Hold(t.Context(), by, "hamlet", all, reservations.HoldOpts{Quantity: 1, TTL: time.Minute})
				insufficient, ok := errors.AsType[*reservations.InsufficientError](err)
				switch {
				case err == nil:
					held.Add(1)
				case ok && insufficient.Requested == 1 && insufficient.Available == 0 && insufficient.Capacity == 5:
					rejected.Add(1)
				default:
					t.Error(err)
				}
			})
		}
		callers.Wait()
		if held.Load() != 5 || rejected.Load() != 59 {
			t.Fatalf("run %d: held %d, rejected %d, want 5 and 59", run, held.Load(), rejected.Load())
		}
	}
}
