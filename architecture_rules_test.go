package holdfast_test

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/build"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// source is one Go file.
type source struct {
	path    string // from the module's root, with slashes
	dir     string
	test    bool
	lines   int
	fset    *token.FileSet
	file    *ast.File
	imports map[string]string // by the name the file knows them under
}

// rules are what TestArchitecture asks of a tree; each returns one line for
// each fault it finds.
var rules = []struct {
	name string
	find func([]source) []string
}{
	{"every package has its layer, and imports point down", eachFile(findImportsUp)},
	{"heavy packages stay where they are allowed", eachFile(findUnconfined)},
	{"the kernel links Postgres and ids only", eachFile(findHeavyKernel)},
	{"the environment is read by programs", eachFile(findEnvironment)},
	{"deadlines are the database's", eachFile(findWallClock)},
	{"one package writes each table", eachFile(findForeignWrites)},
	{"SQL names tables of packages below only", eachFile(findReadsUp)},
	{"the sweeper has no SQL of its own", eachFile(findSQL)},
	{"verbs in the caller's transaction state isolation levels", eachFile(findWithoutLevel)},
	{"every package has a doc.go", findUndocumented},
	{"no drawer packages", findDrawers},
	{"files and functions are short", eachFile(findLong)},
	{"tests neither sleep nor skip", eachFile(findSleepers)},
	{"tests do not decide by a duration", eachFile(findTimed)},
	{"budgets of lines", findOverBudget},
}

// readTree parses every Go file under root that this platform builds. It leaves
// out nested modules, except those of nestedModules.
func readTree(root string) ([]source, error) {
	var tree []source
	err := filepath.WalkDir(root, func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			return skipDir(root, name, entry.Name())
		}
		if built, err := build.Default.MatchFile(filepath.Split(name)); err != nil || !built || !strings.HasSuffix(name, ".go") {
			return err
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(root, name)
		if err != nil {
			return err
		}
		f, err := parse(filepath.ToSlash(relative), text)
		tree = append(tree, f)
		return err
	})
	return tree, err
}

// skipDir leaves out the folders that the go command leaves out, and the
// modules nested in this one that nestedModules does not list.
func skipDir(root, name, base string) error {
	if name == root {
		return nil
	}
	if base == "testdata" || base == "node_modules" || strings.HasPrefix(base, ".") || strings.HasPrefix(base, "_") {
		return fs.SkipDir
	}
	if _, err := os.Stat(filepath.Join(name, "go.mod")); err == nil && !slices.Contains(nestedModules, base) {
		return fs.SkipDir
	}
	return nil
}

func parse(name string, text []byte) (source, error) {
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, name, text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return source{}, err
	}
	f := source{
		path: name, dir: path.Dir(name), test: strings.HasSuffix(name, "_test.go"),
		lines: bytes.Count(text, []byte("\n")), fset: fset, file: file, imports: map[string]string{},
	}
	for _, spec := range file.Imports {
		imported := unquote(spec.Path)
		known := path.Base(imported)
		if spec.Name != nil {
			known = spec.Name.Name
		}
		if known == "_" || f.imports[known] != "" {
			known = imported // reached by no selector, but imported all the same
		}
		f.imports[known] = imported
	}
	return f, nil
}

func eachFile(find func(source) []string) func([]source) []string {
	return func(tree []source) (findings []string) {
		for _, f := range tree {
			findings = append(findings, find(f)...)
		}
		return findings
	}
}

// matches reports whether the package in dir is named by one of patterns.
func matches(patterns []string, dir string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool {
		under, all := strings.CutSuffix(pattern, "/...")
		return dir == under || all && strings.HasPrefix(dir, under+"/")
	})
}

// layerOf returns the index of dir in layers and of its entry there, or -1.
func layerOf(dir string) (layer, entry int) {
	for i, packages := range layers {
		for j, pattern := range packages {
			if matches([]string{pattern}, dir) {
				return i, j
			}
		}
	}
	return -1, -1
}

func findImportsUp(f source) (findings []string) {
	if f.test {
		return nil
	}
	layer, entry := layerOf(f.dir)
	if layer < 0 {
		return []string{fmt.Sprintf("%s: package %s has no line in the table of layers: decide what it may import", f.path, f.dir)}
	}
	for _, imported := range slices.Sorted(maps.Values(f.imports)) {
		below, ours := strings.CutPrefix(imported, module+"/")
		if !ours {
			continue
		}
		switch l, e := layerOf(below); {
		case l < 0:
			findings = append(findings, fmt.Sprintf("%s imports %s, which has no line in the table of layers", f.path, below))
		case l > layer:
			findings = append(findings, fmt.Sprintf("%s imports %s, which is above it", f.path, below))
		case l == layer && e != entry:
			findings = append(findings, fmt.Sprintf("%s imports its sibling %s", f.path, below))
		}
	}
	return findings
}

