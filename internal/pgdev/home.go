package pgdev

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

const (
	dataName     = "data"     // the cluster, inside a kept folder or the temporary one
	passwordName = "password" // the superuser's password, next to a kept cluster
	lockName     = "lock"
	dirPattern   = "hfpg-" // of temporary folders; short, because the path of a socket is
	socketMax    = 99      // bytes of a socket's path; macOS allows 103, Linux 107
	retriesMax   = 100     // launches, 100 ms apart, while another server on the data ends
)

// home is the folders of one server: a temporary folder with its sockets, and
// its data there or in a kept folder.
type home struct {
	account      account
	dir          string // temporary; HOME and working folder of the programs
	sockets      string
	data         string
	kept         string // Options.Dir as an absolute path; empty if the data is temporary too
	launchesLeft int    // launches that may still be repeated
	locks        []*os.File
	watcher      *watcher
}

// newHome makes the folders, locks them, and starts the watcher, which removes
// the temporary ones if this process dies.
func newHome(a account, opts Options) (_ *home, err error) {
	h := &home{account: a, launchesLeft: retriesMax}
	defer func() {
		if err != nil {
			err = errors.Join(err, h.close())
		}
	}()
	if err := h.makeTemporary(opts.InMemory); err != nil {
		return nil, err
	}
	h.data = filepath.Join(h.dir, dataName)
	if opts.Dir != "" {
		if err := h.openKept(opts.Dir); err != nil {
			return nil, err
		}
	}
	h.watcher, err = startWatcher(h.dir, filepath.Join(h.data, "postmaster.pid"))
	return h, err
}

func (h *home) makeTemporary(inMemory bool) error {
	parent, err := h.temporaryParent(inMemory)
	if err != nil {
		return err
	}
	if h.dir, err = os.MkdirTemp(parent, dirPattern); err != nil {
		return fmt.Errorf("make a temporary folder: %w", err)
	}
	if err := os.Chmod(h.dir, 0o711); err != nil { // the account must pass through it to its folders
		return err
	}
	if err := h.lock(filepath.Join(h.dir, lockName)); err != nil {
		return err
	}
	h.sockets = filepath.Join(h.dir, "s")
	return h.makeFolder(h.sockets)
}

// temporaryParent returns the first usual folder that the account can reach and
// that leaves room for the path of a socket. It first removes the stale folders
// there.
func (h *home) temporaryParent(inMemory bool) (string, error) {
	candidates := []string{os.TempDir(), "/tmp", "/var/tmp"}
	if inMemory {
		candidates = append([]string{memoryParent}, candidates...)
	}
	for _, parent := range candidates {
		longest := filepath.Join(parent, dirPattern+"0123456789", "s", ".s.PGSQL.65535.lock")
		if info, err := os.Stat(parent); err != nil || !info.IsDir() || len(longest) > socketMax {
			continue
		}
		if h.account.blockedAt(parent) != "" {
			continue
		}
		removeStale(parent)
		if parent != memoryParent || hasMemory(parent) {
			return parent, nil
		}
	}
	return "", fmt.Errorf("the server's user can reach none of %s by a short path", strings.Join(candidates, ", "))
}

func (h *home) openKept(dir string) error {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		if err := errors.Join(os.MkdirAll(dir, 0o711), os.Chmod(dir, 0o711)); err != nil {
			return fmt.Errorf("make the data folder: %w", err)
		}
	}
	if blocked := h.account.blockedAt(dir); blocked != "" {
		return fmt.Errorf("the user %s cannot reach the data folder %s because of %s (Postgres refuses to run as root): choose another place, such as one under /var/lib", h.account.name, dir, blocked)
	}
	h.kept, h.data = dir, filepath.Join(dir, dataName)
	return h.lock(filepath.Join(dir, lockName))
}

// A released lock may seem taken for a moment: a program that this process is
// starting has the open files until it runs.
const (
	lockTries = 20
	lockWait  = 10 * time.Millisecond
)

