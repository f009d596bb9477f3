package reservations_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/internal/pgtest"
	"github.com/holdfast/holdfast/reservations"
)

// Hours is a window of a day. Windows may overlap: 10–12 and 11–13.
type Hours struct{ From, To int }

// Courts can be booked for any hours of a day; what is booked stays taken.
type Courts struct{}

// Kind names the resource.
func (Courts) Kind() string { return "club.court" }

// Capacity is one: a court is let to one party at a time.
func (Courts) Capacity(context.Context, pgx.Tx, string, Hours) (int64, error) { return 1, nil }

// Held counts whatever overlaps.
func (c Courts) Held(ctx context.Context, tx pgx.Tx, court string, ask Hours) (int64, error) {
	return reservations.SumOverlapping(ctx, tx, c.Kind(), court, true, func(other Hours) bool {
		return other.From < ask.To && ask.From < other.To
	})
}

// Pattern: a slot is held during checkout. Whoever pays has it, a failed payment gives it back, and who walks away loses it
// by the deadline, swept or not.
func Example_slotDuringCheckout() {
	pgtest.Example(func(ctx context.Context, db *pgxpool.Pool) {
		kernel := must(reservations.NewKernel(db, Courts{}, reservations.Config{}))
		by := reservations.User(uuid.New(), "ann")
		book := func(from, to int) *reservations.Handle {
			handle, err := kernel.Hold(ctx, by, reservations.Ask[string, Hours]{
				Key: "court 1", Window: Hours{from, to}, Quantity: 1, TTL: 15 * time.Minute,
			})
			fmt.Printf("%d–%d: %v\n", from, to, err)
			return handle
		}
		pay := func(ok bool, handle *reservations.Handle) error {
			if ok {
				return kernel.Commit(ctx, by, handle)
			}
			return kernel.Release(ctx, by, handle, reservations.PaymentFailed)
		}
		morning := book(10, 12)
		book(11, 13)
		fmt.Println(pay(false, morning))
		noon := book(11, 13)
		fmt.Println(pay(true, noon))
		book(10, 12)
	})
	// Output:
	// 10–12: <nil>
	// 11–13: reservation: insufficient: 1 of club.court "court 1" requested, 0 of 1 available
	// <nil>
	// 11–13: <nil>
	// <nil>
	// 10–12: reservation: insufficient: 1 of club.court "court 1" requested, 0 of 1 available
}

// Pattern: tickets. What is sold stays taken, so the sum is of held and committed; a short TTL gives abandoned seats to the
// next in line without anybody sweeping.
func Example_tickets() {
	pgtest.Example(func(ctx context.Context, db *pgxpool.Pool) {
		kernel, by := box(db, 3), reservations.User(uuid.New(), "ann")
		sold := must(kernel.Hold(ctx, by, tickets{Key: "hamlet", Quantity: 2, TTL: 5 * time.Minute}))
		fmt.Println(kernel.Commit(ctx, by, sold))
		must(kernel.Hold(ctx, by, tickets{Key: "hamlet", Quantity: 1, TTL: time.Millisecond})) // and abandoned
		for {
			_, err := kernel.Hold(ctx, by, tickets{Key: "hamlet", Quantity: 1, TTL: 5 * time.Minute})
			if err == nil {
				break // a millisecond later
			}
		}
		_, err := kernel.Hold(ctx, by, tickets{Key: "hamlet", Quantity: 1, TTL: 5 * time.Minute})
		fmt.Println(err)
	})
	// Output:
	// <nil>
	// reservation: insufficient: 1 of venue.seat "hamlet" requested, 0 of 3 available
}

// Calls are a client's quota in each minute. Minutes do not overlap, so calls of different minutes never wait for each
// other, and held calls count until their minute is over: then they are due, and the sweep clears them away.
type Calls struct {
	reservations.HeldOnly[string, int64]
	reservations.DisjointWindows
	PerMinute int64
}

// Capacity is what the client may call in a minute.
func (c Calls) Capacity(context.Context, pgx.Tx, string, int64) (int64, error) {
	return c.PerMinute, nil
}

// Pattern: a bucket of API calls a minute.
func Example_rateLimit() {
	pgtest.Example(func(ctx context.Context, db *pgxpool.Pool) {
		kernel := must(reservations.NewKernel(db, Calls{HeldOnly: "api.quota", PerMinute: 2}, reservations.Config{}))
		by := reservations.System(uuid.New())
		call := func(minute int64) string {
			_, err := kernel.Hold(ctx, by, reservations.Ask[string, int64]{Key: "client 9", Window: minute, Quantity: 1, TTL: time.Minute})
			if limited, ok := errors.AsType[*reservations.InsufficientError](err); ok {
				return fmt.Sprintf("429, %d of %d left", limited.Available, limited.Capacity)
			}
			return fmt.Sprint("200 ", err)
		}
		minute := time.Date(2026, 3, 1, 10, 0, 0, 0, time.UTC).Unix() / 60
		fmt.Println(call(minute), call(minute), call(minute), call(minute+1))
	})
	// Output: 200 <nil> 200 <nil> 429, 0 of 2 left 200 <nil>
}
