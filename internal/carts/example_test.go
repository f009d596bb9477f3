package carts_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"sync"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/audit"
	"github.com/holdfast/holdfast/internal/admission"
	"github.com/holdfast/holdfast/internal/carts"
	"github.com/holdfast/holdfast/internal/inventory"
	"github.com/holdfast/holdfast/internal/pgtest"
	"github.com/holdfast/holdfast/internal/queues"
	"github.com/holdfast/holdfast/internal/requestrows"
	"github.com/holdfast/holdfast/queues/normal"
	"github.com/holdfast/holdfast/reservations"
)

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// fill makes a hold of two shoes for each cart, as admission and a lane's drain
// do.
func fill(ctx context.Context, db *pgxpool.Pool, tenant uuid.UUID, buyers []string) {
	_, err := inventory.Set(ctx, db, tenant, "shoe", inventory.StockPatch{Stock: new(int64(10))}, audit.Origin{})
	check(err)
	inserter, err := queues.NewWakeInserter(db)
	check(err)
	check(pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		for _, cart := range buyers {
			s := requestrows.Submission{TenantID: tenant, CartID: cart, VariantID: "shoe", Quantity: 2}
			if _, err := admission.SubmitTx(ctx, tx, inserter, s); err != nil {
				return err
			}
		}
		return nil
	}))
	lane, err := normal.NewLane(db, slog.New(slog.DiscardHandler), queues.LaneConfig{})
	check(err)
	_, err = lane.Tick(ctx)
	check(err)
}

// checkOut checks a cart out in a group with other calls, or in a separate
// transaction if it can't be grouped.
func checkOut(ctx context.Context, db *pgxpool.Pool, groups *carts.Groups, tenant uuid.UUID, cart string) ([]reservations.Reservation, error) {
	by := audit.Origin{Actor: audit.User("till")}
	r, err := groups.Do(ctx, carts.Call{Call: inventory.Call{Action: inventory.CheckoutCart, TenantID: tenant, CartID: cart, Origin: by}})
	if errors.Is(err, carts.ErrNotGrouped) {
		return carts.Checkout(ctx, db, tenant, cart, by)
	}
	return r.Reservations, err
}

// Three tills check out carts at the same time, in one transaction or a few. An
// empty cart is refused, and does not affect the others.
func ExampleGroups_Do() {
	pgtest.Example(func(ctx context.Context, db *pgxpool.Pool) {
		tenant := uuid.New()
		fill(ctx, db, tenant, []string{"ann's", "bob's"})

		groups, err := carts.New(db, carts.Config{})
		check(err)
		running, stop := context.WithCancel(ctx)
		ended := make(chan error)
		go func() { ended <- groups.Run(running) }()

		buyers := []string{"ann's", "bob's", "carol's"}
		receipts := make([]string, len(buyers))
		var tills sync.WaitGroup
		for i, cart := range buyers {
			tills.Go(func() {
				committed, err := checkOut(ctx, db, groups, tenant, cart)
				if errors.Is(err, inventory.ErrCartEmpty) {
					receipts[i] = "nothing"
					return
				}
				check(err)
				receipts[i] = fmt.Sprint(committed[0].Quantity, " × ", committed[0].ResourceKey, ", ", committed[0].Status)
			})
		}
		tills.Wait()
		for i, cart := range buyers {
			fmt.Printf("%s: %s\n", cart, receipts[i])
		}
		left, err := inventory.Get(ctx, db, tenant, "shoe")
		check(err)
		fmt.Printf("stock %d, reserved %d\n", left.Stock, left.Reserved)

		stop() // commits the queued calls
		check(<-ended)
	})
	// Output:
	// ann's: 2 × shoe, committed
	// bob's: 2 × shoe, committed
	// carol's: nothing
	// stock 6, reserved 0
}
