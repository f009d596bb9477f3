package holdfast_test

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// wordsMax bounds the glossary: a reader learns it before anything else.
const wordsMax = 25

// listed finds the paths in doc.go's list of packages: all before the first run
// of two spaces of an indented line, parted by commas.
var listed = regexp.MustCompile(`(?m)^//\t(\S.*?)(?: {2}.*)?$`)

// TestDocListsPackages compares the list of packages in doc.go with the tree,
// in both directions. Packages below internal, cmd and nested folders need not
// be listed one by one.
func TestDocListsPackages(t *testing.T) {
	t.Parallel()
	doc, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	_, list, found := strings.Cut(string(doc), "// # Packages\n")
	if !found {
		t.Fatal("doc.go has no list of packages")
	}
	var paths []string
	for _, line := range listed.FindAllStringSubmatch(list, -1) {
		for path := range strings.SplitSeq(line[1], ", ") {
			paths = append(paths, strings.TrimSuffix(path, "/…"))
		}
	}
	for _, path := range paths {
		if info, err := os.Stat(path); err != nil || !info.IsDir() {
			t.Errorf("doc.go lists %s, which does not exist", path)
		}
	}
	tree, err := readTree(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range tree {
		covered := slices.ContainsFunc(paths, func(p string) bool { return f.dir == p || strings.HasPrefix(f.dir, p+"/") })
		if f.dir != "." && !covered {
			t.Errorf("doc.go does not list %s", f.dir)
		}
	}
}

// TestGlossary bounds the words that a reader has to learn.
func TestGlossary(t *testing.T) {
	t.Parallel()
	doc, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	_, words, _ := strings.Cut(string(doc), "// # Words\n")
	words, _, _ = strings.Cut(words, "// # ")
	if n := strings.Count(words, "//   - "); n == 0 || n > wordsMax {
		t.Errorf("the glossary of doc.go has %d words, want 1 to %d", n, wordsMax)
	}
}
