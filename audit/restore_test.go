package audit_test

import (
	"bytes"
	"errors"
	"slices"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/audit"
	"github.com/holdfast/holdfast/internal/pgdev"
	"github.com/holdfast/holdfast/internal/pgtest"
	"github.com/holdfast/holdfast/migrations"
)

// A dump is taken while records are being written and a subscription is in the middle, and is restored into a cluster
// whose transactions have far lower ids; then the other way round. Each time the subscription goes on with nothing missed
// and nothing doubled.
func TestRestoredDump(t *testing.T) {
	t.Parallel()
	old, fresh := pgtest.New(t), freshCluster(t)
	spendIDs(t, old, ask[int64](t, fresh, ownSQL)+20_000)
	const name = "orders"
	config := audit.SubscriptionConfig{From: audit.FromBeginning, Batch: 5}
	sub := subscribe(t, old, name, config)
	writeSteps(t, old, 12)
	ids := deliver(t, sub, 5) // and a mark is set beyond
	open := begin(t, old)     // not committed when the dump is taken: it is not restored
	open.write(step(uuid.New(), "1"))
	restore(t, old, fresh)
	open.commit()
	if horizon, own := ask[int64](t, fresh, horizonSQL), ask[int64](t, fresh, ownSQL); horizon < own+5_000 {
		t.Fatalf("the old cluster's horizon %d does not lie far ahead of the new one's %d", horizon, own)
	}

	expireLease(t, fresh, name) // the lease of the old cluster's process was dumped too
	writeSteps(t, fresh, 4)
	ids = append(ids, deliver(t, subscribe(t, fresh, name, config), 11)...)
	if want := ask[[]int64](t, fresh, allSQL); !slices.Equal(ids, want) {
		t.Errorf("delivered before and after the restore: %v, want %v", ids, want)
	}

	back := pgtest.New(t)
	writeSteps(t, fresh, 3)
	restore(t, fresh, back)
	expireLease(t, back, name)
	writeSteps(t, back, 2)
	ids = append(ids, deliver(t, subscribe(t, back, name, config), 5)...)
	if want := ask[[]int64](t, back, allSQL); !slices.Equal(ids, want) {
		t.Errorf("delivered before and after the way back: %v, want %v", ids, want)
	}
}

// A copy that forgot the sequence would give ids again that the subscription is past. It says so.
func TestCopyWithoutTheSequence(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	sub := subscribe(t, db, "orders", audit.SubscriptionConfig{From: audit.FromBeginning})
	writeSteps(t, db, 3)
	deliver(t, sub, 3)
	execute(t, db, `ALTER SEQUENCE audit_log_audit_id_seq RESTART`)
	writeSteps(t, db, 1)
	if _, err := sub.RunOnce(t.Context(), (&collector{}).take); !errors.Is(err, audit.ErrSequenceBehind) {
		t.Errorf("%v, want that the sequence lies behind", err)
	}
}

const (
	ownSQL     = `SELECT pg_current_xact_id()::text::bigint`
	horizonSQL = `SELECT next_horizon::text::bigint FROM audit_subscriptions`
	allSQL     = `SELECT array_agg(audit_id ORDER BY audit_id) FROM audit_log`
)

// freshCluster is a migrated database of a server that nobody has used.
func freshCluster(t *testing.T) *pgxpool.Pool {
	t.Helper()
	db := pgtest.Open(t, pgtest.StartServer(t, pgdev.Options{}).URL("postgres"))
	if err := migrations.Up(t.Context(), db); err != nil {
		t.Fatal(err)
	}
	return db
}

// spendIDs lets the database's cluster give out transaction ids up to one.
func spendIDs(t *testing.T, db *pgxpool.Pool, to int64) {
	t.Helper()
	execute(t, db, `CREATE PROCEDURE spend(upto bigint) LANGUAGE plpgsql AS $$
		BEGIN
			WHILE pg_current_xact_id()::text::bigint < upto LOOP
				COMMIT;
			END LOOP;
		END $$`)
	config := db.Config()
	config.ConnConfig.RuntimeParams["synchronous_commit"] = "off" // nothing is written
	spender, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	defer spender.Close()
	execute(t, spender, `CALL spend($1)`, to)
}

// restore does what pg_dump and psql do: all rows as one snapshot sees them, and the sequences as they are by then.
func restore(t *testing.T, from, to *pgxpool.Pool) {
	t.Helper()
	source, err := from.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer source.Release()
	target, err := to.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer target.Release()
	run := func(sql string) {
		t.Helper()
		if _, err := source.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	run(`BEGIN TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY`)
	for _, table := range []string{"audit_log", "audit_subscriptions"} {
		var rows bytes.Buffer
		if _, err := source.Conn().PgConn().CopyTo(t.Context(), &rows, `COPY `+table+` TO STDOUT`); err != nil {
			t.Fatal(err)
		}
		if _, err := target.Conn().PgConn().CopyFrom(t.Context(), &rows, `COPY `+table+` FROM STDIN`); err != nil {
			t.Fatal(err)
		}
	}
	var last int64
	var called bool
	if err := source.QueryRow(t.Context(), `SELECT last_value, is_called FROM audit_log_audit_id_seq`).Scan(&last, &called); err != nil {
		t.Fatal(err)
	}
	run(`COMMIT`)
	if _, err := target.Exec(t.Context(), `SELECT setval('audit_log_audit_id_seq', $1, $2)`, last, called); err != nil {
		t.Fatal(err)
	}
}
