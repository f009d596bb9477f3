package main

import (
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"

	"github.com/holdfast/holdfast/cmd/internal/programtest"
	"github.com/holdfast/holdfast/migrations"
)

const lapseSQL = `UPDATE reservations SET expires_at = clock_timestamp() - interval '1 second', held_at = held_at - interval '1 hour'`

// A pass that is stopped before its end, or that exceeds its time, is not a
// failure. It exits with 0 and reports that work is left, and the next one
// finishes.
func TestStoppedPass(t *testing.T) {
	t.Parallel()
	for name, stop := range map[string]func(*programtest.Inside){
		"SIGTERM":          func(p *programtest.Inside) { _ = p.Stop() },
		"ONESHOT_TIME_MAX": func(*programtest.Inside) {},
	} {
		for _, command := range []string{"sweep", "drain", "recover", "purge"} {
			t.Run(name+" "+command, func(t *testing.T) {
				t.Parallel()
				stoppedPass(t, command, stop)
			})
		}
	}
}

func stoppedPass(t *testing.T, command string, stop func(*programtest.Inside)) {
	t.Helper()
	shop := programtest.NewFixture(t)
	shop.Stock("shirt", 5)
	shop.Admit("shirt", 5)
	exec := func(sql string) {
		t.Helper()
		if _, err := shop.DB.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	table, left := "inventory_stocks", func() int64 { return int64(shop.Count().Unfinished) }
	switch command {
	case "sweep":
		pass(t, shop, "drain")
		exec(lapseSQL)
		left = func() int64 { return shop.Int(dueSQL) }
	case "recover":
		exec(abandonSQL)
	case "purge":
		pass(t, shop, "drain")
		exec(lapseSQL) // a request is kept while its hold is held
		pass(t, shop, "sweep")
		exec(ageSQL)
		table, left = "reservation_requests", func() int64 { return int64(shop.Count().Done) }
	}
	blocker, err := shop.DB.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = blocker.Rollback(t.Context()) }()
	if _, err := blocker.Exec(t.Context(), `LOCK TABLE `+table+` IN EXCLUSIVE MODE`); err != nil {
		t.Fatal(err)
	}
	running := programtest.Start(t, run, shop.Env("ONESHOT_TIME_MAX", "2s"), command)
	shop.Until("the pass waits for the table", func() bool {
		return shop.Int(`SELECT count(*) FROM pg_locks WHERE NOT granted AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`) > 0
	})
	stop(running)
	if err := running.Wait(); err != nil {
		t.Fatalf("the stopped pass failed: %v\n%s", err, running.Stderr)
	}
	if err := blocker.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if left() != 5 {
		t.Fatalf("%d are left, want all 5: it was stopped too late", left())
	}
	expectReport(t, reportOf(t, running.Stdout.String()), map[string]any{"job": command, "more": true})
	shop.Until("the next pass finishes", func() bool { // a requeued request is tried again after a moment
		expectReport(t, pass(t, shop, command), map[string]any{"job": command, "more": false})
		return left() == 0
	})
}

// A stopped verify reports neither that all invariants hold nor that one is
// broken.
func TestStoppedVerify(t *testing.T) {
	t.Parallel()
	shop := programtest.NewFixture(t)
	blocker, err := shop.DB.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = blocker.Rollback(t.Context()) }()
	if _, err := blocker.Exec(t.Context(), `LOCK TABLE reservations IN ACCESS EXCLUSIVE MODE`); err != nil {
		t.Fatal(err)
	}
	running := programtest.Start(t, run, shop.Env(), "verify")
	shop.Until("it waits for the table", func() bool {
		return shop.Int(`SELECT count(*) FROM pg_locks WHERE NOT granted AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`) > 0
	})
	if err := running.Stop(); err != nil {
		t.Errorf("%v\n%s", err, running.Stderr)
	}
	if diff := cmp.Diff(map[string]any{"job": "verify", "more": true}, reportOf(t, running.Stdout.String())); diff != "" {
		t.Errorf("report (-want +got):\n%s", diff)
	}
}

