package queues_test

import (
	"bytes"
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/internal/lanes"
	"github.com/holdfast/holdfast/internal/pgtest"
	"github.com/holdfast/holdfast/internal/queues"
	"github.com/holdfast/holdfast/internal/testkit"
	"github.com/holdfast/holdfast/migrations"
	"github.com/holdfast/holdfast/requests"
)

const sequenceOIDSQL = `SELECT 'reservation_requests_sequence_seq'::regclass::oid::bigint`

// inSchema migrates another schema of the database, and returns a pool that
// uses it.
func inSchema(t *testing.T, db *pgxpool.Pool, schema string) *pgxpool.Pool {
	t.Helper()
	if _, err := db.Exec(t.Context(), `CREATE SCHEMA `+schema); err != nil {
		t.Fatal(err)
	}
	config := db.Config()
	config.ConnConfig.RuntimeParams["search_path"] = schema
	other, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(other.Close)
	if err := migrations.Up(t.Context(), other, nil); err != nil {
		t.Fatal(err)
	}
	return other
}

// An open admission holds back only the marks of its own schema and database.
// It does not hold back those of another schema, or of another database of the
// server. The sequence of that database has the same oid, because both were
// made from one template.
func TestAdmissionOfAnotherSequence(t *testing.T) {
	t.Parallel()
	for _, name := range lanes.All() {
		for what, place := range map[string]func(t *testing.T, own *pgxpool.Pool) *pgxpool.Pool{
			"database": func(t *testing.T, _ *pgxpool.Pool) *pgxpool.Pool { return pgtest.New(t) },
			"schema":   func(t *testing.T, own *pgxpool.Pool) *pgxpool.Pool { return inSchema(t, own, "another") },
		} {
			t.Run(string(name)+" of another "+what, func(t *testing.T) {
				t.Parallel()
				own := testkit.New(t, name)
				other := testkit.On(t, place(t, own.DB), name)
				if a, b := own.Int(sequenceOIDSQL), other.Int(sequenceOIDSQL); (a == b) != (what == "database") {
					t.Fatalf("the oids are %d and %d", a, b)
				}
				other.Stock("shoe", 10)
				late, commit := other.Open("late")
				own.Stock("shoe", 10)
				if mark := passes(own, own.Lane(queues.LaneConfig{})); mark < 2 {
					t.Errorf("the mark is %d, want it not to wait", mark)
				}
				commit()
				other.TickUntil(other.Lane(queues.LaneConfig{}), late)
				other.Want(late, requests.Done, "")
			})
		}
	}
}

// restoreInto copies as pg_dump and psql do: all rows of one snapshot, and the
// sequences as they are when read.
func restoreInto(t *testing.T, from, to *pgxpool.Pool) {
	t.Helper()
	source, err := from.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = source.Rollback(context.WithoutCancel(t.Context())) }()
	target, err := to.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = target.Rollback(context.WithoutCancel(t.Context())) }()
	exec := func(tx pgx.Tx, sql string, args ...any) {
		t.Helper()
		if _, err := tx.Exec(t.Context(), sql, args...); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
	exec(source, `SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY`)
	exec(target, `SET LOCAL session_replication_role = replica`) // foreign keys are not checked row by row
	names := func(sql string) []string {
		t.Helper()
		rows, err := source.Query(t.Context(), sql)
		if err != nil {
			t.Fatal(err)
		}
		all, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil || len(all) == 0 {
			t.Fatalf("%d found, %v", len(all), err)
		}
		return all
	}
	for _, table := range names(`
		SELECT relname FROM pg_class
		WHERE relkind = 'r' AND relnamespace = current_schema()::regnamespace AND relname NOT LIKE 'goose%'`) {
		exec(target, `DELETE FROM `+table)
		var rows bytes.Buffer
		if _, err := source.Conn().PgConn().CopyTo(t.Context(), &rows, `COPY `+table+` TO STDOUT`); err != nil {
			t.Fatal(err)
		}
		if _, err := target.Conn().PgConn().CopyFrom(t.Context(), &rows, `COPY `+table+` FROM STDIN`); err != nil {
			t.Fatal(err)
		}
	}
	for _, sequence := range names(`
		SELECT relname FROM pg_class
		WHERE relkind = 'S' AND relnamespace = current_schema()::regnamespace AND relname NOT LIKE 'goose%'`) {
		var last int64
		var called bool
		if err := source.QueryRow(t.Context(), `SELECT last_value, is_called FROM `+sequence).Scan(&last, &called); err != nil {
			t.Fatal(err)
		}
		exec(target, `SELECT setval($1, $2, $3)`, sequence, last, called)
	}
	if err := target.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// While an admission is open, its database is restored into another one, where
// the sequence has another oid. There the committed requests are decided, and
// the marks move. They wait for admissions in the new database, and not for the
// one in the old database.
func TestRestoredIntoAnotherDatabase(t *testing.T) {
	t.Parallel()
	onEachLane(t, func(t *testing.T, name lanes.Lane) {
		old := testkit.New(t, name)
		old.Stock("shoe", 100)
		before := passes(old, old.Lane(queues.LaneConfig{}))
		_, _ = old.Open("never committed")
		left := old.Submit("left", "shoe", 1)

		b := testkit.On(t, inSchema(t, pgtest.New(t), "restored"), name)
		restoreInto(t, old.DB, b.DB)
		b.Tenant = old.Tenant
		if is, was := b.Int(sequenceOIDSQL), old.Int(sequenceOIDSQL); is == was {
			t.Fatalf("the sequence has the oid %d in both databases", is)
		}
		lane := b.Lane(queues.LaneConfig{})
		if mark := passes(b, lane); mark <= max(before, left.Sequence) {
			t.Errorf("the mark is %d, and was %d at the last request before the restore", mark, left.Sequence)
		}
		b.Want(left, requests.Done, "")
		late, commit := b.Open("late")
		if mark := passes(b, lane); mark >= late.Sequence {
			t.Errorf("the mark is %d, past the request %d of an open admission", mark, late.Sequence)
		}
		commit()
		b.TickUntil(lane, late)
		b.Want(late, requests.Done, "")
		b.CheckInvariants()
	})
}
