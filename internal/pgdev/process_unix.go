//go:build unix

package pgdev

import (
	"errors"
	"os"
	"syscall"
)

// ownSession detaches a program from the terminal: Ctrl-C there reaches this
// process, which then ends the program.
func ownSession() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }

// isOurs reports whether the file belongs to this process's user.
func isOurs(info os.FileInfo) bool {
	return info.Sys().(*syscall.Stat_t).Uid == uint32(os.Geteuid())
}

// tryLock locks a file until the file is closed or the process ends, however it
// ends. Programs started by this process do not inherit the lock. It reports
// false if another process has it.
func tryLock(f *os.File) (bool, error) {
	err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return false, nil
	}
	return err == nil, err
}
