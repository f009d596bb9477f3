package verify_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/audit"
	"github.com/holdfast/holdfast/internal/inventory"
	"github.com/holdfast/holdfast/internal/pgtest"
	"github.com/holdfast/holdfast/verify"
)

// A scheduled job checks the invariants with the settings of the service, and
// fails if a row breaks one.
func ExampleRun() {
	pgtest.Example(func(ctx context.Context, pool *pgxpool.Pool) {
		tenant, who := uuid.New(), audit.Origin{Actor: audit.User("clerk")}
		patch := inventory.StockPatch{Stock: new(int64(100))}
		if _, err := inventory.Set(ctx, pool, tenant, "mug", patch, who); err != nil {
			log.Panic(err)
		}
		config := verify.Config{Retention: 30 * 24 * time.Hour, LifetimeMax: 24 * time.Hour}
		report, err := verify.Run(ctx, pool, config)
		if err != nil {
			log.Panic(err)
		}
		fmt.Println(report.OK)

		// A change that no verb made has no audit row.
		if _, err = pool.Exec(ctx, `UPDATE inventory_stocks SET stock = 101`); err != nil {
			log.Panic(err)
		}
		report, err = verify.Run(ctx, pool, config)
		if err != nil {
			log.Panic(err)
		}
		fmt.Println(report.OK)
		for _, check := range report.Checks {
			if check.Broken > 0 {
				fmt.Println(check.Name, check.Broken, check.Meaning)
			}
		}
	})
	// Output:
	// true
	// false
	// stock_accounted 1 A stock is what it was last set or adjusted to, less what was committed since.
}
