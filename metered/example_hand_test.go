package metered_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"

	"github.com/holdfast/holdfast/metered"
)

// The steps of a command are called one by one, with writes of the caller in
// between. They are one transaction, in which every step can still refuse.
func Example_byHand() {
	onPool(stepByStep)
	// Output:
	// metered: over budget: 101 of all:hourly asked for, 100 of 100 left in 1h0m0s
	// started
	// metered: the token is not valid: used
	// 40 of 100 are spent
}

type printArgs struct {
	Picture json.RawMessage `json:"picture"`
}

func (printArgs) Kind() string { return "print" }

func stepByStep(ctx context.Context, db *pgxpool.Pool) error {
	commands, err := metered.New(db, metered.Config{})
	if err != nil {
		return err
	}
	budgets, tokens := commands.Budgets, commands.Tokens
	minted, err := tokens.Mint(ctx, shop, metered.Grant{
		Purpose: "upload", Subject: "session-1", Payload: json.RawMessage(`{"picture": 7}`), TTL: time.Hour,
	})
	if err != nil {
		return err
	}

	start := func(cost int64) error {
		return pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
			budget, err := budgets.TryReserveTx(ctx, tx, shop, metered.Charge{Scope: "all:hourly", Amount: cost, Limit: 100, Window: time.Hour})
			if err != nil {
				return err
			}
			picture, err := tokens.ConsumeTx(ctx, tx, shop, metered.Redemption{Purpose: "upload", Subject: "session-1", Token: minted[0].Token})
			if err != nil {
				return err // the rollback returns the budget
			}
			// … writes of the caller …
			_, _, err = commands.EnqueueTx(ctx, tx, metered.Job{
				TenantID: shop, Args: printArgs{Picture: picture}, InsertOpts: &river.InsertOpts{Queue: "pictures"},
				IdempotencyKey: "key-1", Reservations: []metered.Reservation{budget.Reservation},
			})
			return err
		})
	}
	for _, cost := range []int64{101, 40, 40} {
		err := start(cost)
		_, refused := errors.AsType[*metered.Error](err)
		switch {
		case err == nil:
			fmt.Println("started")
		case refused:
			fmt.Println(err)
		default:
			return err
		}
	}
	spent, err := budgets.WindowedSum(ctx, shop, "all:hourly", time.Hour)
	fmt.Println(spent, "of 100 are spent")
	return err
}
