package boot

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"syscall"

	"github.com/sethvargo/go-envconfig"
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
// error is one line on stderr. It does not return.
func Main(name string, run func(context.Context, Process) error) {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	err := run(ctx, Process{
		Env: envconfig.OsLookuper(), Args: os.Args[1:], Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
	})
	os.Exit(exitCode(name, err, os.Stderr))
}

// exitCode tells an error and returns what the process ends with: 0, 1 for an error, 2 for a usage error.
func exitCode(name string, err error, stderr io.Writer) int {
	switch {
	case err == nil:
		return 0
	case errors.Is(err, ErrFailed):
		return 1
	}
	fmt.Fprintf(stderr, "%s: %s\n", name, oneLine(err))
	if _, ok := errors.AsType[*UsageError](err); ok {
		return 2
	}
	return 1
}

// oneLine is the error's text without line breaks: a log that splits lines would tear it.
func oneLine(err error) string {
	lines := strings.FieldsFunc(err.Error(), func(r rune) bool { return r == '\n' })
	for i := range lines {
		lines[i] = strings.TrimSpace(lines[i])
	}
	return strings.Join(lines, "; ")
}
