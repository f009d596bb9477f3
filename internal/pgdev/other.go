//go:build !unix

package pgdev

import (
	"errors"
	"os"
	"syscall"
)

// On a system without Unix accounts and sockets, Start returns an error, and
// nothing else in this package runs.

type account struct {
	name    string
	dropped bool
}

func chooseAccount(string) (account, error) {
	return account{}, errors.New("a private Postgres needs Linux or macOS: set DATABASE_URL to a server of yours")
}

func (account) attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{} }
func (account) chown(string) error               { return nil }
func (account) blockedAt(string) string          { return "" }
func ownSession() *syscall.SysProcAttr           { return &syscall.SysProcAttr{} }
func isOurs(os.FileInfo) bool                    { return false }
func tryLock(*os.File) (bool, error)             { return false, nil }
