package holdfast_test

import (
	"context"
	"fmt"
	"go/ast"
	"go/token"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/internal/pgtest"
	"github.com/holdfast/holdfast/migrations"
)

// TestSQL prepares every statement of the module against the migrated schema:
// each constant string whose name ends in SQL. A renamed column, a misspelt
// table or a parameter of unknown type fails here, and not only in the branch
// that runs the statement.
func TestSQL(t *testing.T) {
	t.Parallel()
	tree, err := readTree(".")
	if err != nil {
		t.Fatal(err)
	}
	statements, faults := findStatements(tree)
	if len(statements) < 100 {
		t.Errorf("%d statements were found, which can't be all", len(statements))
	}
	for _, fault := range append(faults, prepare(t, statements)...) {
		t.Error(fault)
	}
}

// TestSQLFinds shows that the test can fail, and that it reads what it is given
// as the compiler does.
func TestSQLFinds(t *testing.T) {
	t.Parallel()
	statements, faults := findStatements(tree(t, map[string]string{
		"a/a.go": "package a\n" +
			"import \"" + module + "/b\"\n" +
			"const (\n\tcolumns = `slot, ` + b.More\n\tgoodSQL = (`SELECT ` + columns) + ` FROM lane_slots WHERE lane = @lane`\n)\n" +
			"const badSQL = `SELECT slot FROM lane_slot`\n" +
			"const untoldSQL = `SELECT $1 IS NULL OR ` + b.Typo\n" +
			"var textSQL = \"no constant\"\n",
		"b/b.go":      "package b\nconst More = \"low_water\"\nconst Typo = `tru`\n",
		"a/a_test.go": "package a\nconst testSQL = `SELECT nothing`\n",
		"c/c.go":      "package c\nconst madeSQL = made(`SELECT 1`)\n",
		"d/d.go": "package d\n" +
			"const aheadSQL = `SELECT last_value FROM reservation_requests_sequence_seq`\n" +
			"const drawnSQL = `SELECT pg_sequence_last_value('reservation_requests_sequence_seq')`\n",
	}))
	if want := "SELECT slot, low_water FROM lane_slots WHERE lane = @lane"; statements["a.goodSQL"] != want {
		t.Errorf("goodSQL is read as %q, want %q", statements["a.goodSQL"], want)
	}
	assertFindings(t, faults, []string{"c.madeSQL", "d.aheadSQL"})
	assertFindings(t, prepare(t, statements), []string{"a.badSQL", "a.untoldSQL"})
}

// findStatements returns the text of every statement by its package and name,
// and a line for each that can't be read.
func findStatements(tree []source) (statements map[string]string, faults []string) {
	c := constants{}
	for _, f := range tree {
		if !f.test {
			c.add(f)
		}
	}
	statements = map[string]string{}
	for _, dir := range slices.Sorted(maps.Keys(c)) {
		for _, name := range slices.Sorted(maps.Keys(c[dir])) {
			if !strings.HasSuffix(name, "SQL") {
				continue
			}
			text, err := c.text(dir, name)
			if err != nil {
				faults = append(faults, fmt.Sprintf("%s.%s: %v", dir, name, err))
				continue
			}
			if lastValue.MatchString(text) {
				faults = append(faults, fmt.Sprintf("%s.%s: reads last_value, which may be ahead of what is drawn: use horizon.Drawn", dir, name))
			}
			statements[dir+"."+name] = text
		}
	}
	return statements, faults
}

// lastValue is the column of a sequence, not the function
// pg_sequence_last_value.
var lastValue = regexp.MustCompile(`\blast_value\b`)

// constants are the constants of a tree: by directory, then by name.
type constants map[string]map[string]constant

type constant struct {
	value ast.Expr
	in    source
}

func (c constants) add(f source) {
	if c[f.dir] == nil {
		c[f.dir] = map[string]constant{}
	}
	for _, decl := range f.file.Decls {
		group, ok := decl.(*ast.GenDecl)
		if !ok || group.Tok != token.CONST {
			continue
		}
		for _, spec := range group.Specs {
			if values, ok := spec.(*ast.ValueSpec); ok {
				for i, name := range values.Names {
					if i < len(values.Values) {
						c[f.dir][name.Name] = constant{values.Values[i], f}
					}
				}
			}
		}
	}
}

// text is the value of a constant string.
func (c constants) text(dir, name string) (string, error) {
	found, ok := c[dir][name]
	if !ok {
		return "", fmt.Errorf("no constant %s in %s", name, dir)
	}
	return c.value(found.in, found.value)
}

func (c constants) value(in source, e ast.Expr) (string, error) {
	switch e := e.(type) {
	case *ast.BasicLit:
		return literal(e), nil
	case *ast.ParenExpr:
		return c.value(in, e.X)
	case *ast.Ident:
		return c.text(in.dir, e.Name)
	case *ast.SelectorExpr:
		if pkg, ok := e.X.(*ast.Ident); ok {
			if dir, ours := strings.CutPrefix(in.imports[pkg.Name], module+"/"); ours {
				return c.text(dir, e.Sel.Name)
			}
		}
	case *ast.BinaryExpr:
		left, err := c.value(in, e.X)
		if err != nil {
			return "", err
		}
		right, err := c.value(in, e.Y)
		return left + right, err
	}
	return "", fmt.Errorf("%s: not made of constant strings", in.at(e))
}

// prepare returns a line for each statement that Postgres does not take, by
// name.
func prepare(t *testing.T, statements map[string]string) (faults []string) {
	t.Helper()
	db := pgtest.New(t)
	if err := migrations.Up(t.Context(), db, &migrations.Config{Metered: true}); err != nil {
		t.Fatal(err)
	}
	conn, err := pgx.ConnectConfig(t.Context(), db.Config().ConnConfig)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	for _, name := range slices.Sorted(maps.Keys(statements)) {
		// parameters by name (@name) become numbered ones; statements without
		// are left as they are
		sql, _, err := pgx.NamedArgs{}.RewriteQuery(t.Context(), conn, statements[name], nil)
		if err == nil {
			_, err = conn.Prepare(t.Context(), "", sql)
		}
		if err != nil {
			faults = append(faults, fmt.Sprintf("%s: %v", name, err))
		}
	}
	return faults
}
