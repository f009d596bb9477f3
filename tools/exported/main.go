package main

import (
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

func main() {
	limit := flag.Int("max", 450, "how many names may be exported")
	list := flag.Bool("list", false, "print the names, not only their number")
	flag.Parse()
	names, err := exported(flag.Arg(0))
	if err != nil {
		fmt.Fprintln(os.Stderr, "exported:", err)
		os.Exit(1)
	}
	sum := 0
	for _, folder := range slices.Sorted(maps.Keys(names)) {
		sum += len(names[folder])
		fmt.Printf("%5d %s\n", len(names[folder]), folder)
		if *list {
			fmt.Println("      " + strings.Join(slices.Sorted(slices.Values(names[folder])), " "))
		}
	}
	fmt.Printf("%5d exported names, at most %d\n", sum, *limit)
	if sum > *limit {
		os.Exit(1)
	}
}

// exported returns the exported names of each package below root.
func exported(root string) (map[string][]string, error) {
	names := map[string][]string{}
	err := filepath.WalkDir(root, func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			if name != root && hidden(name) {
				return fs.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil || file.Name.Name == "main" {
			return err
		}
		folder, err := filepath.Rel(root, filepath.Dir(name))
		if err != nil {
			return err
		}
		for _, declaration := range file.Decls {
			names[folder] = append(names[folder], declared(declaration)...)
		}
		return nil
	})
	return names, err
}

// hidden reports whether no other module imports the packages of a folder. The
// client of the HTTP API is not counted either: its types are those of the
// document, and its verbs those of the library.
func hidden(folder string) bool {
	base := filepath.Base(folder)
	_, err := os.Stat(filepath.Join(folder, "go.mod"))
	return err == nil || strings.HasPrefix(base, ".") || slices.Contains([]string{"bin", "client", "cmd", "examples", "internal", "node_modules", "testdata"}, base)
}

// declared returns the exported names of a declaration.
func declared(declaration ast.Decl) (names []string) {
	switch d := declaration.(type) {
	case *ast.FuncDecl:
		of := ""
		if d.Recv != nil {
			of = receiver(d.Recv.List[0].Type)
		}
		if d.Name.IsExported() && (of == "" || ast.IsExported(of)) {
			names = append(names, strings.TrimPrefix(of+"."+d.Name.Name, "."))
		}
	case *ast.GenDecl:
		for _, spec := range d.Specs {
			var found []*ast.Ident
			switch s := spec.(type) {
			case *ast.TypeSpec:
				found = []*ast.Ident{s.Name}
			case *ast.ValueSpec:
				found = s.Names
			}
			for _, name := range found {
				if name.IsExported() {
					names = append(names, name.Name)
				}
			}
		}
	}
	return names
}

// receiver returns the name of a method's type, without its pointer and its
// type parameters.
func receiver(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return receiver(e.X)
	case *ast.IndexExpr:
		return receiver(e.X)
	case *ast.IndexListExpr:
		return receiver(e.X)
	case *ast.Ident:
		return e.Name
	}
	return ""
}
