package metered_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"

	"github.com/holdfast/holdfast/audit"
	"github.com/holdfast/holdfast/metered"
	"github.com/holdfast/holdfast/migrations"
)

// A worker completes the command, settles its cost and writes its own rows in
// one transaction. They are committed once, however often River runs the job.
// The end of the command is an event.
func ExampleCommands_CompleteTx() {
	onPool(workOnce)
	// Output:
	// job.created {"kind": "resize", "queue": "resizing", "state": "queued", "job_id": 1}
	// job.completed {"state": "done", "result": {"bytes": 30}, "attempt": 1}
	// 30 of 100 are spent
}

type resizeArgs struct {
	Width int `json:"width"`
}

func (resizeArgs) Kind() string { return "resize" }

func (resizeArgs) InsertOpts() river.InsertOpts { return river.InsertOpts{Queue: "resizing"} }

// resizeWorker is an ordinary River worker.
type resizeWorker struct {
	river.WorkerDefaults[resizeArgs]
	db       *pgxpool.Pool
	commands *metered.Commands
}

func (w *resizeWorker) Work(ctx context.Context, job *river.Job[resizeArgs]) error {
	command, err := metered.CommandOf(job.Metadata)
	if err != nil {
		return err
	}
	// … the work, which River may run more than once …
	const cost = 30
	err = pgx.BeginTxFunc(ctx, w.db, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
		if err := w.commands.CompleteTx(ctx, tx, job.JobRow, json.RawMessage(`{"bytes": 30}`)); err != nil {
			return err
		}
		for _, reservation := range command.Reservations {
			if _, err := w.commands.Budgets.SettleTx(ctx, tx, command.TenantID, reservation, cost); err != nil {
				return err
			}
		}
		return nil // … after the worker's own writes …
	})
	if errors.Is(err, metered.ErrEnded) {
		return nil // an earlier run has committed
	}
	return err
}

func workOnce(ctx context.Context, db *pgxpool.Pool) error {
	commands, err := metered.New(db, metered.Config{})
	if err != nil {
		return err
	}

	workers := river.NewWorkers()
	river.AddWorker(workers, &resizeWorker{db: db, commands: commands})
	client, err := river.NewClient(riverpgxv5.New(db), &river.Config{
		Schema: migrations.RiverSchema, Workers: workers, Logger: slog.New(slog.DiscardHandler),
		Queues: map[string]river.QueueConfig{"resizing": {MaxWorkers: 1}},
	})
	if err != nil {
		return err
	}
	completed, cancel := client.Subscribe(river.EventKindJobCompleted)
	defer cancel()
	if err := client.Start(ctx); err != nil {
		return err
	}
	started, err := commands.Run(ctx, metered.Command{
		Reserve: []metered.Charge{{Scope: "shop", Amount: 50, Limit: 100, Window: time.Hour}},
		Start:   metered.Job{TenantID: shop, Args: resizeArgs{Width: 1024}, IdempotencyKey: "picture-7"},
	})
	if err != nil {
		return err
	}
	<-completed
	if err := client.Stop(ctx); err != nil {
		return err
	}

	events, err := audit.History(ctx, db, shop, started.CommandID)
	if err != nil {
		return err
	}
	for _, e := range events {
		fmt.Println(e.Action, string(e.After))
	}
	spent, err := commands.Budgets.WindowedSum(ctx, shop, "shop", time.Hour)
	fmt.Println(spent, "of 100 are spent")
	return err
}
