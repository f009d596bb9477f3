package metered_test

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/metered"
)

// A group is decided in one call: each member has all it asks for or nothing, and pays for no other.
func ExampleGate_PassTx() {
	onPool(decideGroup)
	// Output:
	// 2 <nil>
	// 2 metered: over budget: 1 of customer:ann asked for, 0 of 1 left in 1m0s
	// 1 <nil>
	// 0 <nil>
	// 0 metered: over budget: 1 of shop asked for, 0 of 3 left in 1m0s
}

func decideGroup(ctx context.Context, db *pgxpool.Pool) error {
	budgets, err := metered.NewBudgetLedger(db, metered.BudgetConfig{})
	if err != nil {
		return err
	}
	gate := metered.NewGate(budgets)
	ask := func(customer string) metered.Pass {
		return metered.Pass{TenantID: shop, Reserve: []metered.Charge{
			{Scope: "shop", Amount: 1, Limit: 3, Window: time.Minute},
			{Scope: "customer:" + customer, Amount: 1, Limit: 1, Window: time.Minute},
		}}
	}
	return pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		verdicts, err := gate.PassTx(ctx, tx, []metered.Pass{ask("ann"), ask("ann"), ask("bob"), ask("cem"), ask("dee")})
		for _, v := range verdicts {
			fmt.Println(v.Budgets[0].Remaining, v.Err)
		}
		return err
	})
}
