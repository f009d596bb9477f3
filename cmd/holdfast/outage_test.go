package main

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/cmd/internal/programtest"
	"github.com/holdfast/holdfast/internal/chaos/stage"
)

// restartable returns a Postgres that a test can stop and start again, and its
// address, which does not change.
func restartable(t *testing.T) (postgres *stage.Postgres, url string) {
	t.Helper()
	folder := dataFolder(t)
	w := stage.NewWire()
	t.Cleanup(w.Close)
	route, err := w.NewRoute()
	if err != nil {
		t.Fatal(err)
	}
	postgres, err = stage.StartPostgres(t.Context(), folder, w, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := postgres.Close(); err != nil {
			t.Error(err)
		}
	})
	through := postgres.URL(route, stage.Database)
	return postgres, through
}

// The server is stopped while hundreds of calls arrive, and started again. The
// log reports that in a few lines, which count every error, and none of them is
// at the level of an error, not even of River.
func TestOutageIsFewLines(t *testing.T) {
	t.Parallel()
	postgres, url := restartable(t)
	env := map[string]string{"DATABASE_URL": url, "PORT": "0"}
	program := programtest.Start(t, run, env, "run")
	s := ready(t, program.Stdout)
	s.call(http.MethodPut, "/v1/stocks/shirt", `{"stock":100}`, http.StatusOK)
	s.add("before", "shirt")
	before := strings.Count(program.Stderr.String(), "\n")

	if err := postgres.Stop(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	var callers sync.WaitGroup
	for range 8 {
		callers.Go(func() {
			for range 50 {
				s.call(http.MethodPost, "/v1/carts/c/items", `{"variant_id":"shirt","quantity":1}`, http.StatusServiceUnavailable)
				s.call(http.MethodGet, "/v1/carts/c", "", http.StatusServiceUnavailable)
			}
		})
	}
	callers.Wait()
	program.Stderr.Line(t, "left_out")
	if err := postgres.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.add("after", "shirt")
	if err := program.Stop(); err != nil {
		t.Error(err)
	}

	log := program.Stderr.String()
	if n := strings.Count(log, "\n") - before; n > 20 {
		t.Errorf("%d lines about the outage, want at most 20:\n%s", n, log)
	}
	if strings.Contains(log, `"level":"ERROR"`) {
		t.Errorf("want no error:\n%s", log)
	}
	counted := 0
	for text := range strings.Lines(log) {
		var line struct {
			Level   string
			LeftOut int `json:"left_out"`
		}
		if err := json.Unmarshal([]byte(text), &line); err != nil {
			t.Errorf("%s: %v", text, err)
		}
		if line.Level == "WARN" {
			counted += 1 + line.LeftOut
		}
	}
	if counted < 800 {
		t.Errorf("%d errors counted, want each of the 800 calls", counted)
	}
}

// A stop logs no warning or error, even while the private Postgres has other
// sessions and calls are being handled.
func TestStopIsQuiet(t *testing.T) {
	t.Parallel()
	for name, args := range map[string][]string{"temporary": nil, "kept": {"--data", ""}} {
		for _, signal := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
			t.Run(name+" "+signal.String(), func(t *testing.T) {
				t.Parallel()
				args := append([]string{"run", "--port", "0"}, args...)
				if name == "kept" {
					args[len(args)-1] = dataFolder(t)
				}
				process := programtest.StartProcess(t, map[string]string{"LOG_LEVEL": "warn"}, args...)
				s := ready(t, process.Stdout)
				s.call(http.MethodPut, "/v1/stocks/shirt", `{"stock":100}`, http.StatusOK)
				conn, err := pgx.Connect(t.Context(), s.database)
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = conn.Close(context.WithoutCancel(t.Context())) }()
				asked := make(chan error, 1)
				go func() {
					_, err := conn.Exec(t.Context(), "SELECT pg_sleep(60)")
					asked <- err
				}()
				signalGroup(t, process, signal)
				if code := process.Wait(); code != 0 {
					t.Errorf("exit code %d", code)
				}
				if err := <-asked; err == nil || errors.Is(err, context.Canceled) {
					t.Errorf("the session: %v, want an error that the server ended it", err)
				}
				if process.Stderr.String() != "" {
					t.Errorf("it logs warnings or errors:\n%s", process.Stderr)
				}
			})
		}
	}
}

// A demo that is interrupted while it starts reports the interruption, and no
// error that it caused.
func TestInterruptedDemo(t *testing.T) {
	t.Parallel()
	program := programtest.Start(t, run, map[string]string{}, "demo")
	if err := program.Stop(); err == nil || err.Error() != context.Canceled.Error() {
		t.Errorf("%v, want %v", err, context.Canceled)
	}
	if program.Stderr.String() != "" {
		t.Errorf("it logged:\n%s", program.Stderr)
	}
}
