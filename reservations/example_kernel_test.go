package reservations_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/audit"
	"github.com/holdfast/holdfast/internal/pgtest"
	"github.com/holdfast/holdfast/reservations"
)

// Shows have a number of seats. Sold seats stay taken, so HeldAndCommitted
// counts them.
type Shows struct {
	reservations.HeldAndCommitted[string, reservations.NoWindow]
	Seats int64
}

// Capacity would query a table of shows in a real program.
func (s Shows) Capacity(context.Context, pgx.Tx, uuid.UUID, string, reservations.NoWindow) (int64, error) {
	return s.Seats, nil
}

// Two seats are held while the buyer pays, and sold after the payment. A hold
// of too many seats is rejected with the number that is left.
func ExampleKernel_Hold() {
	ctx := context.Background()
	db, drop := pgtest.ExamplePool() // or pgxpool.New(ctx, databaseURL), once migrated
	defer drop()
	kernel, err := reservations.NewKernel(db, Shows{"venue.seat", 5}, reservations.Config{})
	if err != nil {
		panic(err)
	}
	by := reservations.By(uuid.New(), audit.User("ann")).WithCorrelation("order 7")

	handle, err := kernel.Hold(ctx, by, "hamlet", reservations.NoWindow{}, reservations.HoldOpts{Quantity: 2, TTL: 5 * time.Minute})
	if err != nil {
		panic(err)
	}
	_, err = kernel.Hold(ctx, by, "hamlet", reservations.NoWindow{}, reservations.HoldOpts{Quantity: 4, TTL: 5 * time.Minute})
	if insufficient, ok := errors.AsType[*reservations.InsufficientError](err); ok {
		fmt.Println("left:", insufficient.Available, "of", insufficient.Capacity)
	}
	sold, err := kernel.Commit(ctx, by, handle)
	fmt.Println(sold.Quantity, sold.Status, err)
	// Output:
	// left: 3 of 5
	// 2 committed <nil>
}

// The hold is committed in the transaction that writes the order, so both take
// effect or neither does. The webhook of the payment provider has the hold's
// id, and the commit returns the number of units sold.
func ExampleKernel_CommitTx() {
	ctx := context.Background()
	db, drop := pgtest.ExamplePool() // or pgxpool.New(ctx, databaseURL), once migrated
	defer drop()
	kernel, err := reservations.NewKernel(db, Shows{"venue.seat", 5}, reservations.Config{})
	if err != nil {
		panic(err)
	}
	by := reservations.By(uuid.New(), audit.User("ann"))
	handle, err := kernel.Hold(ctx, by, "hamlet", reservations.NoWindow{}, reservations.HoldOpts{Quantity: 2, TTL: 5 * time.Minute})
	if err != nil {
		panic(err)
	}
	paid := func(tenantID, reservationID uuid.UUID) error {
		return pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
			sold, err := kernel.CommitTx(ctx, tx, by, kernel.Handle(tenantID, reservationID))
			if err != nil {
				return err
			}
			fmt.Println("seats:", sold.Quantity) // … INSERT INTO orders …
			return nil
		})
	}
	fmt.Println(paid(by.TenantID, handle.ID()))

	sold, err := reservations.Get(ctx, db, by.TenantID, handle.ID())
	fmt.Println(sold.Status, err)
	// Output:
	// seats: 2
	// <nil>
	// committed <nil>
}

// A payment fails, and the units are released. The handle can't be used again.
// Another process with the id receives the hold's status.
func ExampleKernel_Release() {
	ctx := context.Background()
	db, drop := pgtest.ExamplePool() // or pgxpool.New(ctx, databaseURL), once migrated
	defer drop()
	kernel, err := reservations.NewKernel(db, Shows{"venue.seat", 5}, reservations.Config{})
	if err != nil {
		panic(err)
	}
	by := reservations.By(uuid.New(), audit.User("ann"))
	handle, err := kernel.Hold(ctx, by, "hamlet", reservations.NoWindow{}, reservations.HoldOpts{Quantity: 2, TTL: 5 * time.Minute})
	if err != nil {
		panic(err)
	}
	released, err := kernel.Release(ctx, by, handle, "card_declined")
	fmt.Println(released.Quantity, err)
	_, err = kernel.Release(ctx, by, handle, "card_declined")
	fmt.Println(err)

	elsewhere := kernel.Handle(by.TenantID, handle.ID())
	_, err = kernel.Commit(ctx, by, elsewhere)
	if conflict, ok := errors.AsType[*reservations.ConflictError](err); ok {
		fmt.Println("it is", conflict.Actual)
	}
	// Output:
	// 2 <nil>
	// reservations: the handle was used before
	// it is released
}

