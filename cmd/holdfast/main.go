package main

import (
	"context"
	"fmt"
	"regexp"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/holdfast/holdfast/cmd/internal/boot"
)

func main() { boot.Main("holdfast", run) }

// commands is the command line.
type commands struct {
	Run     runCommand     `cmd:"" help:"Serve everything from one process: API, worker and, unless DATABASE_URL names one, a private Postgres."`
	Demo    demoCommand    `cmd:"" help:"Watch a flash sale on a service of its own, and its invariants verified."`
	Keys    keysCommand    `cmd:"" help:"Make, list and revoke API keys (DATABASE_URL)."`
	Tenants tenantsCommand `cmd:"" help:"List the tenants (DATABASE_URL)."`
	Stock   stockCommand   `cmd:"" help:"Set, adjust, read and import stocks (HOLDFAST_URL, HOLDFAST_KEY)."`
	Lanes   lanesCommand   `cmd:"" help:"See and control the lanes (HOLDFAST_URL, HOLDFAST_KEY)."`
	Subs    subsCommand    `cmd:"" name:"subscriptions" help:"See how far the readers of the audit record have come (DATABASE_URL)."`
	Verify  verifyCommand  `cmd:"" help:"Check the invariants in the database; exit 1 if one is broken (DATABASE_URL)."`
	Replay  replayCommand  `cmd:"" help:"Send a file of baskets through the API and check every outcome (HOLDFAST_URL, HOLDFAST_KEY)."`
	Migrate migrateCommand `cmd:"" help:"Bring the database to this version's schema (DATABASE_URL, METERED_COMMANDS_ENABLED)."`
	OpenAPI openAPICommand `cmd:"" name:"openapi" help:"Print the OpenAPI document of the API."`
	Version versionCommand `cmd:"" help:"Print the version."`
}

// run parses the command line and runs the command. A command has the context and the process.
func run(ctx context.Context, process boot.Process) (err error) {
	var all commands
	exited := false
	parser, err := kong.New(&all,
		kong.Name("holdfast"),
		kong.Description("Reservations admitted under load, on one Postgres. The environment is described in docs/configuration.md."),
		kong.Writers(process.Stdout, process.Stderr),
		kong.Exit(func(int) { exited = true }), // after it has printed help
		kong.ConfigureHelp(kong.HelpOptions{Compact: true}),
		kong.BindTo(ctx, (*context.Context)(nil)),
		kong.Bind(process),
	)
	if err != nil {
		return fmt.Errorf("read the command line: %w", err)
	}
	args := joinNegative(process.Args)
	switch {
	case len(args) == 0: // the help, but what was called for is missing
		parser.Stdout = process.Stderr
		args = []string{"--help"}
	case len(args) == 1 && (args[0] == "help" || args[0] == "-help"):
		args = []string{"--help"}
	}
	parsed, err := parser.Parse(args)
	switch {
	case exited && len(process.Args) == 0:
		return &boot.UsageError{Message: "a command is missing"}
	case exited:
		return nil
	case err != nil:
		return &boot.UsageError{Message: err.Error() + " (holdfast --help)"}
	}
	return parsed.Run()
}

var negative = regexp.MustCompile(`^-\d+$`)

// joinNegative writes --delta -3 as --delta=-3: the parser takes a number below zero for a flag.
func joinNegative(args []string) (joined []string) {
	for i, arg := range args {
		if i > 0 && negative.MatchString(arg) && strings.HasPrefix(args[i-1], "--") && !strings.Contains(args[i-1], "=") {
			joined[len(joined)-1] += "=" + arg
			continue
		}
		joined = append(joined, arg)
	}
	return joined
}
