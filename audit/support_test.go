package audit_test

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/audit"
	"github.com/holdfast/holdfast/internal/pgtest"
)

// waitTimeout bounds every wait of a test for the database. Transactions of
// other tests on the same server hold back the tail's horizon too, so the
// delivery of a row can take a moment.
const waitTimeout = 5 * time.Minute

func execute(t *testing.T, db *pgxpool.Pool, sql string, args ...any) {
	t.Helper()
	if _, err := db.Exec(t.Context(), sql, args...); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

// ask returns the single value of a query.
func ask[T any](t *testing.T, db audit.Querier, sql string, args ...any) T {
	t.Helper()
	rows, err := db.Query(t.Context(), sql, args...)
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	value, err := pgx.CollectExactlyOneRow(rows, pgx.RowTo[T])
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return value
}

func subscribe(t *testing.T, db *pgxpool.Pool, name string, config audit.SubscriptionConfig) *audit.Subscription {
	t.Helper()
	sub, err := audit.Subscribe(t.Context(), db, name, config)
	if err != nil {
		t.Fatal(err)
	}
	return sub
}

// state returns the state of a subscription.
func state(t *testing.T, db *pgxpool.Pool, name string) audit.SubscriptionState {
	t.Helper()
	states, err := audit.Subscriptions(t.Context(), db)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range states {
		if s.Name == name {
			return s
		}
	}
	t.Fatalf("no subscription %q", name)
	return audit.SubscriptionState{}
}

// expireLease makes the lease expire, so that another process may take over.
func expireLease(t *testing.T, db *pgxpool.Pool, name string) {
	t.Helper()
	execute(t, db, `UPDATE audit_subscriptions SET lease_expires_at = clock_timestamp() WHERE name = $1`, name)
}

// step is the nth transition of a target.
func step(target uuid.UUID, n string) audit.Entry {
	return audit.Entry{TargetID: target, Action: "target.stepped", After: json.RawMessage(`{"step": ` + n + `}`)}
}

// writeSteps records n transitions of one new target, each in a separate
// transaction.
func writeSteps(t *testing.T, db *pgxpool.Pool, n int) {
	t.Helper()
	target := uuid.New()
	for range n {
		if err := write(t, db, step(target, "1")); err != nil {
			t.Fatal(err)
		}
	}
}

// collector is a handler that keeps the ids of its records.
type collector struct{ ids []int64 }

func (c *collector) take(_ context.Context, d *audit.Delivery) error {
	for _, r := range d.Records {
		c.ids = append(c.ids, r.AuditID)
	}
	return nil
}

// deliver runs the subscription until its handler has received n records in
// all, and returns their ids.
func deliver(t *testing.T, sub *audit.Subscription, n int) []int64 {
	t.Helper()
	var c collector
	pgtest.Until(t, "all records are delivered", func() bool {
		if _, err := sub.RunOnce(t.Context(), c.take); err != nil {
			t.Fatal(err)
		}
		return len(c.ids) >= n
	})
	return c.ids
}

// session is one connection with an open transaction, which has an id.
type session struct {
	t  *testing.T
	tx pgx.Tx
}

func begin(t *testing.T, db *pgxpool.Pool) *session {
	t.Helper()
	tx, err := db.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	return &session{t, tx}
}

// enter assigns the transaction its id, and returns it.
func (s *session) enter() int64 {
	s.t.Helper()
	return ask[int64](s.t, s.tx, `SELECT pg_current_xact_id()::text::bigint`)
}

func (s *session) write(e audit.Entry) {
	s.t.Helper()
	if err := audit.WriteTx(s.t.Context(), s.tx, []audit.Entry{e}); err != nil {
		s.t.Fatal(err)
	}
}

func (s *session) commit() {
	s.t.Helper()
	if err := s.tx.Commit(s.t.Context()); err != nil {
		s.t.Fatal(err)
	}
}
