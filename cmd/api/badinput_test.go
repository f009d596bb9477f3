package main

import (
	"testing"

	"github.com/holdfast/holdfast/cmd/internal/programtest"
)

func TestBadInput(t *testing.T) {
	t.Parallel()
	programtest.BadInput(t, false)
}
