package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/audit"
	"github.com/holdfast/holdfast/cmd/internal/boot"
)

type subsCommand struct {
	List subsList `cmd:"" default:"withargs" help:"List the subscriptions (the default)."`
	Drop subsDrop `cmd:"" help:"Drop a subscription: pruning no longer waits for it, and its reader fails."`
}

type subsList struct {
	JSON bool `help:"Print an array of objects."`
}

// Run prints a line for each subscription.
func (c *subsList) Run(ctx context.Context, process boot.Process) error {
	return withDatabase(ctx, process, func(db *pgxpool.Pool) error {
		states, err := audit.Subscriptions(ctx, db)
		if err != nil {
			return err
		}
		if c.JSON {
			return printJSON(process.Stdout, states)
		}
		return table(process.Stdout, "NAME\tPOSITION\tLAG\tLAG SECONDS\tDELIVERED\tFAILURES\tLAST ERROR", len(states), func(w io.Writer, i int) {
			s, delivered, failed := states[i], "-", "-"
			if s.DeliveredAt != nil {
				delivered = s.DeliveredAt.UTC().Format(time.DateTime)
			}
			if s.LastError != "" {
				failed = fmt.Sprintf("%.80q", s.LastError) // on one line
			}
			fmt.Fprintf(w, "%s\t%d\t%d\t%.1f\t%s\t%d\t%s\n", s.Name, s.Position, s.Lag, s.LagSeconds, delivered, s.Failures, failed)
		})
	})
}

type subsDrop struct {
	Name string `arg:"" help:"The subscription's name."`
}

// Run drops the subscription.
func (c *subsDrop) Run(ctx context.Context, process boot.Process) error {
	return withDatabase(ctx, process, func(db *pgxpool.Pool) error {
		if err := audit.Unsubscribe(ctx, db, c.Name); err != nil {
			return err
		}
		fmt.Fprintf(process.Stdout, "There is no subscription %q any more.\n", c.Name)
		return nil
	})
}

// withDatabase runs fn with the database that DATABASE_URL names.
func withDatabase(ctx context.Context, process boot.Process, fn func(*pgxpool.Pool) error) error {
	return withProgram(ctx, process, func(_ *boot.Program, db *pgxpool.Pool) error { return fn(db) })
}

// withProgram is withDatabase for a command that also needs the environment.
func withProgram(ctx context.Context, process boot.Process, fn func(*boot.Program, *pgxpool.Pool) error) error {
	program, err := boot.NewProgram(ctx, "holdfast", process)
	if err != nil {
		return err
	}
	defer program.Close()
	db, err := program.OpenTool(ctx)
	if err != nil {
		return err
	}
	defer db.Close()
	return fn(program, db)
}
