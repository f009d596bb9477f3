package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/sethvargo/go-envconfig"

	"github.com/holdfast/holdfast/cmd/internal/boot"
	"github.com/holdfast/holdfast/cmd/internal/traffic"
)

type runCommand struct {
	Port  *int   `help:"Port on 127.0.0.1; 0 for any free port. Default: PORT, else 8080." placeholder:"N"`
	Data  string `help:"Folder that keeps the private Postgres's data and the development key. Default: one for each port, below $XDG_STATE_HOME/holdfast (~/.local/state/holdfast; for root /var/lib/holdfast)." placeholder:"DIR" type:"path"`
	Fresh bool   `help:"Keep nothing: start with an empty database, and delete it at the end. Also the default on any free port."`
}

// Run serves until it is stopped. Once all parts are ready it prints one line
// with the URL, the key, the database, the dashboard and the storefront, and
// then where the data is and how another terminal gets these values.
func (c *runCommand) Run(ctx context.Context, process boot.Process) error {
	program, err := newProgram(ctx, process, c.Port)
	if err != nil {
		return err
	}
	defer program.Close()
	leavePrivate(process, program)
	folder, err := c.folder(process, program)
	if err != nil {
		return err
	}
	local, err := boot.StartLocal(ctx, program, boot.LocalOptions{Dir: folder, Storefront: true})
	switch {
	case err != nil && ctx.Err() != nil: // stopped before it was ready
		return nil
	case err != nil:
		return err
	}
	private := !program.Config.Database.Named() && program.Config.Port != 0 && !c.Fresh // another free port would be another folder
	remove, unsaved := instance{local.URL, local.Key, local.Database}.save(process, private)
	if unsaved == nil {
		defer remove()
	}
	line := fmt.Sprintf("ready url=%s key=%s database=%s", local.URL, local.Key, local.Database)
	if local.Dashboard != "" {
		line += " dashboard=" + local.Dashboard
	}
	fmt.Fprintln(process.Stdout, line+" storefront="+local.Storefront)
	fmt.Fprintln(process.Stdout, c.hints(program, folder, local.URL, unsaved))
	select {
	case <-ctx.Done():
	case <-local.Done():
	}
	return local.Stop()
}

// folder returns the folder that keeps the data, "" for none.
func (c *runCommand) folder(process boot.Process, program *boot.Program) (string, error) {
	port := program.Config.Port
	switch {
	case c.Data != "" && c.Fresh:
		return "", &boot.UsageError{Message: "--data keeps the data and --fresh does not: leave one of them out"}
	case c.Data != "":
		return c.Data, nil
	case c.Fresh || port == 0 || program.Config.Database.Named():
		return "", nil
	}
	folder := stateFolder(process, port)
	if folder == "" {
		return "", errors.New("there is no folder to keep the data in, because HOME is not set: name one with --data, or keep nothing with --fresh")
	}
	return folder, nil
}

// hints are the lines below the ready line.
func (c *runCommand) hints(program *boot.Program, folder, url string, unsaved error) string {
	text := "The data is deleted at the end."
	switch {
	case folder != "":
		text = "The data is kept in " + folder + " (--fresh keeps none)."
	case program.Config.Database.Named():
		text = "The data is in the database that DATABASE_URL or CELLS names."
	}
	if unsaved != nil {
		return text + "\n`holdfast env` does not know this service: " + unsaved.Error() + "."
	}
	env := os.Args[0] + " env"
	if port := url[strings.LastIndex(url, ":")+1:]; port != defaultPort {
		env += " --port " + port
	}
	return text + "\nIn another terminal: eval \"$(" + env + ")\""
}

// defaultPort is the default of PORT.
const defaultPort = "8080"

// newProgram returns the program, with the port of the command line if it names
// one.
func newProgram(ctx context.Context, process boot.Process, port *int) (*boot.Program, error) {
	if port != nil && (*port < 0 || *port > 65535) {
		return nil, &boot.UsageError{Message: fmt.Sprintf("--port must be between 0 and 65535, not %d", *port)}
	}
	program, err := boot.NewProgram(ctx, "holdfast", process)
	if err != nil {
		return nil, err
	}
	if port != nil {
		program.Config.Port = *port
	}
	return program, nil
}

type demoCommand struct {
	Port   *int          `help:"Port on 127.0.0.1. Default: any free port." placeholder:"N"`
	Stock  int           `help:"Units of the hot variant. Default: 1000." placeholder:"N"`
	Buyers int           `help:"Buyers that each want one unit. Default: 10000." placeholder:"N"`
	For    time.Duration `help:"How long the buyers take to arrive. Default: 12s." placeholder:"DURATION"`
	Stay   bool          `help:"After the sale, keep the service and its dashboard until interrupted. The exit code is still that of the sale."`
}

// Run starts the all-in-one, holds a flash sale through its API, and ends with
// exit code 0 only if every promise was kept. The log is not part of the report:
// it is written after it, and only if the demo fails, from the level warn on. If
// LOG_LEVEL is set, it is written as usual.
func (c *demoCommand) Run(ctx context.Context, process boot.Process) (err error) {
	endLog := func(error) {}
	if _, set := process.Env.Lookup("LOG_LEVEL"); !set {
		process.Env = envconfig.MultiLookuper(process.Env, envconfig.MapLookuper(map[string]string{"LOG_LEVEL": "warn"}))
		log := &heldLog{to: process.Stderr}
		process.Stderr = log
		endLog = log.end
	}
	defer func() { endLog(err) }()
	port := c.Port
	if port == nil {
		port = new(int)
	}
	program, err := newProgram(ctx, process, port)
	if err != nil {
		return err
	}
	defer program.Close()
	leavePrivate(process, program)
	local, err := boot.StartLocal(ctx, program, boot.LocalOptions{})
	switch {
	case err != nil && ctx.Err() != nil: // stopped before it was ready: the errors only result from the stop
		return context.Cause(ctx)
	case err != nil:
		return err
	}
	defer func() { err = errors.Join(err, local.Stop()) }()
	err = traffic.Demo(ctx, traffic.DemoConfig{
		URL: local.URL, Key: local.Key, Database: local.Database, Dashboard: local.Dashboard, Out: process.Stdout, Stock: c.Stock, Buyers: c.Buyers, For: c.For,
	})
	if c.Stay && (err == nil || errors.Is(err, traffic.ErrNotAsPromised)) {
		endLog(err)
		stay(ctx, process, local)
	}
	return err
}

// stay keeps the service until it is interrupted or ends.
func stay(ctx context.Context, process boot.Process, local *boot.Local) {
	fmt.Fprintf(process.Stdout, "The service stays until it is interrupted (Ctrl-C).\n\n  API        %s\n  key        %s\n", local.URL, local.Key)
	if local.Dashboard != "" {
		fmt.Fprintf(process.Stdout, "  dashboard  %s\n", local.Dashboard)
	}
	select {
	case <-ctx.Done():
	case <-local.Done():
	}
}

type migrateCommand struct{}

// Run migrates the database. It may be repeated, and several processes may run
// it at once.
func (c *migrateCommand) Run(ctx context.Context, process boot.Process) error {
	program, err := newProgram(ctx, process, nil)
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
