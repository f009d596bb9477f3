package main

import (
	"strings"
	"testing"

	"github.com/holdfast/holdfast/cmd/internal/programtest"
	"github.com/holdfast/holdfast/internal/pgtest"
)

// If a connection breaks at any step of the start, the program retries after a
// pause and does not end.
func TestStartSurvivesCuts(t *testing.T) {
	t.Parallel()
	programtest.StartSurvivesCuts(t, run, programtest.NewFixture(t), 1, func(t *testing.T, api *programtest.Inside) {
		t.Helper()
		api.Stderr.Line(t, "the API serves")
	})
}

// If the database remains unavailable, the program logs one line and ends with
// one sentence.
func TestStartGivesUp(t *testing.T) {
	t.Parallel()
	shop := programtest.NewFixture(t)
	wire := pgtest.NewWire(t, shop.URL)
	wire.Silence()
	_, log, err := programtest.Once(t, run, shop.Env("DATABASE_URL", wire.URL, "DATABASE_WAIT_MAX", "1s"))
	if err == nil || !strings.HasPrefix(err.Error(), "connect to the database that DATABASE_URL names") {
		t.Errorf("%v, want a sentence with the cause", err)
	}
	if strings.Count(log, "\n") != 1 || !strings.Contains(log, "the start waits for it") {
		t.Errorf("the log is not one line:\n%s", log)
	}
}

// A program that is stopped while it waits for its database ends without an
// error.
func TestStoppedWhileItWaits(t *testing.T) {
	t.Parallel()
	shop := programtest.NewFixture(t)
	wire := pgtest.NewWire(t, shop.URL)
	wire.Silence()
	api := programtest.Start(t, run, shop.Env("DATABASE_URL", wire.URL, "DATABASE_WAIT_MAX", "1h"))
	pgtest.Until(t, "it has called the database", func() bool { return wire.Sent() > 0 })
	if err := api.Stop(); err != nil {
		t.Errorf("stop: %v", err)
	}
}
