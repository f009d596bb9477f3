package main

import (
	"testing"

	"github.com/holdfast/holdfast/cmd/internal/programtest"
)

// A connection that breaks at any step of the start costs a pause, not the program.
func TestStartRidesOut(t *testing.T) {
	t.Parallel()
	programtest.RidesOut(t, run, programtest.NewShop(t), 3, func(t *testing.T, worker *programtest.Inside) {
		t.Helper()
		worker.Stderr.Line(t, "the worker serves")
	})
}
