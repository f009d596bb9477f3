package main

import (
	"os"
	"strings"
	"testing"
)

// With too many instances for the database, the plan fails and shows the parts
// of the sum. With the largest number that fits it does not fail.
func TestInstances(t *testing.T) {
	t.Parallel()
	root := os.DirFS(repository)
	code, err := readCode(root)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ variable, old, new, want string }{
		"APIs":           {"api_instances_max", "default     = 3", "default     = 8", "The programs can need 485 connections and the database has 400: 16 api × 23"},
		"APIs that fit":  {"api_instances_max", "default     = 3", "default     = 6", ""},
		"workers":        {"worker_instances", "default     = 2", "default     = 8", "The programs can need 495 connections and the database has 400: 6 api × 23"},
		"metered":        {"metered", "default     = false", "default     = true", ""},
		"a small server": {"max_connections", "default     = 400", "default     = 254", "The programs can need 255 connections and the database has 254: 6 api × 23"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			text := read(t, root, variablesTF)
			at := strings.Index(text, `variable "`+c.variable+`" {`)
			if at < 0 || !strings.Contains(text[at:], c.old) {
				t.Fatalf("%s has no variable %s with %q", variablesTF, c.variable, c.old)
			}
			changed := text[:at] + strings.Replace(text[at:], c.old, c.new, 1)
			findings, err := checkAgainst(spoiled{root, map[string][]byte{variablesTF: []byte(changed)}}, code)
			if err != nil {
				t.Fatal(err)
			}
			found := lines(findings)
			if c.want == "" && strings.Contains(found, "The programs can need") || !strings.Contains(found, c.want) {
				t.Errorf("want %q in the findings:\n%s", c.want, found)
			}
		})
	}
}
