package main

import (
	"context"
	"fmt"

	"github.com/holdfast/holdfast/cmd/internal/boot"
)

type verifyCommand struct {
	JSON bool `help:"Print the report as JSON."`
}

// Run prints what was checked, and the rows that break an invariant.
func (c *verifyCommand) Run(ctx context.Context, process boot.Process) error {
	program, err := boot.NewProgram(ctx, "holdfast", process)
	if err != nil {
		return err
	}
	defer program.Close()
	report, err := program.Verify(ctx)
	if err != nil {
		return err
	}
	if c.JSON {
		if err := printJSON(process.Stdout, report); err != nil {
			return err
		}
	} else {
		report.Print(process.Stdout)
	}
	if !report.OK {
		return boot.ErrFailed
	}
	return nil
}

type migrateCommand struct{}

// Run migrates. It may be run again, and by several at once.
func (c *migrateCommand) Run(ctx context.Context, process boot.Process) error {
	program, err := boot.NewProgram(ctx, "holdfast", process)
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