// Extend moves a deadline, but never past the lifetime cap.
func ExampleKernel_Extend() {
	ctx := context.Background()
	db, drop := pgtest.ExamplePool() // or pgxpool.New(ctx, databaseURL), once migrated
	defer drop()
	kernel, err := reservations.NewKernel(db, Shows{"venue.seat", 5}, reservations.Config{LifetimeMax: 20 * time.Minute})
	if err != nil {
		panic(err)
	}
	by := reservations.By(uuid.New(), audit.User("ann"))
	handle, err := kernel.Hold(ctx, by, "hamlet", reservations.NoWindow{}, reservations.HoldOpts{Quantity: 2, TTL: 10 * time.Minute})
	if err != nil {
		panic(err)
	}
	longer, err := kernel.Extend(ctx, by, handle, 5*time.Minute)
	if err != nil {
		panic(err)
	}
	before, _ := handle.Reservation()
	after, _ := longer.Reservation()
	fmt.Println(after.ExpiresAt.Sub(before.ExpiresAt))
	_, err = kernel.Extend(ctx, by, longer, 10*time.Minute)
	fmt.Println(errors.Is(err, reservations.ErrLifetimeExceeded))
	// Output:
	// 5m0s
	// true
}

// Parking is another kind, with a number of places.
type Parking struct {
	reservations.HeldAndCommitted[string, reservations.NoWindow]
}

// Capacity is two places.
func (Parking) Capacity(context.Context, pgx.Tx, uuid.UUID, string, reservations.NoWindow) (int64, error) {
	return 2, nil
}

// A seat and a parking place are held together, both or neither. For the third
// customer there is no parking place, so no seat is held either. The first
// customer pays for both, the second for neither.
func ExampleHoldAll() {
	ctx := context.Background()
	db, drop := pgtest.ExamplePool() // or pgxpool.New(ctx, databaseURL), once migrated
	defer drop()
	seats, err := reservations.NewKernel(db, Shows{"venue.seat", 5}, reservations.Config{})
	if err != nil {
		panic(err)
	}
	parking, err := reservations.NewKernel(db, Parking{"venue.parking"}, reservations.Config{})
	if err != nil {
		panic(err)
	}
	by := reservations.By(uuid.New(), audit.User("ann"))
	opts := reservations.HoldOpts{Quantity: 1, TTL: 5 * time.Minute}
	var sales [][]*reservations.Handle
	for range 3 {
		handles, err := reservations.HoldAll(ctx, db, by,
			seats.Part("hamlet", reservations.NoWindow{}, opts),
			parking.Part("yard", reservations.NoWindow{}, opts),
		)
		fmt.Println(len(handles), err)
		sales = append(sales, handles)
	}
	sold, err := reservations.CommitAll(ctx, db, by, sales[0])
	fmt.Println(len(sold), "sold:", err)
	released, err := reservations.ReleaseAll(ctx, db, by, sales[1], reservations.PaymentFailed)
	fmt.Println(len(released), "released:", err)
	// Output:
	// 2 <nil>
	// 2 <nil>
	// 0 reservations: insufficient: 1 of venue.parking "yard" requested, 0 of 2 available
	// 2 sold: <nil>
	// 2 released: <nil>
}

// Every transition of a reservation is recorded in its transaction. A
// subscription reads the record without gaps.
func ExampleParseEvent() {
	ctx := context.Background()
	db, drop := pgtest.ExamplePool() // or pgxpool.New(ctx, databaseURL), once migrated
	defer drop()
	mails, err := audit.Subscribe(ctx, db, "mails", audit.SubscriptionConfig{})
	if err != nil {
		panic(err)
	}
	kernel, err := reservations.NewKernel(db, Shows{"venue.seat", 5}, reservations.Config{})
	if err != nil {
		panic(err)
	}
	by := reservations.By(uuid.New(), audit.User("ann"))
	handle, err := kernel.Hold(ctx, by, "hamlet", reservations.NoWindow{}, reservations.HoldOpts{Quantity: 2, TTL: time.Minute})
	if err != nil {
		panic(err)
	}
	if _, err := kernel.Release(ctx, by, handle, reservations.Abandoned); err != nil {
		panic(err)
	}
	deliver := func(_ context.Context, d *audit.Delivery) error {
		for _, record := range d.Records {
			event, ok, err := reservations.ParseEvent(record)
			if err != nil {
				return err
			}
			switch {
			case !ok: // of something else
			case event.Name == "reservation.held":
				fmt.Println("held by", event.Actor.ID, event.Quantity, event.ResourceKey)
			case event.Status == reservations.Released:
				fmt.Println("released:", event.ReleaseReason)
			}
		}
		return nil
	}
	for delivered := 0; delivered < 2; { // a program calls mails.Run
		report, err := mails.RunOnce(ctx, deliver)
		if err != nil {
			panic(err)
		}
		delivered += report.Delivered
	}
	// Output:
	// held by ann 2 "hamlet"
	// released: abandoned
}

func ExampleConflictError() {
	err := fmt.Errorf("check out: %w", &reservations.ConflictError{Expected: reservations.Held, Actual: reservations.Committed})
	if conflict, ok := errors.AsType[*reservations.ConflictError](err); ok {
		fmt.Println("it is", conflict.Actual)
	}
	// Output: it is committed
}