func findUnconfined(f source) (findings []string) {
	if f.test {
		return nil
	}
	for _, imported := range slices.Sorted(maps.Values(f.imports)) {
		for _, c := range confined {
			begins := imported == c.path || strings.HasPrefix(imported, strings.TrimSuffix(c.path, "/")+"/")
			if begins && !matches(c.to, f.dir) {
				findings = append(findings, fmt.Sprintf("%s imports %s, which is for %v and tests only", f.path, imported, c.to))
			}
		}
	}
	return findings
}

// findWithoutLevel checks exported functions whose name ends in Tx.
func findWithoutLevel(f source) (findings []string) {
	if f.test || !matches(withLevels, f.dir) {
		return nil
	}
	for _, decl := range f.file.Decls {
		verb, ok := decl.(*ast.FuncDecl)
		if !ok || !verb.Name.IsExported() || !strings.HasSuffix(verb.Name.Name, "Tx") {
			continue
		}
		contract := strings.Join(strings.Fields(verb.Doc.Text()), " ")
		if !strings.Contains(contract, "isolation level") && !strings.Contains(contract, "READ COMMITTED") {
			findings = append(findings, fmt.Sprintf("%s: %s does not say at which isolation levels it is right", f.at(verb), verb.Name.Name))
		}
	}
	return findings
}

func findHeavyKernel(f source) (findings []string) {
	if f.test || !matches(lean, f.dir) {
		return nil
	}
	for _, imported := range slices.Sorted(maps.Values(f.imports)) {
		first, _, _ := strings.Cut(imported, "/")
		allowed := !strings.Contains(first, ".") || slices.ContainsFunc(leanImports, func(may string) bool {
			return imported == may || strings.HasPrefix(imported, may+"/")
		})
		if !allowed {
			findings = append(findings, fmt.Sprintf("%s imports %s: the kernel depends on %v only", f.path, imported, leanImports))
		}
	}
	return findings
}

// uses returns where f mentions one of names of the package at imported.
func uses(f source, imported string, names ...string) (findings []string) {
	ast.Inspect(f.file, func(n ast.Node) bool {
		selector, ok := n.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		if x, ok := selector.X.(*ast.Ident); ok && f.imports[x.Name] == imported && slices.Contains(names, selector.Sel.Name) {
			findings = append(findings, fmt.Sprintf("%s uses %s.%s", f.at(n), imported, selector.Sel.Name))
		}
		return true
	})
	return findings
}

func findEnvironment(f source) []string {
	if f.test || matches(withEnvironment, f.dir) {
		return nil
	}
	return append(uses(f, "os", "Getenv", "LookupEnv", "Environ", "ExpandEnv", "Setenv", "Unsetenv"),
		uses(f, "syscall", "Getenv", "Environ")...)
}

func findWallClock(f source) []string {
	if f.test || !matches(withoutClock, f.dir) {
		return nil
	}
	return uses(f, "time", "Now", "Since", "Until")
}

// write finds the table of a writing statement. Keywords are upper case and
// names lower case by the house's rules, so FOR UPDATE OF and DO UPDATE SET are
// none.
var write = regexp.MustCompile(`\b(?:INSERT\s+INTO|UPDATE|DELETE\s+FROM|MERGE\s+INTO|TRUNCATE(?:\s+TABLE)?)\s+(?:ONLY\s+)?"?([a-z_][a-z0-9_.]*)`)

func findForeignWrites(f source) (findings []string) {
	if f.test || matches(ownersExempt, f.dir) {
		return nil
	}
	check := func(n ast.Node, table string) {
		switch owner := owners[table]; owner {
		case f.dir:
		case "":
			findings = append(findings, fmt.Sprintf("%s writes %s, a table without an owner", f.at(n), table))
		default:
			findings = append(findings, fmt.Sprintf("%s writes %s, which only package %s may", f.at(n), table, owner))
		}
	}
	ast.Inspect(f.file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.BasicLit:
			for _, found := range write.FindAllStringSubmatch(literal(n), -1) {
				check(n, found[1])
			}
		case *ast.CallExpr: // CopyFrom names its table in an identifier
			if selector, ok := n.Fun.(*ast.SelectorExpr); ok && selector.Sel.Name == "CopyFrom" {
				for _, table := range identifiers(n) {
					check(n, table)
				}
			}
		}
		return true
	})
	return findings
}

