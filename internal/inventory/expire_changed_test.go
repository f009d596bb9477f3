package inventory

import (
	"fmt"
	"testing"

	"github.com/google/uuid"

	"github.com/holdfast/holdfast/internal/pgtest"
)

// Two sweeps read the same holds, and the second one writes after the first has
// committed. It detects the change because its UPDATE changes too few rows.
// Postgres logs no error.
func TestSweepReadsWhatAnotherExpiresThen(t *testing.T) {
	t.Parallel()
	db, log := pgtest.NewLogged(t)
	tenant := uuid.New()
	for _, sql := range []string{
		`INSERT INTO inventory_stocks (tenant_id, variant_id, stock, reserved) SELECT $1, 'v' || n, 50, 20 FROM generate_series(0, 9) AS n`,
		`INSERT INTO reservations (tenant_id, reservation_id, resource_kind, resource_key, holder_id, quantity, first_held_at, held_at, expires_at)
			SELECT $1, gen_random_uuid(), 'inventory.variant', 'v' || n % 10, 'cart', 1, at, at, at + interval '1 second'
			FROM generate_series(1, 200) AS n, (SELECT clock_timestamp() - interval '1 minute' AS at) AS t`,
	} {
		if _, err := db.Exec(t.Context(), sql, tenant); err != nil {
			t.Fatal(err)
		}
	}
	due, err := readDue(t.Context(), db, NewExpiry(db).pass, 500)
	if err != nil {
		t.Fatal(err)
	}
	for sweep, want := range []int{200, 0} {
		s, err := NewExpiry(db).expire(t.Context(), due)
		if err != nil || s.Expired != want {
			t.Errorf("sweep %d: %+v, %v, want %d expired", sweep, s, err, want)
		}
	}
	for _, line := range log.Errors() {
		t.Errorf("the server logged: %s", line)
	}
}

// A hold is extended after the sweep has read it as due. It stays held and
// makes the sweep's transaction fail. The other holds of that transaction still
// expire.
func TestSweepReadsWhatIsExtendedThen(t *testing.T) {
	t.Parallel()
	db, tenant := pgtest.New(t), uuid.New()
	exec := func(sql string, args ...any) {
		t.Helper()
		if _, err := db.Exec(t.Context(), sql, args...); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 3 {
		exec(`INSERT INTO inventory_stocks (tenant_id, variant_id, stock, reserved) VALUES ($1, $2, 5, 2)`, tenant, fmt.Sprint("v", i))
		for range 2 {
			exec(`
				INSERT INTO reservations (tenant_id, reservation_id, resource_kind, resource_key, holder_id, quantity, first_held_at, held_at, expires_at)
				SELECT $1, gen_random_uuid(), $2, $3, 'cart', 1, at, at, at FROM (SELECT clock_timestamp() - interval '1 minute' AS at) AS t`,
				tenant, Kind, fmt.Sprint("v", i))
		}
	}
	due, err := readDue(t.Context(), db, NewExpiry(db).pass, 100)
	if err != nil || due.found != 6 {
		t.Fatalf("%d due, %v, want 6", due.found, err)
	}
	extended := due.holds[Ref{tenant, "v1"}][0]
	exec(`UPDATE reservations SET expires_at = clock_timestamp() + interval '1 hour' WHERE reservation_id = $1`, extended.ReservationID)
	if f := NewExpiry(db).expireUnlocked(t.Context(), due, false); f.err != nil || len(f.left) != 3 || f.Expired != 0 {
		t.Fatalf("with an extended hold in the batch %d expired and %d variants were left (%v), want none and all", f.Expired, len(f.left), f.err)
	}
	s, err := NewExpiry(db).expire(t.Context(), due)
	if err != nil || s.Found != 6 || s.Expired != 5 {
		t.Errorf("%+v, %v, want 6 found and 5 expired", s, err)
	}
	var held uuid.UUID
	if err := db.QueryRow(t.Context(), `SELECT reservation_id FROM reservations WHERE status = 'held'`).Scan(&held); err != nil || held != extended.ReservationID {
		t.Errorf("%s is held (%v), want only %s", held, err, extended.ReservationID)
	}
	for variant, want := range map[string]int{"v0": 0, "v1": 1, "v2": 0} {
		var reserved int
		if err := db.QueryRow(t.Context(), `SELECT reserved FROM inventory_stocks WHERE variant_id = $1`, variant).Scan(&reserved); err != nil || reserved != want {
			t.Errorf("%d of %s are reserved (%v), want %d", reserved, variant, err, want)
		}
	}
}