func (h *home) lock(path string) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return fmt.Errorf("lock %s: %w", path, err)
	}
	h.locks = append(h.locks, f)
	ours, err := tryLock(f)
	for tries := 0; err == nil && !ours && tries < lockTries; tries++ {
		time.Sleep(lockWait)
		ours, err = tryLock(f)
	}
	if err != nil {
		return fmt.Errorf("lock %s: %w", path, err)
	}
	if !ours {
		return fmt.Errorf("another process runs a server on %s: stop it, or choose another folder", filepath.Dir(path))
	}
	return nil
}

func (h *home) makeFolder(path string) error {
	if err := os.Mkdir(path, 0o700); err != nil {
		return err
	}
	return h.account.chown(path)
}

// makeCluster runs initdb unless the data exists, and returns the superuser's
// password. An incomplete cluster never gets the final name.
func (h *home) makeCluster(ctx context.Context, p programs) (password string, err error) {
	if _, err := os.Stat(filepath.Join(h.data, "PG_VERSION")); err == nil {
		return h.keptPassword()
	}
	password = rand.Text()
	passwordFile := filepath.Join(h.dir, passwordName)
	if err := os.WriteFile(passwordFile, []byte(password+"\n"), 0o600); err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, os.Remove(passwordFile)) }()
	if err := h.account.chown(passwordFile); err != nil {
		return "", err
	}
	unfinished := h.data + ".new"
	if err := os.RemoveAll(unfinished); err != nil {
		return "", err
	}
	if err := h.makeFolder(unfinished); err != nil {
		return "", err
	}
	args := []string{"-D", unfinished, "-U", superuser, "-A", "scram-sha-256", "--pwfile", passwordFile,
		"--encoding", "UTF8", "--locale", "C", "--no-instructions"}
	if h.kept == "" {
		args = append(args, "--no-sync") // the data is temporary, so a crash of the machine may lose it
	}
	if err := run(ctx, p.command(h, "initdb", args...)); err != nil {
		return "", fmt.Errorf("make a cluster in %s: %w", h.data, err)
	}
	if h.kept != "" {
		if err := os.WriteFile(filepath.Join(h.kept, passwordName), []byte(password+"\n"), 0o600); err != nil {
			return "", fmt.Errorf("keep the password: %w", err)
		}
	}
	return password, os.Rename(unfinished, h.data)
}

// dataMajor returns the major version of the data that a kept folder has, 0 for
// none.
func dataMajor(kept string) (int, error) {
	if kept == "" {
		return 0, nil
	}
	text, err := os.ReadFile(filepath.Join(kept, dataName, "PG_VERSION"))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("read the version of the data: %w", err)
	}
	major, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return 0, fmt.Errorf("read the version of the data in %s: %w", kept, err)
	}
	return major, nil
}

func (h *home) keptPassword() (string, error) {
	password, err := os.ReadFile(filepath.Join(h.kept, passwordName))
	if errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("%s holds a cluster that was made by another program: choose another folder", h.kept)
	}
	if err != nil {
		return "", fmt.Errorf("read the password of %s: %w", h.data, err)
	}
	return strings.TrimSpace(string(password)), nil
}

// close removes the temporary folders. The server must have ended. The locks
// are released last, so that no other process starts on the data while the
// watcher still watches it.
func (h *home) close() error {
	var errs []error
	if h.dir != "" {
		errs = append(errs, os.RemoveAll(h.dir))
	}
	if h.watcher != nil {
		h.watcher.dismiss()
	}
	for _, f := range h.locks {
		errs = append(errs, f.Close())
	}
	return errors.Join(errs...)
}

// removeStale removes temporary folders whose process and watcher were both
// killed.
func removeStale(parent string) {
	folders, _ := filepath.Glob(filepath.Join(parent, dirPattern+"*")) // the pattern is well-formed
	for _, folder := range folders {
		info, err := os.Lstat(folder)
		if err != nil || !info.IsDir() || !isOurs(info) || time.Since(info.ModTime()) < time.Minute {
			continue
		}
		f, err := os.OpenFile(filepath.Join(folder, lockName), os.O_RDWR, 0)
		if err != nil {
			continue
		}
		if ours, _ := tryLock(f); ours {
			_ = os.RemoveAll(folder) // what cannot be removed is tried again at the next start
		}
		_ = f.Close()
	}
}
