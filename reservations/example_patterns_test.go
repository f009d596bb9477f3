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

// Hours is a window of a day. Windows may overlap: 10–12 and 11–13.
type Hours struct{ From, To int64 }

// Interval is the window's hours.
func (h Hours) Interval() (start, end int64) { return h.From, h.To }

// Courts can be booked for any hours of a day, and booked hours stay taken. The
// key is a club.
type Courts struct {
	reservations.HeldAndCommitted[string, Hours]
}

// Capacity is two courts in each club.
func (Courts) Capacity(context.Context, pgx.Tx, uuid.UUID, string, Hours) (int64, error) {
	return 2, nil
}

// Pattern: a slot is held during checkout. A payment commits it, and a failed
// payment releases it. An abandoned hold is free at its deadline, swept or not.
// Consecutive bookings leave the other court free.
func Example_slotDuringCheckout() {
	ctx := context.Background()
	db, drop := pgtest.ExamplePool() // or pgxpool.New(ctx, databaseURL), once migrated
	defer drop()
	kernel, err := reservations.NewKernel(db, Courts{"club.court"}, reservations.Config{})
	if err != nil {
		panic(err)
	}
	by := reservations.By(uuid.New(), audit.User("ann"))
	book := func(from, to int64) *reservations.Handle {
		handle, err := kernel.Hold(ctx, by, "north", Hours{from, to}, reservations.HoldOpts{Quantity: 1, TTL: 15 * time.Minute})
		fmt.Printf("%d–%d: %v\n", from, to, err)
		return handle
	}
	nine, ten := book(9, 10), book(10, 11)
	for _, handle := range []*reservations.Handle{nine, ten} {
		paid, err := kernel.Commit(ctx, by, handle)
		fmt.Println(paid.ResourceWindow, paid.Status, err)
	}
	long := book(9, 11) // one court is free during all of it
	book(10, 12)
	_, err = kernel.Release(ctx, by, long, reservations.PaymentFailed)
	fmt.Println(err)
	book(10, 12)
	// Output:
	// 9–10: <nil>
	// 10–11: <nil>
	// {"From":9,"To":10} committed <nil>
	// {"From":10,"To":11} committed <nil>
	// 9–11: <nil>
	// 10–12: reservations: insufficient: 1 of club.court "north" requested, 0 of 2 available
	// <nil>
	// 10–12: <nil>
}

// Goods have a stock. A sold unit is taken out of it.
type Goods struct {
	reservations.HeldOnly[string, reservations.NoWindow]
}

// Capacity is the stock.
func (Goods) Capacity(ctx context.Context, tx pgx.Tx, tenantID uuid.UUID, name string, _ reservations.NoWindow) (stock int64, err error) {
	err = tx.QueryRow(ctx, `SELECT stock FROM my_goods WHERE tenant_id = $1 AND name = $2`, tenantID, name).Scan(&stock)
	return stock, err
}

// Pattern: goods with a stock. The transaction that commits the hold takes its
// units out of the stock. It may run in another process, which has the hold's
// id: the commit returns the number of units.
func Example_goods() {
	ctx := context.Background()
	db, drop := pgtest.ExamplePool() // or pgxpool.New(ctx, databaseURL), once migrated
	defer drop()
	kernel, err := reservations.NewKernel(db, Goods{"shop.goods"}, reservations.Config{})
	if err != nil {
		panic(err)
	}
	by := reservations.By(uuid.New(), audit.User("ann"))
	if _, err := db.Exec(ctx, `CREATE TABLE my_goods (tenant_id uuid, name text, stock bigint, PRIMARY KEY (tenant_id, name))`); err != nil {
		panic(err)
	}
	if _, err := db.Exec(ctx, `INSERT INTO my_goods VALUES ($1, 'skull', 3)`, by.TenantID); err != nil {
		panic(err)
	}
	opts := reservations.HoldOpts{Quantity: 2, TTL: 5 * time.Minute}
	handle, err := kernel.Hold(ctx, by, "skull", reservations.NoWindow{}, opts)
	if err != nil {
		panic(err)
	}
	paid := func(tenantID, reservationID uuid.UUID) error {
		return pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
			sold, err := kernel.CommitTx(ctx, tx, by, kernel.Handle(tenantID, reservationID))
			if err != nil {
				return err
			}
			const takeSQL = `UPDATE my_goods SET stock = stock - $2 WHERE tenant_id = $1 AND name = 'skull'`
			_, err = tx.Exec(ctx, takeSQL, tenantID, sold.Quantity)
			return err
		})
	}
	fmt.Println(paid(by.TenantID, handle.ID()))
	_, err = kernel.Hold(ctx, by, "skull", reservations.NoWindow{}, opts)
	fmt.Println(err)
	// Output:
	// <nil>
	// reservations: insufficient: 2 of shop.goods "skull" requested, 1 of 1 available
}

