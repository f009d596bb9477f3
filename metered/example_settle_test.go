package metered_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/metered"
)

// A reservation made in advance is settled when the cost is known.
func ExampleBudgetLedger_Settle() {
	onPool(settleLater)
	// Output:
	// 500 of 1000 left
	// -380
	// 120 count
	// settled before: true
}

func settleLater(ctx context.Context, db *pgxpool.Pool) error {
	commands, err := metered.New(db, metered.Config{})
	if err != nil {
		return err
	}
	budgets := commands.Budgets
	budget, err := budgets.TryReserve(ctx, shop, metered.Charge{Scope: "customer:ann", Amount: 500, Limit: 1000, Window: 24 * time.Hour})
	if err != nil {
		return err
	}
	fmt.Println(budget.Remaining, "of 1000 left")

	difference, err := budgets.Settle(ctx, shop, budget.Reservation, 120)
	if err != nil {
		return err
	}
	fmt.Println(difference)

	sum, err := budgets.WindowedSum(ctx, shop, "customer:ann", 24*time.Hour)
	if err != nil {
		return err
	}
	fmt.Println(sum, "count")

	_, err = budgets.Settle(ctx, shop, budget.Reservation, 120)
	fmt.Println("settled before:", errors.Is(err, metered.ErrSettled))
	return nil
}
