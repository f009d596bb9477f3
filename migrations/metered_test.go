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
	"golang.org/x/sync/errgroup"

	"github.com/holdfast/holdfast/internal/pgtest"
	"github.com/holdfast/holdfast/migrations"
)

// The set of package metered comes and goes without touching the other, by any
// number of callers at once.
func TestMeteredUpDownUp(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	without := catalogue(t, db)
	expectPendingMetered := func(want bool, of string) {
		t.Helper()
		if got, err := migrations.Pending(t.Context(), db, &migrations.Config{Metered: true}); err != nil || got != want {
			t.Errorf("pending of %s: %t, %v", of, got, err)
		}
		expectPending(t, db, false, of)
	}
	expectPendingMetered(true, "a database without metered commands")
	bounded, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	group, ctx := errgroup.WithContext(bounded)
	for range 4 {
		group.Go(func() error { return migrations.Up(ctx, lonely(t, db), &migrations.Config{Metered: true}) })
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	with := catalogue(t, db)
	if cmp.Equal(without, with) {
		t.Error("Up made no table of metered commands")
	}
	expectPendingMetered(false, "a database with metered commands")
	up(t, db)
	if diff := cmp.Diff(with, catalogue(t, db)); diff != "" {
		t.Errorf("Up changed the set (-before +after):\n%s", diff)
	}
	if err := migrations.Down(t.Context(), db, &migrations.Config{Metered: true}); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(without, catalogue(t, db)); diff != "" {
		t.Errorf("Down left something, or took too much (-want +got):\n%s", diff)
	}
	if err := migrations.Up(t.Context(), db, &migrations.Config{Metered: true}); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(with, catalogue(t, db)); diff != "" {
		t.Errorf("the second schema is not the first (-first +second):\n%s", diff)
	}
}

// As with the other set: every constraint and index has a name that the
// migrations give it.
func TestMeteredNamesAreGiven(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	before := map[string]bool{}
	for _, name := range column(t, db, ownNamesSQL) {
		before[name] = true
	}
	if err := migrations.Up(t.Context(), db, &migrations.Config{Metered: true}); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob("metered/*.sql")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	var source strings.Builder
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		source.Write(content)
	}
	names := 0
	for _, name := range column(t, db, ownNamesSQL) {
		if before[name] || strings.HasPrefix(name, "goose_") {
			continue
		}
		names++
		if !regexp.MustCompile(`\b` + regexp.QuoteMeta(name) + `\b`).MatchString(source.String()) {
			t.Errorf("%s was named by Postgres: name it in its migration", name)
		}
	}
	if names < 10 {
		t.Errorf("only %d names were found", names)
	}
}
