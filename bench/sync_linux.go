package main

import (
	"os"
	"syscall"
)

// syncFile syncs a file as Postgres does by default: its contents, and the part
// of its metadata that is needed to read them.
func syncFile(f *os.File) error {
	return syscall.Fdatasync(int(f.Fd()))
}
