package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// code is what the programs' source defines about how they are run. The source
// is parsed; this module does not import it.
type code struct {
	// variables are the environment variables of cmd/internal/config, with
	// their defaults.
	variables map[string]string
	// serves are the paths that api and worker answer without a key.
	serves map[string]map[string]bool
	// passes are the commands of oneshot.
	passes []string
	// constants are the integer constants of cmd/internal/boot, including the
	// sizes of connection pools.
	constants map[string]int
	// instruments are the metrics that the packages make.
	instruments map[string]instrument
	// imports are, by folder, the folders of this module that its packages
	// import.
	imports map[string]map[string]bool
	// embedsTests are the files that embed a folder testdata.
	embedsTests []string
}

const module = "github.com/holdfast/holdfast/"

// others are variables that the Go runtime reads.
var others = []string{"GOMEMLIMIT", "GOGC", "GOMAXPROCS"}

func (c *code) reads(variable string) bool {
	_, ours := c.variables[variable]
	return ours || slices.Contains(others, variable) || strings.HasPrefix(variable, "OTEL_")
}

func readCode(root fs.FS) (*code, error) {
	c := &code{
		variables: map[string]string{}, serves: map[string]map[string]bool{}, constants: map[string]int{}, instruments: map[string]instrument{},
		imports: map[string]map[string]bool{},
	}
	for _, dir := range []struct {
		name string
		read func(file string, f *ast.File)
	}{
		{"cmd/internal/config", func(_ string, f *ast.File) { c.readTags(f) }},
		{"cmd/internal/boot", func(file string, f *ast.File) {
			c.readConstants(f)
			c.readPasses(f)
			if path.Base(file) == "server.go" {
				c.readPaths("worker", f)
			}
		}},
		{"internal/httpapi", func(_ string, f *ast.File) { c.readPaths("api", f) }},
		{"internal/lanes", func(_ string, f *ast.File) { c.readLanes(f) }},
	} {
		if err := eachFile(root, dir.name, dir.read); err != nil {
			return nil, err
		}
	}
	folders, err := fs.ReadDir(root, ".")
	if err != nil {
		return nil, err
	}
	packages := map[string][]*ast.File{}
	for _, folder := range folders {
		name := folder.Name()
		if _, err := fs.Stat(root, name+"/go.mod"); err == nil || !folder.IsDir() || strings.HasPrefix(name, ".") || name == "cloudrun" {
			continue
		}
		c.imports[name] = map[string]bool{}
		err := eachFile(root, name, func(file string, f *ast.File) {
			packages[path.Dir(file)] = append(packages[path.Dir(file)], f)
			c.readImports(name, f)
			c.readEmbeds(file, f)
		})
		if err != nil {
			return nil, err
		}
	}
	for _, files := range packages {
		c.readInstruments(files)
	}
	slices.Sort(c.passes)
	if c.variables["PORT"] == "" || len(c.passes) == 0 || len(c.serves["worker"]) == 0 || len(c.serves["api"]) == 0 {
		return nil, fmt.Errorf("the source does not define PORT, oneshot's passes or /livez in the form that cloudrun/check/code.go reads")
	}
	return c, nil
}

// eachFile parses the Go files under a folder, except tests.
func eachFile(root fs.FS, dir string, read func(string, *ast.File)) error {
	set := token.NewFileSet()
	return fs.WalkDir(root, dir, func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			return err
		}
		text, err := fs.ReadFile(root, name)
		if err != nil {
			return err
		}
		f, err := parser.ParseFile(set, name, text, parser.SkipObjectResolution|parser.ParseComments)
		if err != nil {
			return err
		}
		read(name, f)
		return nil
	})
}

// readTags records each variable with its default: `env:"PORT, default=8080"`.
func (c *code) readTags(f *ast.File) {
	ast.Inspect(f, func(n ast.Node) bool {
		field, ok := n.(*ast.Field)
		if !ok || field.Tag == nil {
			return true
		}
		text, err := strconv.Unquote(field.Tag.Value)
		if err != nil { // the parser has already accepted it
			return true
		}
		if tag, ok := reflect.StructTag(text).Lookup("env"); ok {
			name, value, _ := strings.Cut(tag, ", default=")
			c.variables[name] = value
		}
		return true
	})
}