// clause finds what follows a keyword that names tables: all up to the next
// keyword or parenthesis. named finds a table in it, before its alias.
var (
	clause = regexp.MustCompile(`\b(?:FROM|JOIN|INTO|UPDATE|USING)\s+(?:ONLY\s+)?([a-z_][a-z0-9_., \n\t]*)`)
	named  = regexp.MustCompile(`(?:^|,)\s*([a-z_]+)`)
)

// findReadsUp finds tables of packages that this one may not import, named in
// its SQL.
func findReadsUp(f source) (findings []string) {
	layer, _ := layerOf(f.dir)
	if f.test || layer < 0 || matches(ownersExempt, f.dir) {
		return nil
	}
	ast.Inspect(f.file, func(n ast.Node) bool {
		l, ok := n.(*ast.BasicLit)
		if !ok {
			return true
		}
		seen := map[string]bool{}
		for _, name := range tablesIn(literal(l)) {
			owner := owners[name]
			if owner == "" || owner == f.dir || seen[name] {
				continue
			}
			seen[name] = true
			if above, _ := layerOf(owner); above >= layer {
				findings = append(findings, fmt.Sprintf("%s names %s, a table of package %s, which is not below it", f.at(n), name, owner))
			}
		}
		return true
	})
	return findings
}

// tablesIn returns the names behind the clauses of a statement that name
// tables.
func tablesIn(sql string) (names []string) {
	for _, after := range clause.FindAllStringSubmatch(sql, -1) {
		for _, found := range named.FindAllStringSubmatch(after[1], -1) {
			names = append(names, found[1])
		}
	}
	return names
}

// identifiers returns the strings of every pgx.Identifier literal among the
// arguments of call.
func identifiers(call *ast.CallExpr) (names []string) {
	for _, argument := range call.Args {
		composite, ok := argument.(*ast.CompositeLit)
		if !ok {
			continue
		}
		for _, element := range composite.Elts {
			if l, ok := element.(*ast.BasicLit); ok {
				names = append(names, literal(l))
			}
		}
	}
	return names
}

var statement = regexp.MustCompile(`\b(SELECT|INSERT INTO|UPDATE|DELETE FROM|WITH)\s`)

func findSQL(f source) (findings []string) {
	if f.test || !matches(withoutSQL, f.dir) {
		return nil
	}
	ast.Inspect(f.file, func(n ast.Node) bool {
		if l, ok := n.(*ast.BasicLit); ok && statement.MatchString(literal(l)) {
			findings = append(findings, fmt.Sprintf("%s holds SQL: it belongs to the package that owns the table", f.at(n)))
		}
		return true
	})
	return findings
}

func findUndocumented(tree []source) (findings []string) {
	documented := map[string]bool{}
	for _, f := range tree {
		if f.test {
			continue
		}
		if path.Base(f.path) != "doc.go" {
			documented[f.dir] = documented[f.dir] || false
			continue
		}
		documented[f.dir] = true
		want := "Package " + f.file.Name.Name + " "
		if f.file.Name.Name == "main" {
			want = "Command " + path.Base(f.dir) + " "
		}
		if !strings.HasPrefix(f.file.Doc.Text(), want) {
			findings = append(findings, fmt.Sprintf("%s does not begin with %q", f.path, "// "+want))
		}
	}
	for _, dir := range slices.Sorted(maps.Keys(documented)) {
		if !documented[dir] {
			findings = append(findings, fmt.Sprintf("package %s has no doc.go: what it owns, what it never does, its invariants", dir))
		}
	}
	return findings
}

func findDrawers(tree []source) (findings []string) {
	for _, f := range tree {
		for _, name := range []string{path.Base(f.dir), strings.TrimSuffix(f.file.Name.Name, "_test")} {
			drawer := slices.Contains(drawers, name) || slices.ContainsFunc(drawerSuffixes, func(suffix string) bool {
				return strings.HasSuffix(name, suffix)
			})
			if finding := f.dir + ": a package called " + name + " is a drawer"; drawer && !slices.Contains(findings, finding) {
				findings = append(findings, finding)
			}
		}
	}
	return findings
}

