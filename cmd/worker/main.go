package main

import (
	"context"

	"github.com/holdfast/holdfast/cmd/internal/boot"
)

func main() { boot.Main("worker", run) }

func run(ctx context.Context, process boot.Process) error {
	if err := boot.NoArguments(process); err != nil {
		return err
	}
	program, err := boot.NewProgram(ctx, "holdfast-worker", process)
	if err != nil {
		return err
	}
	defer program.Close()
	if program.Config.Lanes.OneShot {
		report, err := program.Drain(ctx)
		return boot.Report(process.Stdout, report, err)
	}
	worker, err := boot.NewWorker(ctx, program, boot.WorkerOptions{Health: true})
	if err != nil {
		return err
	}
	return worker.Run(ctx)
}
