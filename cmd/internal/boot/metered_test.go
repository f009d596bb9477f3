package boot

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/audit"
	"github.com/holdfast/holdfast/internal/inventory"
	"github.com/holdfast/holdfast/internal/pgtest"
	"github.com/holdfast/holdfast/internal/wiring"
	"github.com/holdfast/holdfast/migrations"
	"github.com/holdfast/holdfast/sweeper"
	"github.com/holdfast/holdfast/verify"
)

// programs returns a program on the database with metered commands off, and one
// with them on.
func programs(t *testing.T, address string) (off, on *Program) {
	t.Helper()
	off, _ = newTestProgram(t, map[string]string{"DATABASE_URL": address, "PORT": "0"})
	on, _ = newTestProgram(t, map[string]string{"DATABASE_URL": address, "PORT": "0", "METERED_COMMANDS_ENABLED": "true"})
	return off, on
}

// starts returns the ways in which a program opens a database that another one
// has migrated.
func starts(t *testing.T, p *Program) map[string]func() error {
	t.Helper()
	return map[string]func() error{
		"api": func() error { return startAPI(t, p) },
		"worker": func() error {
			w, err := NewWorker(t.Context(), p, WorkerOptions{Health: true})
			if err == nil {
				w.close()
			}
			return err
		},
		"sweep":  func() error { _, err := p.RunOnce(t.Context(), "sweep"); return err },
		"purge":  func() error { _, err := p.RunOnce(t.Context(), "purge"); return err },
		"drain":  func() error { _, err := p.RunOnce(t.Context(), "drain"); return err },
		"verify": func() error { _, err := p.Verify(t.Context(), verify.Config{}); return err },
	}
}

func startAPI(t *testing.T, p *Program) error {
	t.Helper()
	a, err := NewAPI(t.Context(), p, APIOptions{Host: loopback})
	if err == nil {
		a.close()
	}
	return err
}

func expectStarts(t *testing.T, p *Program, want error) {
	t.Helper()
	for name, start := range starts(t, p) {
		if err := start(); !errors.Is(err, want) {
			t.Errorf("%s, metered %t: %v, want %v", name, p.Config.Metered.On, err, want)
		}
	}
}

func expectMigrate(t *testing.T, p *Program, want bool) {
	t.Helper()
	if migrated, err := p.Migrate(t.Context()); err != nil || migrated != want {
		t.Errorf("migrate, metered %t: %t, %v, want %t", p.Config.Metered.On, migrated, err, want)
	}
}

func expectMetered(t *testing.T, db *pgxpool.Pool, want bool) {
	t.Helper()
	pending, err := migrations.Pending(t.Context(), db, &migrations.Config{Metered: true})
	if err != nil || pending == want {
		t.Errorf("metered's tables are missing: %t, %v, want %t", pending, err, !want)
	}
}

const oldKeySQL = `
INSERT INTO command_keys (tenant_id, queue, idempotency_key, command_id, kind, fingerprint, created_at)
SELECT gen_random_uuid(), 'q', 'k', gen_random_uuid(), 'k', '', clock_timestamp() - interval '8 days'`

// With METERED_COMMANDS_ENABLED the tables of package metered are created,
// once. Without it no program requires them, whether they exist or not.
func TestMeteredSwitch(t *testing.T) {
	t.Parallel()
	address := pgtest.URL(t)
	db := connect(t, address)
	off, on := programs(t, address)

	expectMigrate(t, off, false)
	expectMetered(t, db, false)
	expectStarts(t, off, nil)
	expectStarts(t, on, ErrPending)

	expectMigrate(t, on, true)
	expectMigrate(t, on, false)
	expectMetered(t, db, true)
	expectStarts(t, on, nil)

	if _, err := db.Exec(t.Context(), oldKeySQL); err != nil {
		t.Fatal(err)
	}
	expectMigrate(t, off, false)
	expectMetered(t, db, true)
	expectStarts(t, off, nil)
	expectMigrate(t, on, false)
	for _, step := range []struct {
		program *Program
		want    int64
	}{{off, 0}, {on, 1}, {on, 0}} {
		purged, err := step.program.RunOnce(t.Context(), "purge")
		report, _ := purged.(wiring.PurgeReport)
		if want := (sweeper.PurgeReport{CommandKeys: step.want}); err != nil || report.PurgeReport != want {
			t.Errorf("purge, metered %t: %+v, %v, want %+v", step.program.Config.Metered.On, report, err, want)
		}
	}
}

// On an empty database both sets of migrations are applied. A database that
// lacks only the first is not considered migrated.
func TestMeteredFromNothing(t *testing.T) {
	t.Parallel()
	address := pgtest.URL(t)
	db := connect(t, address)
	_, on := programs(t, address)
	if err := migrations.Down(t.Context(), db, nil); err != nil {
		t.Fatal(err)
	}
	expectStarts(t, on, ErrPending)
	expectMigrate(t, on, true)
	expectMigrate(t, on, false)
	expectMetered(t, db, true)
	expectStarts(t, on, nil)
}

// An API without METERED_COMMANDS_ENABLED refuses to serve a sale that requires
// a token. A worker does not.
func TestRefusesGuarded(t *testing.T) {
	t.Parallel()
	address := pgtest.URL(t)
	db := connect(t, address)
	off, on := programs(t, address)
	expectMigrate(t, on, true)
	tenant := uuid.New()
	set := func(admission string) {
		t.Helper()
		patch := inventory.StockPatch{Stock: new(int64(1)), Admission: &admission}
		if _, err := inventory.Set(t.Context(), db, tenant, "ticket", patch, audit.Origin{Actor: audit.System()}); err != nil {
			t.Fatal(err)
		}
	}
	set(inventory.AdmissionToken)
	for name, start := range starts(t, off) {
		err := start()
		switch guarded, ok := errors.AsType[*GuardedError](err); {
		case name != "api" && err != nil:
			t.Errorf("%s: %v", name, err)
		case name != "api":
		case !ok:
			t.Errorf("%s: %v, want a refusal", name, err)
		default:
			for _, said := range []string{`"ticket"`, tenant.String(), "METERED_COMMANDS_ENABLED=true", "open"} {
				if !strings.Contains(guarded.Error(), said) {
					t.Errorf("%s: %v, want a sentence with %s", name, err, said)
				}
			}
		}
	}
	if err := startAPI(t, on); err != nil {
		t.Errorf("with the switch on: %v", err)
	}
	set(inventory.AdmissionOpen)
	if err := startAPI(t, off); err != nil {
		t.Errorf("with every variant open: %v", err)
	}
}
