package main

import (
	"context"

	"github.com/holdfast/holdfast/cmd/internal/boot"
)

func main() { boot.Main("api", run) }

const help = `Usage: api

Serves the HTTP API on PORT (8080) until SIGINT or SIGTERM. The database must be migrated: oneshot migrate.
` + boot.EnvironmentHelp

func run(ctx context.Context, process boot.Process) error {
	if asked, err := boot.OnlyHelp(process, help); asked || err != nil {
		return err
	}
	program, err := boot.NewProgram(ctx, "holdfast-api", process)
	if err != nil {
		return err
	}
	defer program.Close()
	api, err := boot.NewAPI(ctx, program, boot.APIOptions{})
	switch {
	case err != nil && ctx.Err() != nil: // stopped before it was ready
		return nil
	case err != nil:
		return err
	}
	return api.Run(ctx)
}
