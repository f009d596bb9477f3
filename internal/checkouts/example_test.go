package checkouts_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/audit"
	"github.com/holdfast/holdfast/internal/checkouts"
	"github.com/holdfast/holdfast/internal/inventory"
	"github.com/holdfast/holdfast/internal/pgtest"
)

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// bankOf is a payment service: it declines what one customer owes.
type bankOf struct{ declines string }

// Validate asks whether the checkout is paid. A real one sends the id of the
// checkout as the idempotency key.
func (b bankOf) Validate(_ context.Context, c checkouts.Checkout) (checkouts.Result, error) {
	if c.PaymentReference == b.declines {
		return checkouts.ResultFailed, nil
	}
	return checkouts.ResultPaid, nil
}

// sit holds any four seats of the block next to each other, as a drain does for
// a request with {"any_of": 4}.
func sit(ctx context.Context, db *pgxpool.Pool, tenant uuid.UUID, cart, block string) {
	check(pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		wanted := inventory.HoldRequest{
			TenantID: tenant, RequestID: uuid.Must(uuid.NewV7()), CartID: cart, VariantID: block, Quantity: 4, Contiguous: true,
		}
		holding, err := inventory.HoldTx(ctx, tx, []inventory.HoldRequest{wanted}, inventory.Terms{TTL: time.Minute, LifetimeMax: time.Hour})
		if err != nil {
			return err
		}
		b := &pgx.Batch{}
		holding.Queue(b)
		return tx.SendBatch(ctx, b).Close()
	}))
}

// A hall of 200 seats sells any four seats next to each other. Recovery asks
// the payment service, commits the seats that are paid, and gives the others
// back.
func Example() {
	pgtest.Example(func(ctx context.Context, db *pgxpool.Pool) {
		tenant := uuid.New()
		var seats []inventory.NewUnit
		for row := range 10 {
			for seat := range 20 { // the rows are apart: the last seat of one is no neighbour of the next row's first
				seats = append(seats, inventory.NewUnit{UnitID: fmt.Sprintf("%c%d", 'A'+row, seat+1), Position: int64(100*row + seat + 1)})
			}
		}
		check(pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
			_, err := inventory.AddUnitsTx(ctx, tx, tenant, "hall", seats, audit.Origin{})
			return err
		}))

		config := checkouts.Config{TTL: 10 * time.Minute, Validator: bankOf{declines: "bob's card"}}
		recovery, err := checkouts.NewRecovery(db, config)
		check(err)
		var begun []uuid.UUID
		for _, customer := range []string{"ann", "bob", "carol"} {
			sit(ctx, db, tenant, customer, "hall")
			c, err := checkouts.Begin(ctx, db, checkouts.Start{
				TenantID: tenant, CartID: customer, PaymentReference: customer + "'s card",
				CallbackURL: "https://bank.example/payments", Origin: audit.Origin{Actor: audit.User(customer)},
			}, config)
			check(err)
			begun = append(begun, c.CheckoutID)
		}
		_, err = recovery.RunOnce(ctx)
		check(err)

		for _, id := range begun {
			c, err := checkouts.Get(ctx, db, tenant, id)
			check(err)
			holds, err := checkouts.Holds(ctx, db, tenant, id)
			check(err)
			fmt.Println(c.CartID, c.Status, c.Reason, strings.Join(holds[0].UnitIDs, " "), holds[0].Status)
		}
		hall, err := inventory.Get(ctx, db, tenant, "hall")
		check(err)
		fmt.Println(hall.Available, "seats are left")
		// Output:
		// ann committed  A1 A2 A3 A4 committed
		// bob compensated payment_failed A5 A6 A7 A8 released
		// carol committed  A9 A10 A11 A12 committed
		// 192 seats are left
	})
}

// A shop that learns about the payment on its own answers the checkout. The
// answer may be repeated: a checkout ends once.
func ExampleAnswer() {
	pgtest.Example(func(ctx context.Context, db *pgxpool.Pool) {
		tenant := uuid.New()
		check(pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
			_, err := inventory.AddUnitsTx(ctx, tx, tenant, "hall", []inventory.NewUnit{{UnitID: "A1"}, {UnitID: "A2"}, {UnitID: "A3"}, {UnitID: "A4"}}, audit.Origin{})
			return err
		}))
		sit(ctx, db, tenant, "ann", "hall")
		start := checkouts.Start{TenantID: tenant, CartID: "ann", PaymentReference: "ann's card"}
		c, err := checkouts.Begin(ctx, db, start, checkouts.Config{})
		check(err)
		_, err = checkouts.Begin(ctx, db, start, checkouts.Config{})
		fmt.Println("a second checkout:", errors.Is(err, checkouts.ErrCheckoutInProgress))

		payment := checkouts.Payment{TenantID: tenant, CheckoutID: c.CheckoutID, Result: checkouts.ResultPaid}
		c, err = checkouts.Answer(ctx, db, payment, checkouts.Config{})
		check(err)
		fmt.Println("paid:", c.Status)
		_, err = checkouts.Answer(ctx, db, payment, checkouts.Config{})
		conflict, _ := errors.AsType[*checkouts.ConflictError](err)
		fmt.Println("paid again:", conflict.Status)
		// Output:
		// a second checkout: true
		// paid: committed
		// paid again: committed
	})
}
