package main

import (
	"testing"

	"github.com/holdfast/holdfast/cmd/internal/programtest"
)

func TestBadInput(t *testing.T) {
	t.Parallel()
	for _, command := range []string{"drain", "migrate"} { // both need a database
		t.Run(command, func(t *testing.T) {
			t.Parallel()
			programtest.BadInput(t, false, command)
		})
	}
}
