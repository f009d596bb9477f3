package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/holdfast/holdfast/cmd/internal/boot"
)

func main() { boot.Main("oneshot", run) }

func help() string {
	return "Usage: oneshot [" + boot.PassNames() + `]

Runs one bounded pass, prints a report as one line of JSON on stdout, and exits.

` + boot.PassHelp() + boot.EnvironmentHelp
}

func run(ctx context.Context, process boot.Process) error {
	if asked, err := boot.AskedForHelp(process, help()); asked {
		return err
	}
	command := "sweep"
	if len(process.Args) > 0 {
		command = process.Args[0]
	}
	pass := boot.PassNamed(command)
	if pass == nil || len(process.Args) > 1 {
		return &boot.UsageError{Message: fmt.Sprintf("usage: oneshot [%s], not %q (oneshot --help)",
			boot.PassNames(), strings.Join(process.Args, " "))}
	}
	program, err := boot.NewProgram(ctx, "holdfast-oneshot", process)
	if err != nil {
		return err
	}
	defer program.Close()
	report, err := pass.Run(ctx, program)
	return boot.Report(process.Stdout, command, report, err)
}
