package main

import (
	"context"
	"fmt"
	"regexp"
	"runtime"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/holdfast/holdfast/cmd/internal/boot"
	"github.com/holdfast/holdfast/internal/httpapi"
	"github.com/holdfast/holdfast/internal/lanes"
)

func main() { boot.Main("holdfast", run) }

// commands is the command line.
type commands struct {
	Run     runCommand            `cmd:"" help:"Serve everything from one process: API, worker and, unless DATABASE_URL names one, a private Postgres."`
	Env     envCommand            `cmd:"" help:"Print HOLDFAST_URL, HOLDFAST_KEY and DATABASE_URL of the running service for a shell: eval \"$(holdfast env)\"."`
	Demo    demoCommand           `cmd:"" help:"Run a flash sale on a temporary service and verify the invariants."`
	Keys    keysCommand           `cmd:"" help:"Make, list and revoke API keys (DATABASE_URL)."`
	Tenants tenantsCommand        `cmd:"" help:"List the tenants (DATABASE_URL)."`
	Stock   stockCommand          `cmd:"" help:"Set, adjust, read and import stocks (HOLDFAST_URL, HOLDFAST_KEY)."`
	Units   unitsCommand          `cmd:"" help:"Import and list the units of a block (HOLDFAST_URL, HOLDFAST_KEY)."`
	Lanes   lanesCommand          `cmd:"" help:"Show and control the lanes (HOLDFAST_URL, HOLDFAST_KEY)."`
	Secret  callbackSecretCommand `cmd:"" name:"callback-secret" help:"Print the secret that signs the callbacks of a tenant's checkouts (DATABASE_URL, CHECKOUT_CALLBACK_SECRET)."`
	Subs    subsCommand           `cmd:"" name:"subscriptions" help:"Show the position of each reader of the audit log (DATABASE_URL)."`
	Project projectionsCommand    `cmd:"" name:"projections" help:"List, rebuild and verify the projections (DATABASE_URL)."`
	Verify  verifyCommand         `cmd:"" help:"Check the invariants in the database; exit 1 if one is broken (DATABASE_URL)."`
	Replay  replayCommand         `cmd:"" help:"Send a file of baskets through the API and check every outcome (HOLDFAST_URL, HOLDFAST_KEY)."`
	Migrate migrateCommand        `cmd:"" help:"Bring the database to this version's schema (DATABASE_URL, METERED_COMMANDS_ENABLED)."`
	OpenAPI openAPICommand        `cmd:"" name:"openapi" help:"Print the OpenAPI document of the API."`
	Version versionCommand        `cmd:"" help:"Print the version."`
	Cells   cellsCommand          `cmd:"" help:"List, add and verify the databases that are cells, and move tenants between them (CELLS)."`

	Cell string `help:"The cell of a command that works in one database (CELLS)." placeholder:"NAME"`
}

// run parses the command line and runs the command. A command receives the
// context and the process.
func run(ctx context.Context, process boot.Process) (err error) {
	var all commands
	exited := false
	parser, err := kong.New(&all,
		kong.Name("holdfast"),
		kong.Description("Admits reservations under load, on one Postgres. The environment is described in docs/configuration.md."),
		names(),
		kong.Writers(process.Stdout, process.Stderr),
		kong.Exit(func(int) { exited = true }), // called after the help is printed
		kong.ConfigureHelp(kong.HelpOptions{Compact: true}),
		kong.BindTo(ctx, (*context.Context)(nil)),
	)
	if err != nil {
		return fmt.Errorf("read the command line: %w", err)
	}
	args := joinNegative(process.Args)
	switch {
	case len(args) == 0: // print the help; the missing command is still an error
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
	process.Cell = all.Cell
	return parsed.Run(process)
}

// names are the names of the lanes and of the lane settings, for the help and
// for the check of arguments.
func names() kong.Vars {
	return kong.Vars{
		"lanes": separated(lanes.All()), "either_lane": lanes.Either(lanes.All()),
		"wishes": separated(lanes.Wishes()), "either_wish": lanes.Either(lanes.Wishes()),
	}
}

func separated[S ~string](names []S) string {
	list := make([]string, len(names))
	for i, name := range names {
		list[i] = string(name)
	}
	return strings.Join(list, ",")
}

var negative = regexp.MustCompile(`^-\d+$`)

// joinNegative writes --delta -3 as --delta=-3, because the parser reads a
// number below zero as a flag.
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

type openAPICommand struct{}

// Run prints the document that the API serves at /openapi.json.
func (c *openAPICommand) Run(process boot.Process) error {
	document, err := httpapi.OpenAPI(boot.Version)
	if err != nil {
		return err
	}
	if _, err := process.Stdout.Write(document); err != nil {
		return fmt.Errorf("print the document: %w", err)
	}
	return nil
}

type versionCommand struct{}

// Run prints the version, the Go version and the platform.
func (c *versionCommand) Run(process boot.Process) error {
	if _, err := fmt.Fprintf(process.Stdout, "holdfast %s %s %s/%s\n", boot.ThisVersion(), runtime.Version(), runtime.GOOS, runtime.GOARCH); err != nil {
		return fmt.Errorf("print the version: %w", err)
	}
	return nil
}