// Pattern: tickets. Sold tickets stay taken, so held and committed units count.
// With a short TTL, abandoned seats are soon free for the next buyer, without a
// sweep.
func Example_tickets() {
	ctx := context.Background()
	db, drop := pgtest.ExamplePool() // or pgxpool.New(ctx, databaseURL), once migrated
	defer drop()
	kernel, err := reservations.NewKernel(db, Shows{"venue.seat", 3}, reservations.Config{})
	if err != nil {
		panic(err)
	}
	by := reservations.By(uuid.New(), audit.User("ann"))
	hold := func(seats int64, ttl time.Duration) (*reservations.Handle, error) {
		return kernel.Hold(ctx, by, "hamlet", reservations.NoWindow{}, reservations.HoldOpts{Quantity: seats, TTL: ttl})
	}
	sold, err := hold(2, 5*time.Minute)
	if err != nil {
		panic(err)
	}
	_, err = kernel.Commit(ctx, by, sold)
	fmt.Println(err)
	if _, err := hold(1, time.Millisecond); err != nil { // an abandoned hold
		panic(err)
	}
	for {
		if _, err := hold(1, 5*time.Minute); err == nil {
			break // a millisecond later
		}
	}
	_, err = hold(1, 5*time.Minute)
	fmt.Println(err)
	// Output:
	// <nil>
	// reservations: insufficient: 1 of venue.seat "hamlet" requested, 0 of 3 available
}

// Calls are a client's quota per minute. Minutes do not overlap, so calls of
// different minutes never wait for each other. Held calls count until the end
// of their minute. Then they are due, and the sweep expires them.
type Calls struct {
	reservations.HeldOnly[string, int64]
	reservations.DisjointWindows
	PerMinute int64
}

// Capacity is the number of calls that the client may make per minute.
func (c Calls) Capacity(context.Context, pgx.Tx, uuid.UUID, string, int64) (int64, error) {
	return c.PerMinute, nil
}

// Pattern: a bucket of API calls per minute.
func Example_rateLimit() {
	ctx := context.Background()
	db, drop := pgtest.ExamplePool() // or pgxpool.New(ctx, databaseURL), once migrated
	defer drop()
	kernel, err := reservations.NewKernel(db, Calls{HeldOnly: "api.quota", PerMinute: 2}, reservations.Config{})
	if err != nil {
		panic(err)
	}
	by := reservations.By(uuid.New(), audit.System())
	call := func(minute int64) string {
		_, err := kernel.Hold(ctx, by, "client 9", minute, reservations.HoldOpts{Quantity: 1, TTL: time.Minute})
		if limited, ok := errors.AsType[*reservations.InsufficientError](err); ok {
			return fmt.Sprintf("429, %d of %d left", limited.Available, limited.Capacity)
		}
		return fmt.Sprint("200 ", err)
	}
	minute := time.Date(2026, 3, 1, 10, 0, 0, 0, time.UTC).Unix() / 60
	fmt.Println(call(minute), call(minute), call(minute), call(minute+1))
	// Output: 200 <nil> 200 <nil> 429, 0 of 2 left 200 <nil>
}
