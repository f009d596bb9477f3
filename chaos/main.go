package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

func main() { os.Exit(exitCode(os.Args[1:])) }

// errBroken means that the storm found a violation, which the report contains.
var errBroken = errors.New("some promises were broken")

func exitCode(args []string) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	o, err := parse(args, os.Stderr)
	if err != nil {
		return 2
	}
	if err := run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "chaos:", err)
		return 1
	}
	return 0
}

// run is main without its exit code.
func run(ctx context.Context, o options) error {
	if o.planOnly {
		for _, f := range o.plan() {
			fmt.Println(f)
		}
		return nil
	}
	report, err := runStorm(ctx, o, os.Stderr)
	if err != nil {
		return err
	}
	if err := report.print(os.Stdout, o.json); err != nil {
		return err
	}
	if !report.OK {
		return errBroken
	}
	return nil
}

// parse reads the command line. It reports errors to the writer.
func parse(args []string, stderr *os.File) (o options, err error) {
	flags := flag.NewFlagSet("chaos", flag.ContinueOnError)
	flags.SetOutput(stderr)
	o.flags(flags)
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if flags.NArg() > 0 {
		err = fmt.Errorf("it takes no arguments, not %q", flags.Args())
	} else {
		err = o.check()
	}
	if err != nil {
		fmt.Fprintln(stderr, "chaos:", err)
	}
	return o, err
}
