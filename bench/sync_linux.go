package main

import (
	"os"
	"syscall"
)

// syncFile syncs a file as Postgres does by default: its contents, and of its metadata what reading them needs.
func syncFile(f *os.File) error {
	return syscall.Fdatasync(int(f.Fd()))
}
