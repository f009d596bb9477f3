package main

import (
	"io"
	"os"
	"path/filepath"
	"testing"
)

// The folder of the profiles is made, and holds none of an earlier run.
func TestProfileFolder(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "made", "profile")
	for range 2 {
		o, err := parse([]string{"-suite", "ledger", "-profile", dir}, io.Discard)
		if err != nil || o.profile != dir {
			t.Fatalf("the folder is %q: %v", o.profile, err)
		}
		left, err := os.ReadDir(dir)
		if err != nil || len(left) > 0 {
			t.Errorf("the folder has %v: %v", left, err)
		}
		if err := os.WriteFile(filepath.Join(dir, "api.cpu.pprof"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if o, err := parse(nil, io.Discard); err != nil || o.profile != "" {
		t.Errorf("without the flag the folder is %q: %v", o.profile, err)
	}
}
