package main

import (
	"context"
	"fmt"

	"github.com/holdfast/holdfast/cmd/internal/boot"
)

type runCommand struct {
	Port *int   `help:"Port on 127.0.0.1; 0 for any that is free. Default: PORT, else 8080." placeholder:"N"`
	Data string `help:"Keep the private Postgres's data and the development key in this folder." placeholder:"DIR" type:"path"`
}

// Run serves until it is told to stop. Once everything answers it prints the one line that says where.
func (c *runCommand) Run(ctx context.Context, process boot.Process) error {
	program, err := newProgram(ctx, process, c.Port)
	if err != nil {
		return err
	}
	defer program.Close()
	local, err := boot.StartLocal(ctx, program, boot.LocalOptions{Dir: c.Data})
	switch {
	case err != nil && ctx.Err() != nil: // told to stop before it was ready
		return nil
	case err != nil:
		return err
	}
	fmt.Fprintf(process.Stdout, "ready url=%s key=%s database=%s\n", local.URL, local.Key, local.Database)
	select {
	case <-ctx.Done():
	case <-local.Done():
	}
	return local.Stop()
}

// newProgram is the program with its port, if the command line names one.
func newProgram(ctx context.Context, process boot.Process, port *int) (*boot.Program, error) {
	if port != nil && (*port < 0 || *port > 65535) {
		return nil, &boot.UsageError{Message: fmt.Sprintf("--port must be between 0 and 65535, not %d", *port)}
	}
	program, err := boot.NewProgram(ctx, "holdfast", process)
	if err != nil {
		return nil, err
	}
	if port != nil {
		program.Config.Port = *port
	}
	return program, nil
}
