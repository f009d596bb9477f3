//go:build !linux

package pgdev

import "syscall"

// endWithParent does nothing, because this kernel has no death signal; the watcher
// stops the server.
func endWithParent(*syscall.SysProcAttr, syscall.Signal) {}
