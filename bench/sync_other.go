//go:build !linux

package main

import "os"

// syncFile syncs a file and its metadata.
func syncFile(f *os.File) error { return f.Sync() }
