package main

import (
	"testing"

	"github.com/holdfast/holdfast/cmd/internal/programtest"
)

// If a connection breaks at any step of the start, the program retries after a
// pause and does not end.
func TestStartSurvivesCuts(t *testing.T) {
	t.Parallel()
	programtest.StartSurvivesCuts(t, run, programtest.NewFixture(t), 3, func(t *testing.T, worker *programtest.Inside) {
		t.Helper()
		worker.Stderr.Line(t, "the worker serves")
	})
}
