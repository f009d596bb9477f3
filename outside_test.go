package holdfast_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast/holdfast/internal/pgtest"
)

const outsideMain = `package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast"
)

func main() {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	if err == nil {
		err = holdfast.Migrate(ctx, pool)
	}
	if err != nil {
		panic(err)
	}
	committed, err := sell(ctx, pool)
	fmt.Println(len(committed), err)
}

`

// The documented program builds in an empty module that knows only where the
// repository is, and runs on a database. It is compiled as the Dockerfile
// compiles the programs, so that little of it is compiled for this test.
func TestOutsideTheRepository(t *testing.T) {
	t.Parallel()
	root, err := os.Getwd()
	pgtest.Must(t, err)
	example, err := os.ReadFile("example_test.go")
	pgtest.Must(t, err)
	_, sell, found := strings.Cut(string(example), "\nfunc sell(")
	if !found {
		t.Fatal("example_test.go has no func sell")
	}
	sums, err := os.ReadFile("go.sum")
	pgtest.Must(t, err)
	folder := t.TempDir()
	pgtest.Must(t, os.WriteFile(filepath.Join(folder, "main.go"), []byte(outsideMain+"func sell("+sell), 0o600))
	pgtest.Must(t, os.WriteFile(filepath.Join(folder, "go.sum"), sums, 0o600)) // what go mod tidy would look up
	program := filepath.Join(folder, "shop")
	for _, args := range [][]string{
		{"go", "mod", "init", "example.com/shop"},
		{"go", "mod", "edit", "-require=" + module + "@v0.0.0", "-replace=" + module + "=" + root},
		{"go", "build", "-mod=mod", "-trimpath", "-buildvcs=false", "-o", program, "."},
		{program},
	} {
		cmd := exec.CommandContext(t.Context(), args[0], args[1:]...)
		cmd.Dir = folder
		cmd.Env = append(cmd.Environ(), "CGO_ENABLED=0", "GOFLAGS=", "GOWORK=off", "DATABASE_URL="+pgtest.URL(t))
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %v\n%s", args, err, out)
		}
		if args[0] == program && !strings.Contains(string(out), "1 <nil>") {
			t.Errorf("the program printed\n%s", out)
		}
	}
}