func findLong(f source) (findings []string) {
	limit := fileLines
	if f.test {
		limit = testFileLines
	}
	if f.lines > limit && !ast.IsGenerated(f.file) {
		findings = append(findings, fmt.Sprintf("%s has %d lines, at most %d: split it", f.path, f.lines, limit))
	}
	for _, declaration := range f.file.Decls {
		function, ok := declaration.(*ast.FuncDecl)
		if !ok {
			continue
		}
		limit := functionLines
		if f.file.Name.Name == "main" && function.Name.Name == "main" {
			limit = mainLines
		}
		if lines := f.fset.Position(function.End()).Line - f.fset.Position(function.Pos()).Line + 1; lines > limit {
			findings = append(findings, fmt.Sprintf("%s: %s has %d lines, at most %d: split it", f.at(function), function.Name.Name, lines, limit))
		}
	}
	return findings
}

func findSleepers(f source) (findings []string) {
	if !f.test && f.imports["testing"] == "" {
		return nil
	}
	findings = uses(f, "time", "Sleep")
	ast.Inspect(f.file, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		if method, ok := call.Fun.(*ast.SelectorExpr); ok && slices.Contains([]string{"Skip", "Skipf", "SkipNow"}, method.Sel.Name) {
			findings = append(findings, fmt.Sprintf("%s skips: what a test needs and lacks is a failure", f.at(n)))
		}
		return true
	})
	return findings
}

// durations are the names that tests give to what they measured.
var durations = []string{"took", "elapsed", "lasted"}

// findTimed finds comparisons of a measured time in tests: a busy machine fails
// them without a fault of the code. Within synctest.Test time is not real.
func findTimed(f source) (findings []string) {
	if !f.test {
		return nil
	}
	for _, decl := range f.file.Decls {
		measured := slices.Clone(durations)
		ast.Inspect(decl, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.CallExpr:
				fun, ok := n.Fun.(*ast.SelectorExpr)
				return !ok || !f.isFrom(fun, "testing/synctest", "Test")
			case *ast.AssignStmt:
				if name, ok := n.Lhs[0].(*ast.Ident); ok && f.measures(n.Rhs[0], nil) {
					measured = append(measured, name.Name)
				}
			case *ast.BinaryExpr:
				ordered := slices.Contains([]token.Token{token.LSS, token.LEQ, token.GTR, token.GEQ}, n.Op)
				if ordered && (f.measures(n.X, measured) || f.measures(n.Y, measured)) {
					findings = append(findings, fmt.Sprintf("%s compares how long something took: wait for a signal or a lock instead", f.at(n)))
				}
			}
			return true
		})
	}
	return findings
}

// measures reports whether e contains a call of time.Since or one of the names.
func (f source) measures(e ast.Expr, names []string) (found bool) {
	ast.Inspect(e, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncLit:
			return false
		case *ast.Ident:
			found = found || slices.Contains(names, n.Name)
		case *ast.SelectorExpr:
			found = found || f.isFrom(n, "time", "Since")
		}
		return !found
	})
	return found
}

func (f source) isFrom(selector *ast.SelectorExpr, imported, name string) bool {
	x, ok := selector.X.(*ast.Ident)
	return ok && f.imports[x.Name] == imported && selector.Sel.Name == name
}

func findOverBudget(tree []source) (findings []string) {
	for _, b := range budgets {
		sum := 0
		for _, pattern := range b.files {
			exists, watched := false, false
			for _, f := range tree {
				exists = exists || f.dir == path.Dir(pattern) && !f.test && path.Base(f.path) != "doc.go"
				if ok, _ := path.Match(pattern, f.path); ok && !f.test {
					watched, sum = true, sum+f.lines
				}
			}
			if exists && !watched {
				findings = append(findings, fmt.Sprintf("%s: no file matches %s, so the budget watches nothing there", b.name, pattern))
			}
		}
		if sum > b.lines {
			findings = append(findings, fmt.Sprintf("%s: %d lines in %v, at most %d", b.name, sum, b.files, b.lines))
		}
	}
	return findings
}

// at returns the position of n as file:line.
func (f source) at(n ast.Node) string {
	return fmt.Sprintf("%s:%d", f.path, f.fset.Position(n.Pos()).Line)
}

// literal returns the text of a string literal, and "" of any other.
func literal(l *ast.BasicLit) string {
	if l.Kind != token.STRING {
		return ""
	}
	return unquote(l)
}

func unquote(l *ast.BasicLit) string {
	text, err := strconv.Unquote(l.Value)
	if err != nil {
		return ""
	}
	return text
}
