package boot

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/holdfast/holdfast/verify"
)

// Pass is one bounded pass of maintenance.
type Pass struct {
	// Name is the command of oneshot, and the job in logs and metrics.
	Name string
	// Help describes the pass in one line.
	Help string
	// Once runs the pass for oneshot, in this task's part of the work. The
	// report covers all that the pass did, even if it also returns an error.
	Once func(context.Context, *Program) (report any, err error)
}

// Passes are the passes that oneshot runs by their names. Workers run some of
// them too; see holdfast.Client.RunOnce.
var Passes = []Pass{
	{
		Name: "sweep", Help: "expire due holds (the default)",
		Once: once("sweep"),
	},
	{
		Name: "drain", Help: "decide what is queued",
		Once: once("drain"),
	},
	{
		Name: "recover", Help: "take over requests whose isolated retry was not finished, and checkouts that are due",
		Once: once("recover"),
	},
	{
		Name: "purge", Help: "delete what is finished and older than its retention",
		Once: once("purge"),
	},
	{Name: "verify", Help: "check the invariants; exit code 1 if one is broken", Once: firstTask(verifyOnce)},
	{Name: "migrate", Help: "bring the schema up to date", Once: firstTask(migrateOnce)},
}

func once(pass string) func(context.Context, *Program) (any, error) {
	return func(ctx context.Context, p *Program) (any, error) { return p.RunOnce(ctx, pass) }
}

// PassNames are the names of all passes, separated by |.
func PassNames() string {
	names := make([]string, len(Passes))
	for i := range Passes {
		names[i] = Passes[i].Name
	}
	return strings.Join(names, "|")
}

// PassHelp has a line for each pass.
func PassHelp() string {
	var b strings.Builder
	for i := range Passes {
		fmt.Fprintf(&b, "  %-7s  %s\n", Passes[i].Name, Passes[i].Help)
	}
	return b.String()
}

// PassNamed returns the pass of that name, or nil.
func PassNamed(name string) *Pass {
	i := slices.IndexFunc(Passes, func(p Pass) bool { return p.Name == name })
	if i < 0 {
		return nil
	}
	return &Passes[i]
}

// firstTask leaves a pass that cannot be divided to the first of several tasks.
func firstTask(pass func(context.Context, *Program) (any, error)) func(context.Context, *Program) (any, error) {
	return func(ctx context.Context, p *Program) (any, error) {
		if p.Config.Task.Index > 0 {
			return map[string]bool{"left_to_first_task": true}, nil
		}
		return pass(ctx, p)
	}
}

func verifyOnce(ctx context.Context, p *Program) (any, error) {
	report, err := p.Verify(ctx, verify.Config{})
	if err != nil && ctx.Err() != nil { // stopped: the other invariants were not checked
		return map[string]bool{"more": true}, nil
	}
	if err == nil && !report.OK {
		err = fmt.Errorf("verify: %s", report.Summary())
	}
	return report, err
}

// migrateReport is whether something was missing, and whether something still
// is because the pass was stopped.
type migrateReport struct {
	Migrated bool `json:"migrated"`
	More     bool `json:"more"`
}

// migrateOnce fails if it is stopped, unlike the other passes: a deployment
// takes success to mean that the schema is new, and starts the new programs.
func migrateOnce(ctx context.Context, p *Program) (any, error) {
	migrated, err := p.migrate(ctx)
	if err != nil && ctx.Err() != nil {
		return migrateReport{More: true}, errors.New("migrate was stopped before the schema was up to date; each migration is complete or absent, so run it again")
	}
	return migrateReport{Migrated: migrated}, err
}
