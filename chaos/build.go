package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

const module = "github.com/holdfast/holdfast"

// The versions of the programs, named by the folder for their binaries. Without
// an upgrade there is only one.
const (
	newVersion = "new"
	oldVersion = "old"
)

// sameRevision, in place of a revision, upgrades from the checkout to itself
// with one additional migration.
const sameRevision = "."

// program is the path of a program that was built.
func (t *harness) program(version, kind string) string { return filepath.Join(t.dir, version, kind) }

// first is the version that runs before an upgrade.
func (t *harness) first() string {
	if t.upgrade != "" {
		return oldVersion
	}
	return newVersion
}

// build compiles the programs, and for an upgrade those of the older revision
// too.
func (t *harness) build(ctx context.Context) error {
	switch t.upgrade {
	case "":
		return t.compile(ctx, newVersion, "")
	case sameRevision:
		overlay, err := t.overlay(ctx)
		if err != nil {
			return err
		}
		if err := t.compile(ctx, oldVersion, ""); err != nil {
			return err
		}
		return t.compile(ctx, newVersion, "", "-overlay", overlay)
	}
	if err := t.compileRevision(ctx); err != nil {
		return err
	}
	return t.compile(ctx, newVersion, "")
}

// sources are the programs that a storm needs.
func (t *harness) sources() []string {
	programs := []string{module + "/cmd/api", module + "/cmd/worker", module + "/cmd/oneshot"}
	if t.cells > 0 {
		programs = append(programs, module+"/cmd/holdfast")
	}
	return programs
}

// compile builds a version from the source in a folder of the module, as the
// Dockerfile does; "" is the current folder.
func (t *harness) compile(ctx context.Context, version, source string, more ...string) error {
	t.printf("building the %s programs", version)
	args := append([]string{"build", "-trimpath", "-o", t.program(version, "") + string(filepath.Separator)}, more...)
	if t.race {
		args = append(args, "-race")
	}
	cmd := exec.CommandContext(ctx, "go", append(args, t.sources()...)...)
	cmd.Dir = source
	if !t.race {
		cmd.Env = append(cmd.Environ(), "CGO_ENABLED=0")
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build the programs (from inside the module): %w\n%s", err, out)
	}
	return nil
}

// compileRevision builds the older version from a git worktree, which it
// removes afterwards.
func (t *harness) compileRevision(ctx context.Context) error {
	tree := filepath.Join(t.dir, "tree")
	if err := git(ctx, "worktree", "add", "--quiet", "--detach", tree, t.upgrade); err != nil {
		return err
	}
	err := t.compile(ctx, oldVersion, tree, "-buildvcs=false")
	if removed := git(context.WithoutCancel(ctx), "worktree", "remove", "--force", tree); err == nil {
		err = removed
	}
	return err
}

func git(ctx context.Context, args ...string) error {
	out, err := exec.CommandContext(ctx, "git", args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("git %s: %w\n%s", strings.Join(args, " "), err, out)
	}
	return nil
}

// probe is the migration that an upgrade from the checkout to itself adds. It
// takes the strongest lock on the table that calls and decisions write.
const probe = `-- +goose Up
ALTER TABLE reservation_requests ADD COLUMN upgrade_probe text;

-- +goose Down
ALTER TABLE reservation_requests DROP COLUMN upgrade_probe;
`

// overlay writes an overlay file, with which go build adds the probe to the
// checkout.
func (t *harness) overlay(ctx context.Context) (path string, err error) {
	root, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}").Output()
	if err != nil {
		return "", fmt.Errorf("find the module: %w", err)
	}
	migration := filepath.Join(t.dir, "probe.sql")
	if err := os.WriteFile(migration, []byte(probe), 0o600); err != nil {
		return "", err
	}
	content, err := json.Marshal(map[string]any{
		"Replace": map[string]string{filepath.Join(strings.TrimSpace(string(root)), "migrations", "99999_probe.sql"): migration},
	})
	if err != nil {
		return "", err
	}
	path = filepath.Join(t.dir, "overlay.json")
	return path, os.WriteFile(path, content, 0o600)
}
