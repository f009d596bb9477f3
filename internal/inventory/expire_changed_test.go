package inventory

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/audit"
	"github.com/holdfast/holdfast/internal/pgtest"
	"github.com/holdfast/holdfast/internal/reservationrows"
	"github.com/holdfast/holdfast/reservations"
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

// expired is what a hold was when it expired.
type expired struct {
	Holder   string
	Quantity int64
	Deadline time.Time
}

// changesOfDue change a hold of 5 units, whatever its deadline.
var changesOfDue = map[string]struct {
	change func(b *pgx.Batch, r reservations.Reservation)
	want   func(e *expired)
}{
	"moved to another cart": {
		func(b *pgx.Batch, r reservations.Reservation) {
			reservationrows.QueueMove(b, []reservations.Reservation{r}, "other", "ann", audit.Origin{Actor: audit.System()})
		},
		func(e *expired) { e.Holder = "other" },
	},
	"a part committed": {
		func(b *pgx.Batch, r reservations.Reservation) {
			part := reservationrows.QueueCommitPart(b, &r, uuid.New(), 2, nil, r.ExpiresAt.Add(-time.Second), audit.Origin{Actor: audit.System()})
			var e endings
			e.count([]reservations.Reservation{part}, reservations.Committed)
			queueDeltas(b, e.deltas)
		},
		func(e *expired) { e.Quantity -= 2 },
	},
	"extended and due again": {
		func(b *pgx.Batch, r reservations.Reservation) {
			b.Queue(`UPDATE reservations SET expires_at = expires_at + interval '1 second' WHERE reservation_id = $1`, r.ReservationID)
		},
		func(e *expired) { e.Deadline = e.Deadline.Add(time.Second) },
	},
}

// A hold is changed, and still due, after the sweep has read it: what was decided
// before its deadline has committed after it. The sweep ends the hold as it is
// then, not as it was read.
func TestSweepReadsWhatIsChangedThen(t *testing.T) {
	t.Parallel()
	for name, test := range changesOfDue {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db, tenant := pgtest.New(t), uuid.New()
			pgtest.Exec(t, db, `INSERT INTO inventory_stocks (tenant_id, variant_id, stock, reserved) VALUES ($1, 'v', 50, 27)`, tenant)
			pgtest.Exec(t, db, `
				INSERT INTO reservations (tenant_id, reservation_id, resource_kind, resource_key, holder_id, quantity, first_held_at, held_at, expires_at)
				SELECT $1, gen_random_uuid(), 'inventory.variant', 'v', 'cart', n, at, at, at + n * n * interval '1 second'
				FROM (VALUES (2), (5), (20)) AS q (n), (SELECT clock_timestamp() - interval '1 minute' AS at) AS t`, tenant)
			due, err := readDue(t.Context(), db, NewExpiry(db).pass, 100)
			if err != nil || due.found != 2 {
				t.Fatalf("%d due, %v, want 2", due.found, err)
			}
			read := due.holds[Ref{tenant, "v"}][1]
			if err := pgx.BeginFunc(t.Context(), db, func(tx pgx.Tx) error {
				b := &pgx.Batch{}
				test.change(b, read)
				return tx.SendBatch(t.Context(), b).Close()
			}); err != nil {
				t.Fatal(err)
			}
			s, err := NewExpiry(db).expire(t.Context(), due)
			if err != nil || s.Expired != 2 {
				t.Errorf("%+v, %v, want 2 expired", s, err)
			}
			const expiredSQL = `
SELECT a.holder_id, a.quantity, a.expires_at, s.reserved
FROM audit_log a
JOIN inventory_stocks s ON s.tenant_id = a.tenant_id
WHERE a.target_id = $1 AND a.action = 'reservation.expired'`
			var got expired
			var reserved int64
			if err := db.QueryRow(t.Context(), expiredSQL, read.ReservationID).Scan(&got.Holder, &got.Quantity, &got.Deadline, &reserved); err != nil {
				t.Fatal(err)
			}
			want := expired{"cart", 5, read.ExpiresAt}
			test.want(&want)
			if got != want || reserved != 20 {
				t.Errorf("expired as %+v, want %+v; %d units are reserved, want 20", got, want, reserved)
			}
		})
	}
}
