package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sethvargo/go-envconfig"

	"github.com/holdfast/holdfast/cmd/internal/boot"
	"github.com/holdfast/holdfast/cmd/internal/demo"
)

type runCommand struct {
	Port *int   `help:"Port on 127.0.0.1; 0 for any free port. Default: PORT, else 8080." placeholder:"N"`
	Data string `help:"Folder that keeps the private Postgres's data and the development key." placeholder:"DIR" type:"path"`
}

// Run serves until it is stopped. Once all parts are ready it prints one line
// with the URL, the key, the database, the dashboard and the storefront.
func (c *runCommand) Run(ctx context.Context, process boot.Process) error {
	program, err := newProgram(ctx, process, c.Port)
	if err != nil {
		return err
	}
	defer program.Close()
	local, err := boot.StartLocal(ctx, program, boot.LocalOptions{Dir: c.Data, Storefront: true})
	switch {
	case err != nil && ctx.Err() != nil: // stopped before it was ready
		return nil
	case err != nil:
		return err
	}
	line := fmt.Sprintf("ready url=%s key=%s database=%s", local.URL, local.Key, local.Database)
	if local.Dashboard != "" {
		line += " dashboard=" + local.Dashboard
	}
	fmt.Fprintln(process.Stdout, line+" storefront="+local.Storefront)
	select {
	case <-ctx.Done():
	case <-local.Done():
	}
	return local.Stop()
}

// newProgram returns the program, with the port of the command line if it names
// one.
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

type demoCommand struct {
	Port   *int          `help:"Port on 127.0.0.1. Default: any free port." placeholder:"N"`
	Stock  int           `help:"Units of the hot variant. Default: 1000." placeholder:"N"`
	Buyers int           `help:"Buyers that each want one unit. Default: 10000." placeholder:"N"`
	For    time.Duration `help:"How long the buyers take to arrive. Default: 12s." placeholder:"DURATION"`
	Stay   bool          `help:"After the sale, keep the service and its dashboard until interrupted. The exit code is still that of the sale."`
}

// Run starts the all-in-one, holds a flash sale through its API, and ends with
// exit code 0 only if every promise was kept. The log level is warn unless
// LOG_LEVEL sets another one, so that log lines do not hide the sale.
func (c *demoCommand) Run(ctx context.Context, process boot.Process) (err error) {
	process.Env = envconfig.MultiLookuper(process.Env, envconfig.MapLookuper(map[string]string{"LOG_LEVEL": "warn"}))
	port := c.Port
	if port == nil {
		port = new(int)
	}
	program, err := newProgram(ctx, process, port)
	if err != nil {
		return err
	}
	defer program.Close()
	local, err := boot.StartLocal(ctx, program, boot.LocalOptions{})
	switch {
	case err != nil && ctx.Err() != nil: // stopped before it was ready: the errors only result from the stop
		return context.Cause(ctx)
	case err != nil:
		return err
	}
	defer func() { err = errors.Join(err, local.Stop()) }()
	err = demo.Run(ctx, demo.Config{
		URL: local.URL, Key: local.Key, Database: local.Database, Dashboard: local.Dashboard, Out: process.Stdout, Stock: c.Stock, Buyers: c.Buyers, For: c.For,
	})
	if c.Stay && (err == nil || errors.Is(err, demo.ErrNotAsPromised)) {
		stay(ctx, process, local)
	}
	return err
}

// stay keeps the service until it is interrupted or ends.
func stay(ctx context.Context, process boot.Process, local *boot.Local) {
	fmt.Fprintf(process.Stdout, "The service stays until it is interrupted (Ctrl-C).\n\n  API        %s\n  key        %s\n", local.URL, local.Key)
	if local.Dashboard != "" {
		fmt.Fprintf(process.Stdout, "  dashboard  %s\n", local.Dashboard)
	}
	select {
	case <-ctx.Done():
	case <-local.Done():
	}
}

type verifyCommand struct {
	JSON bool `help:"Print the report as JSON."`
}

// Run prints the checks, and the rows that break an invariant.
func (c *verifyCommand) Run(ctx context.Context, process boot.Process) error {
	program, err := newProgram(ctx, process, nil)
	if err != nil {
		return err
	}
	defer program.Close()
	report, err := program.Verify(ctx)
	if err != nil {
		return err
	}
	if c.JSON {
		err = printJSON(process.Stdout, report)
	} else {
		report.Print(process.Stdout)
	}
	if err == nil && !report.OK {
		err = boot.ErrFailed
	}
	return err
}

type migrateCommand struct{}

// Run migrates the database. It may be repeated, and several processes may run
// it at once.
func (c *migrateCommand) Run(ctx context.Context, process boot.Process) error {
	program, err := newProgram(ctx, process, nil)
	if err != nil {
		return err
	}
	defer program.Close()
	migrated, err := program.Migrate(ctx)
	if err != nil {
		return err
	}
	if migrated {
		fmt.Fprintln(process.Stdout, "The database is migrated.")
	} else {
		fmt.Fprintln(process.Stdout, "The database was up to date.")
	}
	return nil
}
