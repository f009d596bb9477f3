package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"
)

func main() { os.Exit(exitCode(os.Args[1:])) }

func exitCode(args []string) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	// Holdfast's programs set the same, unless GOGC is set. The baselines gain
	// by it too.
	if set := debug.SetGCPercent(400); set != 100 {
		debug.SetGCPercent(set)
	}
	err := run(ctx, args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 2
	case err != nil:
		fmt.Fprintln(os.Stderr, "bench:", err)
		return 1
	}
	return 0
}

// run is the program. It also runs as its own child process: a synchronous
// service or a flood.
func run(ctx context.Context, args []string) error {
	if len(args) > 0 {
		switch args[0] {
		case serveCommand:
			return serve(ctx, args[1:])
		case floodCommand:
			return runFlood(ctx, args[1:], os.Stdout)
		}
	}
	o, err := parse(args, os.Stderr)
	if err != nil {
		return err
	}
	measures, about, err := measure(ctx, o, os.Stderr)
	// With an error, show prints the measures that were taken before it.
	return errors.Join(err, o.show(os.Stdout, os.Stderr, measures, about))
}