// readConstants records each integer constant, and the sizes of connection
// pools.
func (c *code) readConstants(f *ast.File) {
	ast.Inspect(f, func(n ast.Node) bool {
		if literal, ok := n.(*ast.CompositeLit); ok {
			c.readPool(literal)
		}
		spec, ok := n.(*ast.ValueSpec)
		if !ok || len(spec.Names) != len(spec.Values) {
			return true
		}
		for i, value := range spec.Values {
			if n, ok := number(value); ok {
				c.constants[spec.Names[i].Name] = n
			}
		}
		return true
	})
}

// readLanes counts the constants of type Lane.
func (c *code) readLanes(f *ast.File) {
	for _, d := range f.Decls {
		constants, ok := d.(*ast.GenDecl)
		if !ok || constants.Tok != token.CONST {
			continue
		}
		for _, s := range constants.Specs {
			spec := s.(*ast.ValueSpec)
			if name, ok := spec.Type.(*ast.Ident); ok && name.Name == "Lane" {
				c.constants["lanes"] += len(spec.Names)
			}
		}
	}
}

// readPool records the size of a pool of connections, pool{name: "recover",
// conns: 4}, as "pool recover".
func (c *code) readPool(literal *ast.CompositeLit) {
	name, conns := "", 0
	for _, element := range literal.Elts {
		pair, ok := element.(*ast.KeyValueExpr)
		if !ok {
			continue
		}
		key, ok := pair.Key.(*ast.Ident)
		if !ok {
			continue
		}
		switch key.Name {
		case "name":
			texts(pair.Value, func(text string) { name = text })
		case "conns":
			conns, _ = number(pair.Value) // 0 if it is computed
		}
	}
	if name != "" && conns > 0 {
		c.constants["pool "+name] = conns
	}
}

func number(e ast.Expr) (int, bool) {
	literal, ok := e.(*ast.BasicLit)
	if !ok || literal.Kind != token.INT {
		return 0, false
	}
	n, err := strconv.Atoi(literal.Value)
	return n, err == nil
}

// texts calls do with each text in the file.
func texts(n ast.Node, do func(string)) {
	ast.Inspect(n, func(n ast.Node) bool {
		if literal, ok := n.(*ast.BasicLit); ok && literal.Kind == token.STRING {
			if text, err := strconv.Unquote(literal.Value); err == nil {
				do(text)
			}
		}
		return true
	})
}

// health are the paths that report the state of a program.
var health = []string{"/livez", "/readyz", "/health"}

func (c *code) readPaths(program string, f *ast.File) {
	texts(f, func(text string) {
		text = strings.TrimPrefix(text, "GET ")
		if slices.Contains(health, text) {
			if c.serves[program] == nil {
				c.serves[program] = map[string]bool{}
			}
			c.serves[program][text] = true
		}
	})
}

// readPasses records the names in the table Passes.
func (c *code) readPasses(f *ast.File) {
	ast.Inspect(f, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || spec.Names[0].Name != "Passes" || len(spec.Values) != 1 {
			return true
		}
		ast.Inspect(spec.Values[0], func(n ast.Node) bool {
			pair, ok := n.(*ast.KeyValueExpr)
			if !ok {
				return true
			}
			if key, ok := pair.Key.(*ast.Ident); ok && key.Name == "Name" {
				texts(pair.Value, func(text string) { c.passes = append(c.passes, text) })
			}
			return false
		})
		return false
	})
}

// readEmbeds records whether a file embeds a folder testdata.
func (c *code) readEmbeds(file string, f *ast.File) {
	for _, group := range f.Comments {
		for _, line := range group.List {
			if strings.HasPrefix(line.Text, "//go:embed ") && strings.Contains(line.Text, "testdata") {
				c.embedsTests = append(c.embedsTests, file)
			}
		}
	}
}

// readImports records which folders of this module a file imports.
func (c *code) readImports(folder string, f *ast.File) {
	for _, spec := range f.Imports {
		if own, ok := strings.CutPrefix(strings.Trim(spec.Path.Value, `"`), module); ok {
			imported, _, _ := strings.Cut(own, "/")
			c.imports[folder][imported] = true
		}
	}
}
