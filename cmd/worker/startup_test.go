package main

import (
	"testing"

	"github.com/holdfast/holdfast/cmd/internal/programtest"
)

// If a connection breaks at any step of the start, the program retries after a
// pause and does not end.
func TestStartSurvivesCuts(t *testing.T) {
	t.Parallel()
	programtest.StartSurvivesCuts(t, run, programtest.NewShop(t), 3, func(t *testing.T, worker *programtest.Inside) {
		t.Helper()
		worker.Stderr.Line(t, "the worker serves")
	})
}

func TestBadInput(t *testing.T) {
	t.Parallel()
	programtest.BadInput(t, false)
}
