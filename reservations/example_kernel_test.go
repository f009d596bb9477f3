package reservations_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/audit"
	"github.com/holdfast/holdfast/internal/pgtest"
	"github.com/holdfast/holdfast/reservations"
)

// Shows have a number of seats. Seats that are sold stay taken, so HeldAndCommitted counts them.
type Shows struct {
	reservations.HeldAndCommitted[string, reservations.NoWindow]
	Seats int64
}

// Capacity would be a query of a table of shows.
func (s Shows) Capacity(context.Context, pgx.Tx, string, reservations.NoWindow) (int64, error) {
	return s.Seats, nil
}

type tickets = reservations.Ask[string, reservations.NoWindow]

// must ends an example whose database fails it.
func must[T any](v T, err error) T {
	if err != nil {
		log.Panic(err)
	}
	return v
}

func box(db *pgxpool.Pool, seats int64) *reservations.Kernel[string, reservations.NoWindow] {
	return must(reservations.NewKernel(db, Shows{"venue.seat", seats}, reservations.Config{}))
}

// Two seats are held while the buyer pays, and sold when the money is there. What is left is told to whoever asks for
// too much.
func ExampleKernel_Hold() {
	pgtest.Example(func(ctx context.Context, db *pgxpool.Pool) {
		kernel, by := box(db, 5), reservations.User(uuid.New(), "ann").WithCorrelation("order 7")
		handle := must(kernel.Hold(ctx, by, tickets{Key: "hamlet", Quantity: 2, TTL: 5 * time.Minute}))

		_, err := kernel.Hold(ctx, by, tickets{Key: "hamlet", Quantity: 4, TTL: 5 * time.Minute})
		if insufficient, ok := errors.AsType[*reservations.InsufficientError](err); ok {
			fmt.Println("left:", insufficient.Available, "of", insufficient.Capacity)
		}
		fmt.Println(kernel.Commit(ctx, by, handle))
	})
	// Output:
	// left: 3 of 5
	// <nil>
}

// The hold is committed in the transaction that writes the order: both or neither.
func ExampleKernel_CommitTx() {
	pgtest.Example(func(ctx context.Context, db *pgxpool.Pool) {
		kernel, by := box(db, 5), reservations.User(uuid.New(), "ann")
		handle := must(kernel.Hold(ctx, by, tickets{Key: "hamlet", Quantity: 1, TTL: 5 * time.Minute}))
		err := pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
			// … INSERT INTO orders …
			return kernel.CommitTx(ctx, tx, by, handle)
		})
		fmt.Println(err, must(reservations.Get(ctx, db, by.TenantID, handle.ID())).Status)
	})
	// Output: <nil> committed
}

// A payment fails, and the units go back. The handle is spent; another process that has the id is told what it is now.
func ExampleKernel_Release() {
	pgtest.Example(func(ctx context.Context, db *pgxpool.Pool) {
		kernel, by := box(db, 5), reservations.User(uuid.New(), "ann")
		handle := must(kernel.Hold(ctx, by, tickets{Key: "hamlet", Quantity: 2, TTL: 5 * time.Minute}))
		fmt.Println(kernel.Release(ctx, by, handle, reservations.PaymentFailed))
		fmt.Println(kernel.Release(ctx, by, handle, reservations.PaymentFailed))

		elsewhere := must(kernel.Handle(ctx, by.TenantID, handle.ID()))
		if conflict, ok := errors.AsType[*reservations.ConflictError](kernel.Commit(ctx, by, elsewhere)); ok {
			fmt.Println("it is", conflict.Actual)
		}
	})
	// Output:
	// <nil>
	// reservation: the handle was used before
	// it is released
}

// A deadline is moved, but never past the lifetime cap.
func ExampleKernel_Extend() {
	pgtest.Example(func(ctx context.Context, db *pgxpool.Pool) {
		kernel := must(reservations.NewKernel(db, Shows{"venue.seat", 5}, reservations.Config{LifetimeMax: 20 * time.Minute}))
		by := reservations.User(uuid.New(), "ann")
		handle := must(kernel.Hold(ctx, by, tickets{Key: "hamlet", Quantity: 2, TTL: 10 * time.Minute}))
		longer := must(kernel.Extend(ctx, by, handle, 5*time.Minute))
		fmt.Println(longer.ExpiresAt().Sub(handle.ExpiresAt()))
		_, err := kernel.Extend(ctx, by, longer, 10*time.Minute)
		fmt.Println(errors.Is(err, reservations.ErrLifetimeExceeded))
	})
	// Output:
	// 5m0s
	// true
}

// Parking is a kind of its own, with as many places as there are.
type Parking struct {
	reservations.HeldOnly[string, reservations.NoWindow]
}

// Capacity is two places.
func (Parking) Capacity(context.Context, pgx.Tx, string, reservations.NoWindow) (int64, error) {
	return 2, nil
}

// A seat and a place to park, both or neither: the third visitor finds no place, and keeps no seat.
func ExampleHoldAll() {
	pgtest.Example(func(ctx context.Context, db *pgxpool.Pool) {
		seats, by := box(db, 5), reservations.User(uuid.New(), "ann")
		parking := must(reservations.NewKernel(db, Parking{"venue.parking"}, reservations.Config{}))
		for range 3 {
			handles, err := reservations.HoldAll(ctx, db, by,
				seats.Part(tickets{Key: "hamlet", Quantity: 1, TTL: time.Minute}),
				parking.Part(tickets{Key: "yard", Quantity: 1, TTL: time.Minute}),
			)
			fmt.Println(len(handles), err)
		}
	})
	// Output:
	// 2 <nil>
	// 2 <nil>
	// 0 reservation: insufficient: 1 of venue.parking "yard" requested, 0 of 2 available
}

// Whatever happens to a reservation is recorded with it. A subscription reads the record on, and misses nothing.
func ExampleKernel_audit() {
	pgtest.Example(func(ctx context.Context, db *pgxpool.Pool) {
		mails := must(audit.Subscribe(ctx, db, "mails", audit.SubscriptionConfig{}))
		kernel, by := box(db, 5), reservations.User(uuid.New(), "ann")
		handle := must(kernel.Hold(ctx, by, tickets{Key: "hamlet", Quantity: 2, TTL: time.Minute}))
		if err := kernel.Release(ctx, by, handle, reservations.Abandoned); err != nil {
			log.Panic(err)
		}
		for delivered := 0; delivered < 2; {
			report := must(mails.RunOnce(ctx, func(_ context.Context, d *audit.Delivery) error {
				for _, r := range d.Records {
					fmt.Println(r.Action, "by", r.Actor.ID)
				}
				return nil
			}))
			delivered += report.Delivered
		}
		state := must(audit.ReconstructState(must(audit.History(ctx, db, by.TenantID, handle.ID()))))
		fmt.Println(string(state["status"]))
	})
	// Output:
	// reservation.held by ann
	// reservation.released by ann
	// "released"
}
