package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/holdfast/holdfast/cmd/internal/boot"
)

func main() { boot.Main("oneshot", run) }

// passes are the commands. Each returns its report, also beside an error as far as it got.
var passes = map[string]func(context.Context, *boot.Program) (any, error){
	"sweep":   func(ctx context.Context, p *boot.Program) (any, error) { return p.Sweep(ctx) },
	"drain":   func(ctx context.Context, p *boot.Program) (any, error) { return p.Drain(ctx) },
	"recover": func(ctx context.Context, p *boot.Program) (any, error) { return p.Recover(ctx) },
	"purge":   func(ctx context.Context, p *boot.Program) (any, error) { return p.Purge(ctx) },
	"verify":  firstTask(verify),
	"migrate": firstTask(migrate),
}

const help = `Usage: oneshot [sweep|drain|recover|purge|verify|migrate]

Runs one bounded pass, prints a report as one line of JSON on stdout, and exits.

  sweep    expire due holds (what it does without an argument)
  drain    decide what is queued
  recover  take over requests whose isolated retry was not finished
  purge    delete what is finished and older than its retention
  verify   check the invariants; exit code 1 if one is broken
  migrate  bring the schema up to date
` + boot.EnvironmentHelp

func run(ctx context.Context, process boot.Process) error {
	if asked, err := boot.AskedForHelp(process, help); asked {
		return err
	}
	command := "sweep"
	if len(process.Args) > 0 {
		command = process.Args[0]
	}
	pass := passes[command]
	if pass == nil || len(process.Args) > 1 {
		return &boot.UsageError{Message: fmt.Sprintf("usage: oneshot [%s], not %q (oneshot --help)",
			strings.Join(slices.Sorted(maps.Keys(passes)), "|"), strings.Join(process.Args, " "))}
	}
	program, err := boot.NewProgram(ctx, "holdfast-oneshot", process)
	if err != nil {
		return err
	}
	defer program.Close()
	report, err := pass(ctx, program)
	return boot.Report(process.Stdout, command, report, err)
}

// firstTask leaves a pass that cannot be shared to the first of several tasks.
func firstTask(pass func(context.Context, *boot.Program) (any, error)) func(context.Context, *boot.Program) (any, error) {
	return func(ctx context.Context, p *boot.Program) (any, error) {
		if p.Config.Task.Index > 0 {
			return map[string]bool{"left_to_first_task": true}, nil
		}
		return pass(ctx, p)
	}
}

func verify(ctx context.Context, p *boot.Program) (any, error) {
	report, err := p.Verify(ctx)
	if err != nil && ctx.Err() != nil { // stopped: nothing is known of the rest
		return map[string]bool{"more": true}, nil
	}
	if err == nil && !report.OK {
		err = fmt.Errorf("verify: %s", report.Summary())
	}
	return report, err
}

// migrateReport says whether something was missing, and whether something still is because the pass was stopped.
type migrateReport struct {
	Migrated bool `json:"migrated"`
	More     bool `json:"more"`
}

// migrate fails if it is stopped, unlike the other passes: a deployment takes its success for the new schema, and starts the
// new programs.
func migrate(ctx context.Context, p *boot.Program) (any, error) {
	migrated, err := p.Migrate(ctx)
	if err != nil && ctx.Err() != nil {
		return migrateReport{More: true}, errors.New("migrate was stopped before the schema was up to date; nothing is half done, run it again")
	}
	return migrateReport{Migrated: migrated}, err
}
