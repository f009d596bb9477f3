package pgtest

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/holdfast/holdfast/internal/pgdev"
)

// StartServer starts a server for this test only, with its temporary data in
// memory. If it still runs when the test ends, it is stopped.
func StartServer(t testing.TB, options pgdev.Options) *pgdev.Server {
	t.Helper()
	options.InMemory = true
	server, err := pgdev.Start(t.Context(), options)
	if err != nil {
		t.Fatalf("start a server for the test: %v", err)
	}
	t.Cleanup(func() {
		if err := server.Stop(); err != nil {
			t.Errorf("stop the test's server: %v", err)
		}
	})
	return server
}

// KeptDir returns a pgdev.Options.Dir for servers that are started one after
// the other with the same data. The server's user can reach it; it cannot reach
// t.TempDir, whose owner may be root.
func KeptDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "hfkept-") //nolint:usetesting // see above
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	if err := os.Chmod(dir, 0o711); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, "made")
}
