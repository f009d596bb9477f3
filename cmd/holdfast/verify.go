package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/holdfast/holdfast/cmd/internal/boot"
	"github.com/holdfast/holdfast/cmd/internal/progress"
	"github.com/holdfast/holdfast/verify"
)

type verifyCommand struct {
	JSON  bool   `help:"Print the report as JSON."`
	Since string `placeholder:"WHEN" help:"Check only what has changed since: an age (2h), a time (2026-11-23T10:00:00Z) or after an audit id (120000)."`
}

// Run prints the checks, and the rows that break an invariant, of each cell.
func (c *verifyCommand) Run(ctx context.Context, process boot.Process) (failed error) {
	limits, err := c.limits(time.Now())
	if err != nil {
		return err
	}
	program, err := newProgram(ctx, process, nil)
	if err != nil {
		return err
	}
	defer program.Close()
	reports := make(map[string]verify.Report)
	for _, own := range program.Cells() {
		report, err := c.verify(ctx, process, own, limits)
		if err != nil {
			return err
		}
		reports[own.Cell()] = report
		if !report.OK {
			failed = boot.ErrFailed
		}
	}
	var shown any = reports
	if only, is := reports[""]; is {
		shown = only
	}
	if c.JSON {
		failed = errors.Join(printJSON(process.Stdout, shown), failed)
	}
	return failed
}

// verify checks one cell, and prints what it found unless it is to be printed as
// JSON.
func (c *verifyCommand) verify(ctx context.Context, process boot.Process, program *boot.Program, limits verify.Config) (verify.Report, error) {
	bar := progress.New(process.Stderr, 1, "steps")
	limits.Progress = func(p verify.Progress) {
		bar.SetTotal(p.Steps)
		bar.Describe(p.Step)
		bar.Set(p.Done)
	}
	report, err := program.Verify(ctx, limits)
	bar.Finish()
	if err != nil || c.JSON {
		return report, err
	}
	if program.Cell() != "" {
		fmt.Fprintf(process.Stdout, "Cell %s\n", program.Cell())
	}
	report.Print(process.Stdout)
	return report, nil
}

// limits reads what --since limits the run to.
func (c *verifyCommand) limits(now time.Time) (limits verify.Config, err error) {
	if c.Since == "" {
		return limits, nil
	}
	if age, err := time.ParseDuration(c.Since); err == nil && age > 0 {
		limits.Since = now.Add(-age)
		return limits, nil
	}
	if at, err := time.Parse(time.RFC3339, c.Since); err == nil {
		limits.Since = at
		return limits, nil
	}
	if limits.AfterID, err = strconv.ParseInt(c.Since, 10, 64); err == nil && limits.AfterID > 0 {
		return limits, nil
	}
	return limits, fmt.Errorf("--since %s: want an age such as 2h, a time such as 2026-11-23T10:00:00Z, or an audit id above 0", c.Since)
}
