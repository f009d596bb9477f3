package main

import (
	"context"

	"github.com/holdfast/holdfast/cmd/internal/boot"
)

func main() { boot.Main("worker", run) }

const help = `Usage: worker

Decides requests in the lanes that WORKER_LANES names (all), and does its share of maintenance,
until SIGINT or SIGTERM. Serves /livez, /readyz, /health and /metrics on PORT (8080). With INVENTORY_WORKER_ONESHOT=true it
drains a bounded batch and exits. The database must be migrated: oneshot migrate.
` + boot.EnvironmentHelp

func run(ctx context.Context, process boot.Process) error {
	if asked, err := boot.OnlyHelp(process, help); asked || err != nil {
		return err
	}
	program, err := boot.NewProgram(ctx, "holdfast-worker", process)
	if err != nil {
		return err
	}
	defer program.Close()
	if program.Config.Lanes.OneShot {
		report, err := boot.PassNamed("drain").Run(ctx, program)
		return boot.Report(process.Stdout, "drain", report, err)
	}
	worker, err := boot.NewWorker(ctx, program, boot.WorkerOptions{Health: true})
	switch {
	case err != nil && ctx.Err() != nil: // stopped before it was ready
		return nil
	case err != nil:
		return err
	}
	return worker.Run(ctx)
}