// If no worker runs, River neither works nor deletes wakes. A purge deletes
// only the old ones.
func TestPurgeWakes(t *testing.T) {
	t.Parallel()
	shop := programtest.NewFixture(t)
	for _, sql := range []string{
		`INSERT INTO river.river_job (args, kind, max_attempts, priority, queue, state, created_at)
		 SELECT '{"lane": "normal", "slot": 0}', 'holdfast_wake', 5, 1, 'normal', 'available', clock_timestamp() - interval '2 hours'
		 FROM generate_series(1, 12000)`,
		`INSERT INTO river.river_job (args, kind, max_attempts, priority, queue, state, created_at)
		 SELECT '{}', kind, 5, 1, 'normal', state::river.river_job_state, clock_timestamp() - age::interval
		 FROM (VALUES ('holdfast_wake', 'available', '1 minute'), ('holdfast_wake', 'running', '2 hours'),
		              ('somebody_elses', 'available', '2 hours')) AS kept (kind, state, age)`,
	} {
		if _, err := shop.DB.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	expectReport(t, pass(t, shop, "purge", "CLOUD_RUN_TASK_COUNT", "2", "CLOUD_RUN_TASK_INDEX", "1"), map[string]any{"wakes": 0.})
	expectReport(t, pass(t, shop, "purge"), map[string]any{"job": "purge", "wakes": 12000., "more": false})
	if n := shop.Int(`SELECT count(*) FROM river.river_job`); n != 3 {
		t.Errorf("%d jobs are left, want the new wake, the one being worked, and the one of another kind", n)
	}
}

// A stopped migrate has rolled back, reports more, and fails, unlike the other
// passes. A deployment that waits for its success must not continue with the
// old schema, which the new programs refuse. The next one finishes.
func TestStoppedMigrate(t *testing.T) {
	t.Parallel()
	shop := programtest.NewFixture(t)
	revertMigrations(t, shop)
	blocker, err := shop.DB.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = blocker.Rollback(t.Context()) }()
	if _, err := blocker.Exec(t.Context(), `SELECT count(*) FROM river.river_job`); err != nil {
		t.Fatal(err)
	}
	running := programtest.StartProcess(t, shop.Env(), "migrate")
	running.Stderr.Line(t, "another transaction keeps a table locked")
	running.Signal(syscall.SIGTERM)
	if code := running.Wait(); code != 1 {
		t.Errorf("exit code %d, want 1", code)
	}
	if diff := cmp.Diff(map[string]any{"job": "migrate", "migrated": false, "more": true}, reportOf(t, running.Stdout.String())); diff != "" {
		t.Errorf("report (-want +got):\n%s", diff)
	}
	running.Stderr.Line(t, "migrate was stopped before the schema was up to date")
	sweep := programtest.StartProcess(t, shop.Env(), "sweep")
	if code := sweep.Wait(); code != 1 || !strings.Contains(sweep.Stderr.String(), "lacks migrations") {
		t.Errorf("a program on the old schema: exit code %d, want a refusal\n%s", code, sweep.Stderr)
	}
	if err := blocker.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	expectReport(t, pass(t, shop, "migrate"), map[string]any{"job": "migrate", "migrated": true, "more": false})
	pass(t, shop, "sweep")
}

// lockingMigration is a migration of River's that locks the table of its jobs.
const lockingMigration = 6

// revertMigrations reverts that migration, and River's newer ones. Ours begin
// with the whole schema, which locks nothing that exists.
func revertMigrations(t *testing.T, shop *programtest.Fixture) {
	t.Helper()
	river, err := rivermigrate.New(riverpgxv5.New(shop.DB), &rivermigrate.Config{Schema: migrations.RiverSchema})
	if err != nil {
		t.Fatal(err)
	}
	_, err = river.Migrate(t.Context(), rivermigrate.DirectionDown, &rivermigrate.MigrateOpts{TargetVersion: lockingMigration - 1})
	if err != nil {
		t.Fatal(err)
	}
}
