package main

import (
	"cmp"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/holdfast/holdfast/cmd/internal/boot"
)

type versionCommand struct{}

// Run prints what the program was built from, and for what.
func (c *versionCommand) Run(process boot.Process) error {
	version := "(devel)"
	if info, ok := debug.ReadBuildInfo(); ok {
		version = cmp.Or(info.Main.Version, version)
	}
	if _, err := fmt.Fprintf(process.Stdout, "holdfast %s %s %s/%s\n", version, runtime.Version(), runtime.GOOS, runtime.GOARCH); err != nil {
		return fmt.Errorf("print the version: %w", err)
	}
	return nil
}
