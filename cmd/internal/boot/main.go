package boot

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"syscall"

	"github.com/sethvargo/go-envconfig"
	_ "golang.org/x/crypto/x509roots/fallback" // certificate roots, where the system has none

	"github.com/holdfast/holdfast/cmd/internal/config"
)

// Process is what a program has of the process it runs in.
type Process struct {
	Env envconfig.Lookuper
	// Args are the arguments after the program's name.
	Args   []string
	Stdin  io.Reader
	Stdout io.Writer
	Stderr io.Writer
}

// ErrFailed ends a program with exit code 1 when it has told why already.
var ErrFailed = errors.New("failed")

// UsageError is a command line that cannot be understood; the program ends with exit code 2.
type UsageError struct{ Message string }

func (e *UsageError) Error() string { return e.Message }

// gcPercent lets the heap grow to five times what lives before it is collected: the programs keep little and throw away
// much, so their few megabytes would be collected hundreds of times a second. GOGC says otherwise.
const gcPercent = 400

// Main runs a program: its context ends with SIGINT or SIGTERM, and a second one of them ends the process at once. An
// error is one line on stderr, of the log or, for holdfast, of text. It does not return.
func Main(name string, run func(context.Context, Process) error) {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	process := Process{
		Env: envconfig.OsLookuper(), Args: os.Args[1:], Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
	}
	err := run(ctx, process)
	os.Exit(exitCode(ctx, name, err, process))
}

// exitCode reports an error and returns what the process ends with: 0, 1 for an error, 2 for a usage error. The error is a
// line of the log with level ERROR, in the form that LOG_FORMAT names. The operator's tool, whose reader is a person, writes a
// line of text unless LOG_FORMAT is set.
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

// oneLine is the error's text without line breaks: a log that splits lines would tear it.
func oneLine(err error) string {
	lines := strings.FieldsFunc(err.Error(), func(r rune) bool { return r == '\n' })
	for i := range lines {
		lines[i] = strings.TrimSpace(lines[i])
	}
	return strings.Join(lines, "; ")
}
