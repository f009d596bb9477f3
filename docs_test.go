package holdfast_test

import (
	"go/ast"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	errorName = regexp.MustCompile(`^(Err[A-Z]\w*|[A-Z]\w*Error)$`)
	errorCell = regexp.MustCompile("(?m)^\\| (`[^|]*`) \\|")
	code      = regexp.MustCompile("`\\*?(\\w+)`")
	testNames = regexp.MustCompile(`\bTest[A-Z]\w*`)
)

// TestDocumentedErrors compares the errors in docs/errors.md with those that
// the packages export, in both directions.
func TestDocumentedErrors(t *testing.T) {
	t.Parallel()
	tree, err := readTree(".")
	if err != nil {
		t.Fatal(err)
	}
	all := sections(t, "docs/errors.md")
	if len(all) != 5 {
		t.Errorf("docs/errors.md has %d packages, want the door, the kernel and three more", len(all))
	}
	for _, section := range all {
		dir := section.title
		if dir == "holdfast" {
			dir = "."
		}
		var want, got []string
		for _, f := range tree {
			if f.dir == dir && !f.test {
				want = append(want, exportedErrors(f.file)...)
			}
		}
		for _, cell := range errorCell.FindAllStringSubmatch(section.text, -1) {
			for _, name := range code.FindAllStringSubmatch(cell[1], -1) {
				got = append(got, name[1])
			}
		}
		slices.Sort(want)
		slices.Sort(got)
		if len(want) == 0 || !slices.Equal(got, want) {
			t.Errorf("docs/errors.md lists of %s:\n%v\nbut the package exports:\n%v", section.title, got, want)
		}
	}
}

// TestDocumentedTests finds each test that docs/promises.md names.
func TestDocumentedTests(t *testing.T) {
	t.Parallel()
	tree, err := readTree(".")
	if err != nil {
		t.Fatal(err)
	}
	known := map[string][]string{} // the folders of each test
	for _, f := range tree {
		for _, decl := range f.file.Decls {
			if function, ok := decl.(*ast.FuncDecl); ok && strings.HasPrefix(function.Name.Name, "Test") {
				known[function.Name.Name] = append(known[function.Name.Name], "/"+f.dir)
			}
		}
	}
	promises, err := os.ReadFile("docs/promises.md")
	if err != nil {
		t.Fatal(err)
	}
	items := regexp.MustCompile("(?m)^- `([^`]+)`: ((?:.|\n  )*)").FindAllStringSubmatch(string(promises), -1)
	if len(items) < 20 {
		t.Fatalf("docs/promises.md names the tests of %d packages only", len(items))
	}
	for _, item := range items {
		for _, name := range testNames.FindAllString(item[2], -1) {
			if !slices.ContainsFunc(known[name], func(dir string) bool { return strings.HasSuffix(dir, "/"+item[1]) }) {
				t.Errorf("docs/promises.md: package %s has no %s", item[1], name)
			}
		}
	}
}

// exportedErrors returns the names of the errors that a file exports.
func exportedErrors(file *ast.File) (names []string) {
	for _, decl := range file.Decls {
		group, ok := decl.(*ast.GenDecl)
		if !ok {
			continue
		}
		for _, spec := range group.Specs {
			switch spec := spec.(type) {
			case *ast.TypeSpec:
				names = append(names, spec.Name.Name)
			case *ast.ValueSpec:
				for _, name := range spec.Names {
					names = append(names, name.Name)
				}
			}
		}
	}
	return slices.DeleteFunc(names, func(name string) bool { return !errorName.MatchString(name) })
}

// section is what follows a heading of the second level.
type section struct{ title, text string }

func sections(t *testing.T, path string) (all []section) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for i, part := range strings.Split(string(text), "\n## ") {
		if i > 0 {
			title, rest, _ := strings.Cut(part, "\n")
			all = append(all, section{title, rest})
		}
	}
	return all
}
