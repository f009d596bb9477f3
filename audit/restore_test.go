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

// A dump is taken while records are being written and a subscription has
// received some of them. It is restored into a cluster whose transactions have
// far lower ids, and then a dump of that one into the first. Each time the
// subscription continues without a missed or repeated record.
func TestRestoredDump(t *testing.T) {
	t.Parallel()
	old, fresh := pgtest.New(t), freshCluster(t)
	spendIDs(t, old, ask[int64](t, fresh, ownSQL)+20_000)
	const name = "orders"
	config := audit.SubscriptionConfig{FromBeginning: true, Batch: 5}
	sub := subscribe(t, old, name, config)
	writeSteps(t, old, 12)
	ids := deliver(t, sub, 5) // next is now above them
	open := begin(t, old)     // not committed when the dump is taken, so not restored
	open.write(step(uuid.New(), "1"))
	restore(t, old, fresh)
	open.commit()
	if horizon, own := ask[int64](t, fresh, horizonSQL), ask[int64](t, fresh, ownSQL); horizon < own+5_000 {
		t.Fatalf("the old cluster's horizon %d is not far above the new one's %d", horizon, own)
	}

	expireLease(t, fresh, name) // the dump contains the lease of the old cluster's process
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
		t.Errorf("delivered before and after the second restore: %v, want %v", ids, want)
	}
}

// A copy without the sequence would draw ids again that are below the
// subscription's position. RunOnce returns ErrSequenceBehind.
func TestCopyWithoutTheSequence(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	sub := subscribe(t, db, "orders", audit.SubscriptionConfig{FromBeginning: true})
	writeSteps(t, db, 3)
	deliver(t, sub, 3)
	execute(t, db, `ALTER SEQUENCE audit_log_audit_id_seq RESTART`)
	writeSteps(t, db, 1)
	if _, err := sub.RunOnce(t.Context(), (&collector{}).take); !errors.Is(err, audit.ErrSequenceBehind) {
		t.Errorf("%v, want ErrSequenceBehind", err)
	}
}

const (
	ownSQL     = `SELECT pg_current_xact_id()::text::bigint`
	horizonSQL = `SELECT next_horizon::text::bigint FROM audit_subscriptions`
	allSQL     = `SELECT array_agg(audit_id ORDER BY audit_id) FROM audit_log`
)

// freshCluster returns a migrated database on a new server.
func freshCluster(t *testing.T) *pgxpool.Pool {
	t.Helper()
	db := pgtest.Open(t, pgtest.StartServer(t, pgdev.Options{}).URL("postgres"))
	if err := migrations.Up(t.Context(), db, nil); err != nil {
		t.Fatal(err)
	}
	return db
}

// spendIDs makes the database's cluster assign transaction ids up to the given
// one.
func spendIDs(t *testing.T, db *pgxpool.Pool, to int64) {
	t.Helper()
	execute(t, db, `CREATE PROCEDURE spend(upto bigint) LANGUAGE plpgsql AS $$
		BEGIN
			WHILE pg_current_xact_id()::text::bigint < upto LOOP
				COMMIT;
			END LOOP;
		END $$`)
	config := db.Config()
	config.ConnConfig.RuntimeParams["synchronous_commit"] = "off" // no write needs to be durable
	spender, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	defer spender.Close()
	execute(t, spender, `CALL spend($1)`, to)
}

// restore copies as pg_dump and psql do: all rows of one snapshot, and the
// sequences as they are when read.
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
