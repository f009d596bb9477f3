package pgtest

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

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

// Open returns a pool of at most 8 connections, which is closed when the test
// ends. The test fails if it did not release every connection.
func Open(t testing.TB, url string) *pgxpool.Pool {
	t.Helper()
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		t.Fatalf("read the database's URL: %v", err)
	}
	config.MaxConns = poolSize
	pool, err := pgxpool.NewWithConfig(context.Background(), config)
	if err != nil {
		t.Fatalf("open a pool: %v", err)
	}
	t.Cleanup(func() { closePool(t, pool, closeTimeout) })
	return pool
}
