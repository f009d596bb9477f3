package main

import (
	"context"
	"fmt"
	"io"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/audit"
	"github.com/holdfast/holdfast/cmd/internal/boot"
)

type subsCommand struct {
	List subsList `cmd:"" default:"withargs" help:"List the subscriptions (the default)."`
	Drop subsDrop `cmd:"" help:"Drop a subscription: pruning no longer waits for it, and its reader fails."`
}

type subsList struct{ listed }

// Run prints a line for each subscription.
func (c *subsList) Run(ctx context.Context, process boot.Process) error {
	read := func(db *pgxpool.Pool) ([]audit.SubscriptionState, error) { return audit.Subscriptions(ctx, db) }
	return list(ctx, process, c.listed, "NAME\tPOSITION\tLAG\tLAG SECONDS\tDELIVERED\tFAILURES\tLAST ERROR", read, func(w io.Writer, s *audit.SubscriptionState) {
		failed := "-"
		if s.LastError != "" {
			failed = fmt.Sprintf("%.80q", s.LastError) // on one line
		}
		fmt.Fprintf(w, "%s\t%d\t%d\t%.1f\t%s\t%d\t%s\n", s.Name, s.Position, s.Lag, s.LagSeconds, dateOrDash(s.DeliveredAt), s.Failures, failed)
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
