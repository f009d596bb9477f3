package httpapi_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// someOf are the fields that have only some of their type's values, with the
// values that they never have.
var someOf = map[string][]string{
	"acceptedJSON.Status":    {"done", "failed"},
	"cartRequestJSON.Status": {"done"},
}

// The enum of a field whose type has constants lists all of them.
func TestEnumsAreComplete(t *testing.T) {
	t.Parallel()
	checked := 0
	for _, dir := range []string{".", "../ops"} {
		for _, f := range parseDir(t, dir) {
			ast.Inspect(f, func(n ast.Node) bool {
				spec, ok := n.(*ast.TypeSpec)
				if !ok {
					return true
				}
				structure, ok := spec.Type.(*ast.StructType)
				if !ok {
					return true
				}
				for _, field := range structure.Fields.List {
					values, ok := enumOf(field)
					named, isNamed := elementOf(field.Type).(*ast.SelectorExpr)
					if !ok || !isNamed {
						continue
					}
					name := spec.Name.Name + "." + field.Names[0].Name
					all := constantsOf(t, dirOf(f, named), named.Sel.Name)
					want := slices.DeleteFunc(slices.Clone(all), func(v string) bool { return slices.Contains(someOf[name], v) })
					slices.Sort(values)
					slices.Sort(want)
					if len(all) == 0 || !slices.Equal(values, want) {
						t.Errorf("%s has the enum %v, want %v of the values %v", name, values, want, all)
					}
					checked++
				}
				return true
			})
		}
	}
	if checked < 15 {
		t.Errorf("%d fields were checked", checked)
	}
}

// dirOf returns the folder of the package of a name that a file of the module uses.
func dirOf(f *ast.File, name *ast.SelectorExpr) string {
	for _, i := range f.Imports {
		path, _ := strconv.Unquote(i.Path.Value)
		if inModule, ok := strings.CutPrefix(path, "github.com/holdfast/holdfast/"); ok && filepath.Base(path) == name.X.(*ast.Ident).Name {
			return "../../" + inModule
		}
	}
	return ""
}

func enumOf(field *ast.Field) (values []string, ok bool) {
	if field.Tag == nil {
		return nil, false
	}
	tag, _ := strconv.Unquote(field.Tag.Value)
	list, ok := reflect.StructTag(tag).Lookup("enum")
	return strings.Split(list, ","), ok
}

// elementOf is the type that a pointer or a slice is of.
func elementOf(e ast.Expr) ast.Expr {
	switch e := e.(type) {
	case *ast.StarExpr:
		return elementOf(e.X)
	case *ast.ArrayType:
		return elementOf(e.Elt)
	}
	return e
}

// constantsOf returns the values of a package's constants of a type, which may be
// an alias. A constant may be converted from one of another package.
func constantsOf(t *testing.T, dir, typeName string) (values []string) {
	t.Helper()
	eachSpec(t, dir, func(f *ast.File, spec ast.Spec) {
		switch s := spec.(type) {
		case *ast.TypeSpec:
			if alias, ok := s.Type.(*ast.SelectorExpr); ok && s.Assign.IsValid() && s.Name.Name == typeName {
				values = append(values, constantsOf(t, dirOf(f, alias), alias.Sel.Name)...)
			}
		case *ast.ValueSpec:
			if typed, ok := s.Type.(*ast.Ident); ok && typed.Name == typeName {
				values = append(values, valueOf(t, f, s.Values[0]))
			}
		}
	})
	return values
}

// valueOf returns the value of a constant: a literal, or one of another package
// that is converted.
func valueOf(t *testing.T, f *ast.File, e ast.Expr) (value string) {
	t.Helper()
	switch e := e.(type) {
	case *ast.BasicLit:
		value, _ = strconv.Unquote(e.Value)
	case *ast.CallExpr:
		of := e.Args[0].(*ast.SelectorExpr)
		eachSpec(t, dirOf(f, of), func(f *ast.File, spec ast.Spec) {
			if s, ok := spec.(*ast.ValueSpec); ok && s.Names[0].Name == of.Sel.Name && len(s.Values) > 0 {
				value = valueOf(t, f, s.Values[0])
			}
		})
	}
	return value
}

func eachSpec(t *testing.T, dir string, do func(*ast.File, ast.Spec)) {
	t.Helper()
	for _, f := range parseDir(t, dir) {
		for _, d := range f.Decls {
			if g, ok := d.(*ast.GenDecl); ok {
				for _, spec := range g.Specs {
					do(f, spec)
				}
			}
		}
	}
}

func parseDir(t *testing.T, dir string) (files []*ast.File) {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil || len(names) == 0 {
		t.Fatalf("no Go files in %s: %v", dir, err)
	}
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, f)
	}
	return files
}
