package holdfast_test

import (
	"context"
	"fmt"
	"log"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"golang.org/x/sync/errgroup"

	"github.com/holdfast/holdfast/admission"
	"github.com/holdfast/holdfast/audit"
	"github.com/holdfast/holdfast/internal/pgtest"
	"github.com/holdfast/holdfast/inventory"
	"github.com/holdfast/holdfast/queues"
	"github.com/holdfast/holdfast/queues/hot"
	"github.com/holdfast/holdfast/queues/normal"
	"github.com/holdfast/holdfast/requests"
	"github.com/holdfast/holdfast/sweeper"
	"github.com/holdfast/holdfast/tenants"
)

func check(err error) {
	if err != nil {
		log.Panic(err)
	}
}

// All of Holdfast in one program, on its own pool and its own River client.
// sell works on any database that migrations.Up has migrated; pgtest.Example
// has one.
func Example() {
	pgtest.Example(sell)
	// Output:
	// ann's done ""
	// bob's failed "out_of_stock"
}

func sell(ctx context.Context, pool *pgxpool.Pool) {
	logger := slog.Default()
	inserter, err := queues.NewWakeInserter(pool)
	check(err)
	load := queues.NewLoad(pool, 0)                                                             // knows what waits
	intake, err := admission.NewIntake(pool, inserter, admission.IntakeConfig{Load: load.Read}) // accepts requests, in groups
	check(err)
	hotLane, err := hot.NewLane(pool, logger, queues.LaneConfig{}) // the lanes decide them
	check(err)
	normalLane, err := normal.NewLane(pool, logger, queues.LaneConfig{})
	check(err)
	inserter.Attach(hotLane, normalLane)                      // which run in this process
	sweep, err := sweeper.New(pool, logger, sweeper.Config{}) // expires holds that are due
	check(err)
	watcher := requests.NewWatcher(pool, logger) // waits for outcomes

	config := &river.Config{Logger: logger} // beside the program's own workers and queues
	check(queues.Configure(config, hotLane, normalLane))
	client, err := river.NewClient(riverpgxv5.New(pool), config)
	check(err)
	check(client.Start(ctx))

	running, stop := context.WithCancel(ctx)
	var group errgroup.Group
	for _, run := range []func(context.Context) error{intake.Run, hotLane.Run, normalLane.Run, sweep.Run, watcher.Run} {
		group.Go(func() error { return run(running) })
	}

	shop, err := tenants.Ensure(ctx, pool, "shop")
	check(err)
	_, err = inventory.Set(ctx, pool, shop.TenantID, "shirt", inventory.StockPatch{Stock: new(int64(3))}, audit.Origin{})
	check(err)
	for _, cart := range []string{"ann's", "bob's"} {
		queued, err := intake.Submit(ctx, requests.Submission{TenantID: shop.TenantID, CartID: cart, VariantID: "shirt", Quantity: 2})
		check(err)
		outcome, err := watcher.Wait(ctx, shop.TenantID, queued.RequestID, 10*time.Second)
		check(err)
		fmt.Printf("%s %s %q\n", cart, outcome.Status, outcome.Reason)
	}

	check(client.Stop(ctx)) // the jobs that run end
	stop()
	check(group.Wait())
}
