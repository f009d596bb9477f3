//go:build unix

package main

import (
	"errors"
	"strings"
	"testing"

	"github.com/holdfast/holdfast/internal/pgdev"
)

func TestRun(t *testing.T) {
	for name, c := range map[string]struct {
		script string
		code   int
	}{
		"the server's address is exported": {`case $HOLDFAST_TEST_DATABASE_URL in postgres://*) exit 0;; esac; exit 1`, 0},
		"the program's exit code":          {`exit 7`, 7},
		"a signal that ends the program":   {`kill -KILL $$`, 128 + 9},
		"a signal to withpg is passed on":  {`trap 'exit 9' TERM; kill -TERM $PPID; while :; do sleep 0.01; done`, 9},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv(urlName, "")
			t.Setenv("DATABASE_URL", "")
			code, err := run([]string{"sh", "-c", c.script})
			if err != nil || code != c.code {
				t.Errorf("exit code %d, %v; want %d", code, err, c.code)
			}
		})
	}
}

func TestRunWithAServerOfTheCallers(t *testing.T) {
	t.Setenv("DATABASE_URL", "postgres://caller")
	t.Setenv(urlName, "")
	t.Setenv("PG_MAJOR", "")
	t.Setenv("PG_BIN", "/nowhere") // a private server would fail
	if code, err := run([]string{"sh", "-c", `test -z "$HOLDFAST_TEST_DATABASE_URL"`}); err != nil || code != 0 {
		t.Errorf("exit code %d, %v; want 0", code, err)
	}
}

// A server that the environment names may have another version than PG_MAJOR,
// so the tests must not run on it.
func TestRunWithAServerAndAVersion(t *testing.T) {
	t.Setenv(urlName, "postgres://caller")
	t.Setenv("PG_MAJOR", "18")
	if code, err := run([]string{"true"}); err == nil || code != exitUsage || !strings.Contains(err.Error(), urlName) {
		t.Errorf("exit code %d, %v; want %d and why", code, err, exitUsage)
	}
}

func TestRunWithoutTheVersion(t *testing.T) {
	t.Setenv(urlName, "")
	t.Setenv("DATABASE_URL", "")
	t.Setenv("PG_BIN", "")
	t.Setenv("PG_MAJOR", "999")
	if code, err := run([]string{"true"}); code != exitMissing || !errors.Is(err, pgdev.ErrNoPostgres) {
		t.Errorf("exit code %d, %v; want %d", code, err, exitMissing)
	}
}

func TestRunExplainsWhatIsMissing(t *testing.T) {
	t.Setenv(urlName, "")
	t.Setenv("DATABASE_URL", "")
	if code, err := run([]string{"/nowhere/program"}); err == nil || code != exitFailed {
		t.Errorf("no such program: exit code %d, %v; want %d and why", code, err, exitFailed)
	}
	t.Setenv("PG_BIN", "/nowhere")
	if code, err := run([]string{"true"}); err == nil || code != exitFailed {
		t.Errorf("no Postgres: exit code %d, %v; want %d and why", code, err, exitFailed)
	}
}
