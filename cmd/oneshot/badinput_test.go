package main

import (
	"testing"

	"github.com/holdfast/holdfast/cmd/internal/programtest"
)

func TestBadInput(t *testing.T) {
	t.Parallel()
	for _, command := range []string{"drain", "migrate"} { // which serve calls of a database and wait otherwise
		t.Run(command, func(t *testing.T) {
			t.Parallel()
			programtest.BadInput(t, false, command)
		})
	}
}
