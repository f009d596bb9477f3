//go:build unix

package pgdev

import (
	"errors"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
)

// account is the user that the server runs as: this process's user or, for
// root, a user without rights.
type account struct {
	name     string
	uid, gid uint32
	dropped  bool // whether this process is root and the server is not
}

// chooseAccount returns the owner of the data that dir contains, else the first
// of the usual unprivileged users that exists.
func chooseAccount(dir string) (account, error) {
	if os.Geteuid() != 0 {
		return account{}, nil
	}
	if dir != "" {
		owner, found, err := ownerOf(filepath.Join(dir, dataName))
		if err != nil || found {
			return owner, err
		}
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		return accountOf(u)
	}
	return account{}, errors.New("run this as an ordinary user: Postgres refuses to run as root, and there is neither a user postgres nor a user nobody")
}

func ownerOf(data string) (_ account, found bool, err error) {
	info, err := os.Stat(data)
	if errors.Is(err, os.ErrNotExist) {
		return account{}, false, nil
	}
	if err != nil {
		return account{}, false, fmt.Errorf("read the owner of the data folder: %w", err)
	}
	stat := info.Sys().(*syscall.Stat_t)
	if stat.Uid == 0 {
		return account{}, false, fmt.Errorf("the data folder %s belongs to root, and Postgres refuses to run as root: give it to another user", data)
	}
	owner := account{name: strconv.Itoa(int(stat.Uid)), uid: stat.Uid, gid: stat.Gid, dropped: true}
	if u, err := user.LookupId(owner.name); err == nil {
		owner.name = u.Username
	}
	return owner, true, nil
}

func accountOf(u *user.User) (account, error) {
	uid, err := strconv.ParseUint(u.Uid, 10, 32)
	if err != nil {
		return account{}, fmt.Errorf("read the user id of %s: %w", u.Username, err)
	}
	gid, err := strconv.ParseUint(u.Gid, 10, 32)
	if err != nil {
		return account{}, fmt.Errorf("read the group id of %s: %w", u.Username, err)
	}
	return account{name: u.Username, uid: uint32(uid), gid: uint32(gid), dropped: true}, nil
}

// attributes start a program as the account, in its own session.
func (a account) attributes() *syscall.SysProcAttr {
	attr := ownSession()
	if a.dropped {
		attr.Credential = &syscall.Credential{Uid: a.uid, Gid: a.gid}
	}
	return attr
}

// chown makes the account the owner of a file or folder of this process.
func (a account) chown(path string) error {
	if !a.dropped {
		return nil
	}
	return os.Chown(path, int(a.uid), int(a.gid))
}

// blockedAt returns the first folder on the way to path, or path itself, that
// the account may not enter, or "" if there is none. It does not check this
// process's own account, for which the kernel reports the error.
func (a account) blockedAt(path string) string {
	if !a.dropped {
		return ""
	}
	resolved, err := filepath.EvalSymlinks(path)
	if err != nil {
		return path
	}
	for _, folder := range ancestors(resolved) {
		if !a.mayEnter(folder) {
			return folder
		}
	}
	return ""
}

func (a account) mayEnter(folder string) bool {
	info, err := os.Stat(folder)
	if err != nil {
		return false
	}
	stat := info.Sys().(*syscall.Stat_t)
	mode := info.Mode().Perm()
	switch {
	case stat.Uid == a.uid:
		return mode&0o100 != 0
	case stat.Gid == a.gid:
		return mode&0o010 != 0
	default:
		return mode&0o001 != 0
	}
}

// ancestors returns / and every folder on the way to path, path last.
func ancestors(path string) []string {
	if parent := filepath.Dir(path); parent != path {
		return append(ancestors(parent), path)
	}
	return []string{path}
}
