package migrations_test

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"github.com/holdfast/holdfast/internal/pgtest"
	"github.com/holdfast/holdfast/migrations"
)

func TestUpDownUp(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	first := catalogue(t, db)
	down(t, db)
	if diff := cmp.Diff([]string{"schema public"}, catalogue(t, db)); diff != "" {
		t.Errorf("Down left something, or took too much (-want +got):\n%s", diff)
	}
	up(t, db)
	if diff := cmp.Diff(first, catalogue(t, db)); diff != "" {
		t.Errorf("the second schema is not the first (-first +second):\n%s", diff)
	}
	up(t, db)
	if diff := cmp.Diff(first, catalogue(t, db)); diff != "" {
		t.Errorf("Up on a database that is up to date changed it (-before +after):\n%s", diff)
	}
}

// Eight callers at once, over one pool of eight and over pools that have a
// single connection to give.
func TestUpAtOnce(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	want := catalogue(t, db)
	bounded, cancel := context.WithTimeout(t.Context(), 5*time.Minute) // callers that wait for each other never end
	defer cancel()
	for name, pool := range map[string]func() *pgxpool.Pool{
		"one pool":  func() *pgxpool.Pool { return db },
		"own pools": func() *pgxpool.Pool { return lonely(t, db) },
	} {
		down(t, db)
		group, ctx := errgroup.WithContext(bounded)
		for range 8 {
			callers := pool()
			group.Go(func() error { return migrations.Up(ctx, callers, nil) })
		}
		if err := group.Wait(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if diff := cmp.Diff(want, catalogue(t, db)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestPending(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	expectPending(t, db, false, "a migrated database")
	down(t, db)
	before := catalogue(t, db)
	expectPending(t, db, true, "an empty database")
	if diff := cmp.Diff(before, catalogue(t, db)); diff != "" {
		t.Errorf("Pending changed the database (-before +after):\n%s", diff)
	}
	up(t, db)
	expectPending(t, db, false, "a database migrated again")
}

func TestPendingForOneMigration(t *testing.T) {
	t.Parallel()
	for name, forget := range map[string]string{
		"one of ours":    `DELETE FROM goose_db_version WHERE version_id = (SELECT max(version_id) FROM goose_db_version)`,
		"one of River's": `DELETE FROM river.river_migration WHERE version = (SELECT max(version) FROM river.river_migration)`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := pgtest.New(t)
			if _, err := db.Exec(t.Context(), forget); err != nil {
				t.Fatal(err)
			}
			expectPending(t, db, true, "a database that lacks "+name)
		})
	}
}

// Every constraint and index of ours has a name that the migrations give it:
// errors are distinguished by it, and a later migration must be able to name
// what it changes.
func TestNamesAreGiven(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	source := migrationFiles(t)
	for _, name := range column(t, db, ownNamesSQL) {
		if !regexp.MustCompile(`\b` + regexp.QuoteMeta(name) + `\b`).MatchString(source) {
			t.Errorf("%s was named by Postgres: name it in its migration", name)
		}
		if strings.HasSuffix(name, "_check") {
			t.Errorf("%s has the name of any check: name it after what it demands", name)
		}
	}
}

// ownNamesSQL leaves out goose's record, and the NOT NULL constraints that
// Postgres lists from version 18 on.
const ownNamesSQL = `
SELECT conname::text
FROM pg_constraint
WHERE connamespace = 'public'::regnamespace
    AND contype <> 'n'
    AND conrelid <> 'goose_db_version'::regclass
UNION
SELECT indexrelid::regclass::text
FROM pg_index
JOIN pg_class ON pg_class.oid = indexrelid
WHERE relnamespace = 'public'::regnamespace
    AND indrelid <> 'goose_db_version'::regclass`

func TestFingerprint(t *testing.T) {
	t.Parallel()
	first, err := migrations.Fingerprint()
	if err != nil {
		t.Fatal(err)
	}
	second, err := migrations.Fingerprint()
	if err != nil {
		t.Fatal(err)
	}
	if first != second || !regexp.MustCompile(`^[0-9a-f]{16}$`).MatchString(first) {
		t.Errorf("fingerprints %q and %q, want the same 16 hexadecimal digits", first, second)
	}
}

func up(t *testing.T, db *pgxpool.Pool) {
	t.Helper()
	if err := migrations.Up(t.Context(), db, nil); err != nil {
		t.Fatalf("up: %v", err)
	}
}

func down(t *testing.T, db *pgxpool.Pool) {
	t.Helper()
	if err := migrations.Down(t.Context(), db, nil); err != nil {
		t.Fatalf("down: %v", err)
	}
}

func expectPending(t *testing.T, db *pgxpool.Pool, want bool, of string) {
	t.Helper()
	got, err := migrations.Pending(t.Context(), db, nil)
	if err != nil {
		t.Fatalf("pending of %s: %v", of, err)
	}
	if got != want {
		t.Errorf("pending of %s: %t, want %t", of, got, want)
	}
}

func migrationFiles(t *testing.T) string {
	t.Helper()
	names, err := filepath.Glob("*.sql")
	if err != nil || len(names) == 0 {
		t.Fatalf("find the migrations: %v, %d files", err, len(names))
	}
	var all strings.Builder
	for _, name := range names {
		content, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		all.Write(content)
	}
	return all.String()
}
