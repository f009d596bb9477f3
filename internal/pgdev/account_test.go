//go:build unix

package pgdev

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A folder that the server's user cannot enter is found before Postgres fails
// on it.
func TestBlockedAt(t *testing.T) {
	t.Parallel()
	closed, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	inside := filepath.Join(closed, "open")
	if err := errors.Join(os.Mkdir(inside, 0o755), os.Chmod(closed, 0o700)); err != nil {
		t.Fatal(err)
	}
	stranger := account{uid: 4_000_000, gid: 4_000_000, dropped: true}
	if got := stranger.blockedAt(inside); got == "" || !strings.HasPrefix(inside, got) {
		t.Errorf("blocked at %q, want a folder on the way to %s", got, inside)
	}
	if got := stranger.blockedAt(filepath.Join(closed, "missing")); got == "" {
		t.Error("a missing folder can be entered")
	}
	if got := stranger.blockedAt("/"); got != "" {
		t.Errorf("blocked at %q, want the root to be open", got)
	}
	if got := (account{}).blockedAt(inside); got != "" {
		t.Errorf("this process's account is blocked at %q", got)
	}
}
