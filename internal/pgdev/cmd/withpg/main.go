package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"

	"github.com/holdfast/holdfast/internal/pgdev"
)

const urlName = "HOLDFAST_TEST_DATABASE_URL"

// Exit codes that are not the program's, the same as those of env and timeout.
const (
	exitFailed  = 125
	exitMissing = 127 // no Postgres was found; a shell uses this code for a missing program
	exitUsage   = 2
)

func main() {
	args := os.Args[1:]
	if len(args) > 0 && args[0] == "--" {
		args = args[1:]
	}
	if len(args) == 0 {
		fmt.Fprintln(os.Stderr, "usage: withpg [--] program [argument …]")
		os.Exit(exitUsage)
	}
	code, err := run(args)
	if err != nil {
		fmt.Fprintln(os.Stderr, "withpg:", err)
	}
	os.Exit(code)
}

func run(args []string) (code int, err error) {
	signals := make(chan os.Signal, 8) // from here on, a signal does not end this process before the server is stopped
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT)
	defer signal.Stop(signals)
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	private := os.Getenv(urlName) == "" && os.Getenv("DATABASE_URL") == ""
	if !private && os.Getenv("PG_MAJOR") != "" {
		return exitUsage, fmt.Errorf("PG_MAJOR asks for a private Postgres, and %s or DATABASE_URL names a server: leave one out", urlName)
	}
	if private {
		server, err := pgdev.Start(context.Background(), pgdev.Options{InMemory: true})
		switch {
		case errors.Is(err, pgdev.ErrNoPostgres):
			return exitMissing, err
		case err != nil:
			return exitFailed, err
		}
		defer func() {
			if stopErr := server.Stop(); stopErr != nil {
				code, err = max(code, exitFailed), errors.Join(err, stopErr)
			}
		}()
		cmd.Env = append(os.Environ(), urlName+"="+server.URL("postgres"))
	}
	if err := cmd.Start(); err != nil {
		return exitFailed, err
	}
	go func() {
		for s := range signals {
			_ = cmd.Process.Signal(s) // it may have ended
		}
	}()
	return exitCode(cmd.Wait(), cmd.ProcessState)
}

// exitCode returns the program's exit code, or 128 + n after signal n.
func exitCode(err error, state *os.ProcessState) (int, error) {
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return exitFailed, err
	}
	if status, ok := state.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return 128 + int(status.Signal()), nil
	}
	return state.ExitCode(), nil
}
