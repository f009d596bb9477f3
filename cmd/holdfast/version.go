package main

import (
	"fmt"
	"runtime"

	"github.com/holdfast/holdfast/cmd/internal/boot"
)

type versionCommand struct{}

// Run prints what the program was built from, and for what.
func (c *versionCommand) Run(process boot.Process) error {
	if _, err := fmt.Fprintf(process.Stdout, "holdfast %s %s %s/%s\n", boot.ThisVersion(), runtime.Version(), runtime.GOOS, runtime.GOARCH); err != nil {
		return fmt.Errorf("print the version: %w", err)
	}
	return nil
}
