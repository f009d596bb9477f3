package pgdev

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// ErrNoPostgres says that no way to find Postgres led anywhere, and what to install.
var ErrNoPostgres = errors.New("no Postgres programs found: install them (Debian, Ubuntu: apt-get install postgresql; " +
	"Fedora, Red Hat: dnf install postgresql-server; macOS: brew install postgresql), or set PG_BIN to the folder that holds initdb, " +
	"or install npm, with which they are downloaded")

// A way looks for the programs in one place. It returns nothing when the place does not exist, and an error when the
// place was asked for by name and is no good.
type way func(ctx context.Context, a account) (programs, error)

// finder tries its ways in order; the zero value has all of them.
type finder struct{ ways []way }

func (f finder) find(ctx context.Context, a account) (programs, error) {
	ways := f.ways
	if ways == nil {
		ways = []way{fromEnvironment, fromPath, fromConfig, fromDistribution, fromPackage}
	}
	for _, look := range ways {
		p, err := look(ctx, a)
		if err != nil || p.bin != "" {
			return p, err
		}
	}
	return programs{}, ErrNoPostgres
}

func fromEnvironment(_ context.Context, a account) (programs, error) {
	bin := os.Getenv("PG_BIN")
	if bin == "" {
		return programs{}, nil
	}
	bin, err := filepath.Abs(bin)
	if err != nil {
		return programs{}, err
	}
	if !holdsPrograms(bin) {
		return programs{}, fmt.Errorf("PG_BIN is %s, which does not hold both initdb and postgres", bin)
	}
	if blocked := a.blockedAt(bin); blocked != "" {
		return programs{}, fmt.Errorf("PG_BIN is %s, which the user %s cannot reach because of %s (Postgres refuses to run as root)", bin, a.name, blocked)
	}
	return programs{bin: bin}, nil
}

func fromPath(_ context.Context, a account) (programs, error) {
	initdb, err := exec.LookPath("initdb")
	if err != nil {
		return programs{}, nil
	}
	if initdb, err = filepath.EvalSymlinks(initdb); err != nil {
		return programs{}, nil
	}
	return usable(a, filepath.Dir(initdb)), nil
}

func fromConfig(ctx context.Context, a account) (programs, error) {
	out, err := exec.CommandContext(ctx, "pg_config", "--bindir").Output()
	if err != nil {
		return programs{}, nil
	}
	return usable(a, strings.TrimSpace(string(out))), nil
}

var distributionFolders = []string{
	"/usr/lib/postgresql/*/bin", // Debian, Ubuntu
	"/usr/pgsql-*/bin",          // Red Hat, from postgresql.org
	"/opt/homebrew/opt/postgresql@*/bin",
	"/usr/local/opt/postgresql@*/bin",
	"/home/linuxbrew/.linuxbrew/opt/postgresql@*/bin",
	"/Applications/Postgres.app/Contents/Versions/*/bin",
	"/usr/libexec/postgresql*", // Alpine
}

func fromDistribution(_ context.Context, a account) (programs, error) {
	var found []string
	for _, pattern := range distributionFolders {
		folders, err := filepath.Glob(pattern)
		if err != nil {
			return programs{}, fmt.Errorf("look for %s: %w", pattern, err)
		}
		found = append(found, folders...)
	}
	for _, bin := range newestFirst(found) {
		if p := usable(a, bin); p.bin != "" {
			return p, nil
		}
	}
	return programs{}, nil
}

// newestFirst sorts folders by the version in their path, 10 after 9.6, "latest" last.
func newestFirst(folders []string) []string {
	slices.SortStableFunc(folders, func(a, b string) int { return cmp.Compare(versionIn(b), versionIn(a)) })
	return folders
}

// versionIn is the first number of the folder's path, or 0.
func versionIn(folder string) float64 {
	isNumber := func(r rune) bool { return r >= '0' && r <= '9' || r == '.' }
	for _, field := range strings.FieldsFunc(folder, func(r rune) bool { return !isNumber(r) }) {
		if v, err := strconv.ParseFloat(field, 64); err == nil {
			return v
		}
	}
	return 0
}

// usable is the installation in the folder, or nothing if it is none or the account cannot get there.
func usable(a account, bin string) programs {
	if !holdsPrograms(bin) || a.blockedAt(bin) != "" {
		return programs{}
	}
	return programs{bin: bin}
}

func holdsPrograms(bin string) bool {
	for _, name := range []string{"initdb", "postgres"} {
		info, err := os.Stat(filepath.Join(bin, name))
		if err != nil || !info.Mode().IsRegular() || info.Mode()&0o111 == 0 {
			return false
		}
	}
	return true
}
