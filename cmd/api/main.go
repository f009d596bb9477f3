package main

import (
	"context"

	"github.com/holdfast/holdfast/cmd/internal/boot"
)

func main() { boot.Main("api", run) }

func run(ctx context.Context, process boot.Process) error {
	if err := boot.NoArguments(process); err != nil {
		return err
	}
	program, err := boot.NewProgram(ctx, "holdfast-api", process)
	if err != nil {
		return err
	}
	defer program.Close()
	api, err := boot.NewAPI(ctx, program, "")
	if err != nil {
		return err
	}
	return api.Run(ctx)
}
