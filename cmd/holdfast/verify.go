package main

import (
	"context"
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

// Run prints the checks, and the rows that break an invariant.
func (c *verifyCommand) Run(ctx context.Context, process boot.Process) error {
	limits, err := c.limits(time.Now())
	if err != nil {
		return err
	}
	program, err := newProgram(ctx, process, nil)
	if err != nil {
		return err
	}
	defer program.Close()
	bar := progress.New(process.Stderr, 1, "steps")
	limits.Progress = func(p verify.Progress) {
		bar.SetTotal(p.Steps)
		bar.Describe(p.Step)
		bar.Set(p.Done)
	}
	report, err := program.Verify(ctx, limits)
	bar.Finish()
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
