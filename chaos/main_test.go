package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast/holdfast/internal/chaos/stage"
)

func TestParse(t *testing.T) {
	t.Parallel()
	out, err := os.Create(filepath.Join(t.TempDir(), "out"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = out.Close() })
	for args, ok := range map[string]bool{
		"": true, "-for 90s -seed 7 -json": true, "-upgrade HEAD~1 -rows 0": true, "-upgrade . -rollout": false, "-without lock-rows,slow": true, "-without rows": false, "-without slow -rollout": false, "-rows -1": false, "-for 1s": false, "-for 3h": false, "-shoppers 0": false, "-seed x": false, "now": false,
	} {
		if _, err := parse(strings.Fields(args), out); (err == nil) != ok {
			t.Errorf("%q: %v", args, err)
		}
	}
}

// The flags that a failed storm prints repeat that storm.
func TestAgain(t *testing.T) {
	t.Parallel()
	out, err := os.Create(filepath.Join(t.TempDir(), "out"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = out.Close() })
	for args, want := range map[string]string{"": "", "-rollout": " -rollout", "-without lock-rows": " -without lock-rows", "-upgrade HEAD~1 -rows 7": " -upgrade HEAD~1 -rows 7"} {
		o, err := parse(strings.Fields(args), out)
		if err != nil || o.again() != want {
			t.Errorf("%q: again%s, %v", args, o.again(), err)
		}
	}
}

// A storm without a kind of fault has the others at the same times.
func TestWithout(t *testing.T) {
	t.Parallel()
	all, some := options{length: time.Minute, seed: 7}, options{length: time.Minute, seed: 7, without: "lock-rows"}
	want := slices.DeleteFunc(all.plan(), func(f stage.Fault) bool { return f.Kind == stage.LockRows })
	if got := some.plan(); !slices.Equal(got, want) || len(got) == len(all.plan()) {
		t.Errorf("%v, want %v", got, want)
	}
}

func TestMost(t *testing.T) {
	t.Parallel()
	if got := most(map[string]int{"a": 1, "b": 3, "c": 2}, 2); got != "b (3), c (2), and 1 more" {
		t.Error(got)
	}
}
