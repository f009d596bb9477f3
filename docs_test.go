package holdfast_test

import (
	"go/ast"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/internal/pgtest"
	"github.com/holdfast/holdfast/migrations"
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
	items := regexp.MustCompile("(?m)^- `([^`]+)`: ((?:.|\n {2})*)").FindAllStringSubmatch(string(promises), -1)
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

// TestGuideSnippets finds each block of Go in a guide in the example that the
// guide explains, which has a test.
func TestGuideSnippets(t *testing.T) {
	t.Parallel()
	squeeze := func(text string) string { return strings.Join(strings.Fields(text), " ") }
	blocks := regexp.MustCompile("(?s)```go\n(.*?)```")
	for guide, example := range map[string]string{"docs/from-select-for-update.md": "examples/sidebyside/sidebyside.go"} {
		text, err := os.ReadFile(guide)
		if err != nil {
			t.Fatal(err)
		}
		code, err := os.ReadFile(example)
		if err != nil {
			t.Fatal(err)
		}
		found := blocks.FindAllStringSubmatch(string(text), -1)
		if len(found) == 0 {
			t.Errorf("%s has no block of Go", guide)
		}
		for _, block := range found {
			if !strings.Contains(squeeze(string(code)), squeeze(block[1])) {
				t.Errorf("%s has code that is not in %s:\n%s", guide, example, block[1])
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

func sections(t *testing.T, name string) (all []section) {
	t.Helper()
	text, err := os.ReadFile(name)
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

// schemaSQL lists each column of each table as docs/schema.md draws it.
const schemaSQL = `
SELECT c.relname, replace(replace(format_type(a.atttypid, a.atttypmod), 'timestamp with time zone', 'timestamptz'), 'double precision', 'float8')
    || ' ' || a.attname || CASE WHEN a.attnum = ANY (k.indkey) THEN ' PK' ELSE '' END
FROM pg_class c
JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
JOIN pg_index k ON k.indrelid = c.oid AND k.indisprimary
WHERE c.relkind = 'r' AND c.relnamespace = current_schema()::regnamespace AND NOT starts_with(c.relname, 'goose_')`

var (
	entity  = regexp.MustCompile(`(?m)^ {4}(\w+) \{\n((?: {8}.*\n)*) {4}\}$`)
	tableOf = regexp.MustCompile("### (\\w+)\n\n- \\*\\*A row is:\\*\\* (?:.|\n)*?- \\*\\*Written by:\\*\\* `(\\w+)`\\.\n- \\*\\*Kept:\\*\\* ")
)

// TestDocumentedSchema compares the tables, their columns and the packages that
// write them in docs/schema.md with the migrated schema.
func TestDocumentedSchema(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("docs/schema.md")
	if err != nil {
		t.Fatal(err)
	}
	drawn := map[string][]string{}
	for _, found := range entity.FindAllStringSubmatch(string(text), -1) {
		for line := range strings.Lines(found[2]) {
			drawn[found[1]] = append(drawn[found[1]], strings.TrimSpace(line))
		}
	}
	written := map[string]string{}
	for _, found := range tableOf.FindAllStringSubmatch(string(text), -1) {
		written[found[1]] = found[2]
	}
	db := pgtest.New(t)
	pgtest.Must(t, migrations.Up(t.Context(), db, &migrations.Config{Metered: true}))
	rows, err := db.Query(t.Context(), schemaSQL)
	pgtest.Must(t, err)
	columns := map[string][]string{}
	var table, column string
	_, err = pgx.ForEachRow(rows, []any{&table, &column}, func() error {
		columns[table] = append(columns[table], column)
		return nil
	})
	pgtest.Must(t, err)
	for table := range columns {
		slices.Sort(columns[table])
		slices.Sort(drawn[table])
		if !slices.Equal(drawn[table], columns[table]) {
			t.Errorf("docs/schema.md draws %s with %v, and it has %v", table, drawn[table], columns[table])
		}
		if want := path.Base(owners[table]); written[table] != want {
			t.Errorf("docs/schema.md: %s is written by %q, want %q", table, written[table], want)
		}
	}
	if len(drawn) != len(columns) || len(written) != len(columns) {
		t.Errorf("docs/schema.md draws %d and describes %d of %d tables", len(drawn), len(written), len(columns))
	}
}
