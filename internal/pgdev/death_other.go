//go:build !linux

package pgdev

import "syscall"

// dieWithUs does nothing where the kernel has no such service; the watcher stops the server there.
func dieWithUs(*syscall.SysProcAttr, syscall.Signal) {}
