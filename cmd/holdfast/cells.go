package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/holdfast/holdfast/cmd/internal/boot"
	"github.com/holdfast/holdfast/internal/cells"
)

type cellsCommand struct {
	List   cellsList   `cmd:"" default:"withargs" help:"List the cells and how many tenants each has (the default)."`
	Add    cellsAdd    `cmd:"" help:"Make a database that CELLS names a cell: bring it to this version's schema, and check that it is fit and no other cell."`
	Move   cellsMove   `cmd:"" help:"Move a tenant to another cell while it works. If it was interrupted, the same command finishes it."`
	GiveUp cellsGiveUp `cmd:"" help:"End a move that is not finished, such as when the new cell is lost: the tenant goes on where it is."`
	Verify cellsVerify `cmd:"" help:"Check what holds over all cells: each tenant is active in one at most, each key is in one, and no fence is left; exit 1 if not."`
}

type cellsList struct{ listed }

// Run prints a line for each cell.
func (c *cellsList) Run(ctx context.Context, process boot.Process) error {
	return withCells(ctx, process, func(_ *boot.Program, all []cells.Cell) error {
		rows, err := cells.List(ctx, all)
		switch {
		case err != nil:
			return err
		case c.JSON:
			return printJSON(process.Stdout, rows)
		default:
			return table(process.Stdout, "CELL\tACTIVE\tARRIVING\tMOVING\tGONE\tSIZE", rows, func(w io.Writer, s *cells.Summary) {
				fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%d\t%d MB\n", s.Cell, s.Active, s.Arriving, s.Moving, s.Gone, s.Bytes>>20)
			})
		}
	})
}

type cellsAdd struct {
	Name string `arg:"" help:"The name of the cell in CELLS."`
}

// Run makes the database a cell. It may be repeated.
func (c *cellsAdd) Run(ctx context.Context, process boot.Process) error {
	program, err := boot.NewProgram(ctx, "holdfast", process)
	if err != nil {
		return err
	}
	defer program.Close()
	if err := program.AddCell(ctx, c.Name); err != nil {
		return err
	}
	fmt.Fprintf(process.Stdout, "The cell %s is ready. Restart the programs with this CELLS; then make tenants in it (--cell %s), or move some there.\n", c.Name, c.Name)
	return nil
}

type cellsMove struct {
	Tenant string `arg:"" help:"The name of the tenant."`
	To     string `required:"" help:"The cell to move it to." placeholder:"CELL"`
	DryRun bool   `help:"Only say what would be moved."`
	JSON   bool   `help:"Print the report as JSON."`

	PauseMax time.Duration `default:"10s" help:"How long its requests may be refused while what is under way ends. After that the tenant stays where it is."`
	Linger   time.Duration `default:"45s" help:"How long the old cell keeps the rows of the tenant, for calls that were under way, before it deletes them."`
}

// Run moves the tenant.
func (c *cellsMove) Run(ctx context.Context, process boot.Process) error {
	return withCells(ctx, process, func(_ *boot.Program, all []cells.Cell) error {
		shown := ""
		report, err := cells.Move(ctx, all, c.Tenant, c.To, cells.MoveConfig{DryRun: c.DryRun, PauseMax: c.PauseMax, Linger: c.Linger, Progress: func(step string, done int64) {
			if line := fmt.Sprintf("%s: %d", step, done); line != shown {
				shown = line
				fmt.Fprintln(process.Stderr, line)
			}
		}})
		switch {
		case err != nil:
			return err
		case c.JSON:
			return printJSON(process.Stdout, report)
		case report.From == report.To:
			fmt.Fprintf(process.Stdout, "Tenant %s (%s) is in %s already.\n", report.Tenant, report.TenantID, report.To)
		case c.DryRun:
			fmt.Fprintf(process.Stdout, "Tenant %s (%s) would move from %s to %s, with %d rows. Requests would be refused while what changes last is copied.\n",
				report.Tenant, report.TenantID, report.From, report.To, report.Rows)
		default:
			fmt.Fprintf(process.Stdout, "Tenant %s (%s) moved from %s to %s: %d rows, requests refused for %.2f s.\n",
				report.Tenant, report.TenantID, report.From, report.To, report.Rows, report.PauseSeconds)
		}
		return nil
	})
}

type cellsGiveUp struct {
	Tenant string `arg:"" help:"The name of the tenant."`
}

// Run ends the move.
func (c *cellsGiveUp) Run(ctx context.Context, process boot.Process) error {
	return withCells(ctx, process, func(_ *boot.Program, all []cells.Cell) error {
		report, err := cells.GiveUp(ctx, all, c.Tenant)
		switch {
		case err != nil:
			return err
		case report.From == report.To:
			fmt.Fprintf(process.Stdout, "Tenant %s (%s) is in %s, and not on its way to another cell.\n", report.Tenant, report.TenantID, report.From)
		default:
			fmt.Fprintf(process.Stdout, "Tenant %s (%s) stays in %s. What was copied to %s is deleted, unless CELLS does not name it.\n",
				report.Tenant, report.TenantID, report.From, report.To)
		}
		return nil
	})
}

type cellsVerify struct{ listed }

// Run prints what does not hold.
func (c *cellsVerify) Run(ctx context.Context, process boot.Process) error {
	return withCells(ctx, process, func(_ *boot.Program, all []cells.Cell) error {
		faults, err := cells.Verify(ctx, all)
		switch {
		case err != nil:
			return err
		case c.JSON:
			err = printJSON(process.Stdout, faults)
		case len(faults) == 0:
			fmt.Fprintf(process.Stdout, "%d cells: all holds. `holdfast verify` checks each of them.\n", len(all))
		default:
			err = table(process.Stdout, "CELL\tCHECK\tFOUND", faults, func(w io.Writer, f *cells.Fault) {
				fmt.Fprintf(w, "%s\t%s\t%s\n", f.Cell, f.Check, f.Found)
			})
		}
		if err == nil && len(faults) > 0 {
			err = boot.ErrFailed
		}
		return err
	})
}

// withCells runs fn with all cells.
func withCells(ctx context.Context, process boot.Process, fn func(*boot.Program, []cells.Cell) error) error {
	program, err := boot.NewProgram(ctx, "holdfast", process)
	if err != nil {
		return err
	}
	defer program.Close()
	pools, err := program.OpenCells(ctx)
	if err != nil {
		return err
	}
	defer func() {
		for _, db := range pools {
			db.Close()
		}
	}()
	all := make([]cells.Cell, 0, len(pools))
	for i, own := range program.Cells() {
		all = append(all, cells.Cell{Name: own.Cell(), Pool: pools[i]})
	}
	return fn(program, all)
}
