package boot

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"

	"github.com/sethvargo/go-envconfig"
	_ "golang.org/x/crypto/x509roots/fallback" // certificate roots, where the system has none

	"github.com/holdfast/holdfast/cmd/internal/config"
)

// Process is a program's access to its process.
type Process struct {
	Env envconfig.Lookuper
	// Args are the arguments after the program's name.
	Args   []string
	Stdin  io.Reader
	Stdout io.Writer
	Stderr io.Writer
	// Cell is the only one of CELLS that the program serves or works in; empty:
	// all of them.
	Cell string
}

// ErrFailed ends a program with exit code 1 when the reason is already
// reported.
var ErrFailed = errors.New("failed")

// UsageError is an invalid command line. The program ends with exit code 2.
type UsageError struct{ Message string }

func (e *UsageError) Error() string { return e.Message }

// setGCPercent lets the heap grow to five times its live size before a collection.
// The programs keep little memory and allocate much, so their few megabytes
// would otherwise be collected hundreds of times per second. Each cell keeps as
// much, so with several the heap grows to less. GOGC overrides it.
func setGCPercent(cells int) {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(100 + 300/cells)
	}
}

// Main runs a program. Its context ends with SIGINT or SIGTERM, and a second
// such signal ends the process at once. An error is one line on stderr: a log
// line, or for holdfast a line of text. Main does not return.
func Main(name string, run func(context.Context, Process) error) {
	setGCPercent(1)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	process := Process{
		Env: envconfig.OsLookuper(), Args: os.Args[1:], Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
	}
	err := run(ctx, process)
	os.Exit(exitCode(ctx, name, err, process))
}

// exitCode reports an error and returns the exit code: 0, 1 for an error, 2 for
// a usage error. The error is a line of the log with level ERROR, in the form
// that LOG_FORMAT names. The operator's tool, whose reader is a person, writes
// a line of text unless LOG_FORMAT is set.
func exitCode(ctx context.Context, name string, err error, process Process) int {
	switch {
	case err == nil:
		return 0
	case errors.Is(err, ErrFailed):
		return 1
	}
	if format, _ := process.Env.Lookup("LOG_FORMAT"); format == "" && name == operatorsTool {
		fmt.Fprintf(process.Stderr, "%s: %s\n", name, oneLine(err))
	} else {
		lines := newLines(process.Stderr, config.Config{LogFormat: config.LogFormat(format)})
		slog.New(lines).ErrorContext(context.WithoutCancel(ctx), oneLine(err), "program", name) //nolint:sloglint // the line is the error
	}
	if _, ok := errors.AsType[*UsageError](err); ok {
		return 2
	}
	return 1
}

const operatorsTool = "holdfast"

// oneLine returns the error's text without line breaks, because some logs treat
// each line as a record.
func oneLine(err error) string {
	lines := strings.FieldsFunc(err.Error(), func(r rune) bool { return r == '\n' })
	for i := range lines {
		lines[i] = strings.TrimSpace(lines[i])
	}
	return strings.Join(lines, "; ")
}

// AskedForHelp prints the help on stdout if --help is the only argument. The
// program then ends.
func AskedForHelp(p Process, help string) (asked bool, err error) {
	if len(p.Args) != 1 || !slices.Contains([]string{"--help", "-help", "-h", "help"}, p.Args[0]) {
		return false, nil
	}
	if _, err := fmt.Fprint(p.Stdout, help); err != nil {
		return true, fmt.Errorf("print the help: %w", err)
	}
	return true, nil
}

// OnlyHelp is AskedForHelp for a program that is configured by its environment:
// any other command line is a *UsageError.
func OnlyHelp(p Process, help string) (asked bool, err error) {
	if asked, err = AskedForHelp(p, help); asked || len(p.Args) == 0 {
		return asked, err
	}
	return false, &UsageError{fmt.Sprintf("it takes no arguments but --help, not %s: the environment configures it (docs/configuration.md)", strings.Join(p.Args, " "))}
}

// EnvironmentHelp ends the help of the programs that serve or maintain a
// database.
const EnvironmentHelp = `
It is configured by the environment, which docs/configuration.md lists; DATABASE_URL is required:
DATABASE_URL=postgres://user:password@host:5432/database. The log is JSON lines on stderr.
`

// Report prints the report of a pass as one line of JSON, an object that begins
// with the job's name. It does so also if the pass failed, and returns the
// error of the pass.
func Report(w io.Writer, job string, report any, failure error) error {
	line, err := json.Marshal(report)
	if err != nil {
		return fmt.Errorf("encode the report: %w", err)
	}
	rest := line[1:]
	if len(rest) > 1 {
		rest = append([]byte(","), rest...)
	}
	line = append(fmt.Appendf(nil, `{"job":%q`, job), rest...)
	if _, err := fmt.Fprintf(w, "%s\n", line); err != nil && failure == nil {
		failure = fmt.Errorf("print the report: %w", err)
	}
	return failure
}

// Version is the release that the programs belong to, set by the build:
// -ldflags "-X …/cmd/internal/boot.Version=1.2.3".
var Version string

// ThisVersion is Version, or what the Go command recorded: the module's version
// for a program made by go install, else (devel).
func ThisVersion() string {
	recorded := "(devel)"
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		recorded = info.Main.Version
	}
	return cmp.Or(Version, recorded)
}
