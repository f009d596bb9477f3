package main

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func TestExported(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	for name, text := range map[string]string{
		"a.go":             "package a\nfunc F() {}\nfunc f() {}\ntype T[K any] struct{}\nfunc (*T[K]) M() {}\nfunc (T[K]) m() {}\ntype u int\nfunc (u) String() string { return \"\" }\n",
		"a_test.go":        "package a\nfunc TestF() {}\n",
		"b/b.go":           "package b\nconst (\n\tA, b = 1, 2\n\tC = 3\n)\nvar V int\n",
		"b/internal/c.go":  "package c\nfunc F() {}\n",
		"cmd/d/d.go":       "package d\nfunc F() {}\n",
		"program/main.go":  "package main\nfunc F() {}\n",
		"nested/nested.go": "package nested\nfunc F() {}\n",
		"nested/go.mod":    "module nested\n",
	} {
		file := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	names, err := exported(root)
	if err != nil {
		t.Fatal(err)
	}
	for folder, want := range map[string][]string{".": {"F", "T", "T.M"}, "b": {"A", "C", "V"}} {
		if got := slices.Sorted(slices.Values(names[folder])); !slices.Equal(got, want) {
			t.Errorf("%s exports %q, want %q", folder, got, want)
		}
	}
	if len(names) != 2 {
		t.Errorf("counted %v, want two packages", names)
	}
}
