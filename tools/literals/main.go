// Command literals copies the string literals of Go files, so that the prose
// check reads error messages, log lines and the messages of tests, too. Of each
// file it writes one with the same name and .txt added, in which the text of a
// literal is on the line that it has in the source.
//
//	literals DIRECTORY FILE...
package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

func main() {
	if err := run(os.Args[1], os.Args[2:]); err != nil {
		fmt.Fprintln(os.Stderr, "literals:", err)
		os.Exit(1)
	}
}

func run(directory string, files []string) error {
	for _, file := range files {
		lines, err := literals(file)
		if err != nil {
			return err
		}
		path := filepath.Join(directory, file+".txt")
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, []byte(strings.Join(lines, "\n")), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// other is a literal that is not prose: SQL, JSON, a regular expression.
var other = regexp.MustCompile(`(?m)^\s*(--|[A-Z]+ (TABLE|INTO|FROM|INDEX|LOCAL|SET|SCHEMA)\b|[{\[<\\^(])|\b(SELECT|UPDATE|DELETE FROM|WHERE|VALUES|ORDER BY)\b|[=>] ?'`)

// literals returns the lines of a file without all but its prose.
func literals(file string) (lines []string, err error) {
	files := token.NewFileSet()
	parsed, err := parser.ParseFile(files, file, nil, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	lines = make([]string, files.File(parsed.FileStart).LineCount())
	ast.Inspect(parsed, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.ImportSpec:
			return false
		case *ast.Field:
			n.Tag = nil
		case *ast.BasicLit:
			if n.Kind != token.STRING {
				return false
			}
			text, err := strconv.Unquote(n.Value)
			if err != nil || len(strings.Fields(text)) < 3 || other.MatchString(text) {
				return false
			}
			add(lines[files.Position(n.Pos()).Line-1:], n.Value[0] == '`', text)
		}
		return true
	})
	return lines, nil
}

// add writes a literal to its lines. It ends like a sentence, so that it is
// none with the next one.
func add(lines []string, raw bool, text string) {
	if !raw {
		text = strings.ReplaceAll(text, "\n", " ")
	}
	for i, line := range strings.Split(strings.TrimRight(text, "\n .:")+".", "\n") {
		lines[i] = strings.TrimSpace(lines[i] + " " + line)
	}
}
