package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast/holdfast/cmd/internal/programtest"
	"github.com/holdfast/holdfast/internal/pgdev"
	"github.com/holdfast/holdfast/internal/pgtest"
)

// During a failover, a program that starts waits for a standby, and uses it
// once it is promoted. If it is not promoted within DATABASE_WAIT_MAX, the
// program refuses it.
func TestWaitsForPromotion(t *testing.T) {
	t.Parallel()
	url := standby(t)
	_, _, err := programtest.Once(t, run, map[string]string{"DATABASE_URL": url, "DATABASE_WAIT_MAX": "300ms"}, "migrate")
	if err == nil || !strings.Contains(err.Error(), "is a standby") {
		t.Errorf("a standby that is not promoted: %v, want a refusal that names the standby", err)
	}
	migrate := programtest.Start(t, run, map[string]string{"DATABASE_URL": url, "DATABASE_WAIT_MAX": "1h"}, "migrate")
	migrate.Stderr.Line(t, "the start waits for it")
	if _, err := pgtest.Open(t, url).Exec(t.Context(), "SELECT pg_promote()"); err != nil {
		t.Fatal(err)
	}
	if err := migrate.Wait(); err != nil {
		t.Errorf("a standby that is promoted: %v", err)
	}
}

// standby starts a server in recovery, which only a promotion ends, and returns
// the address of its database.
func standby(t *testing.T) string {
	t.Helper()
	options := pgdev.Options{Dir: pgtest.KeptDir(t)}
	if err := pgtest.StartServer(t, options).Stop(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(options.Dir, "data", "standby.signal"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	return pgtest.StartServer(t, options).URL("postgres")
}
