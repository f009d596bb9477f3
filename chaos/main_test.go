package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	t.Parallel()
	out, err := os.Create(filepath.Join(t.TempDir(), "out"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = out.Close() })
	for args, ok := range map[string]bool{
		"": true, "-for 90s -seed 7 -json": true, "-upgrade HEAD~1 -rows 0": true, "-upgrade . -rollout": false, "-rows -1": false, "-for 1s": false, "-for 3h": false, "-shoppers 0": false, "-seed x": false, "now": false,
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
	for args, want := range map[string]string{"": "", "-rollout": " -rollout", "-upgrade HEAD~1 -rows 7": " -upgrade HEAD~1 -rows 7"} {
		o, err := parse(strings.Fields(args), out)
		if err != nil || o.again() != want {
			t.Errorf("%q: again%s, %v", args, o.again(), err)
		}
	}
}

func TestMost(t *testing.T) {
	t.Parallel()
	if got := most(map[string]int{"a": 1, "b": 3, "c": 2}, 2); got != "b (3), c (2), and 1 more" {
		t.Error(got)
	}
}
