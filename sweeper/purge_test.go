package sweeper_test

import (
	"encoding/json"
	"log/slog"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/audit"
	"github.com/holdfast/holdfast/internal/pgtest"
	"github.com/holdfast/holdfast/sweeper"
)

const day = 24 * time.Hour

// The record is kept for ever, unless a retention is set; then what is older goes, batch by batch up to the bound, but
// nothing that a subscription was not given.
func TestPurgeOfTheRecord(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	const old, young = 5000, 10
	record(t, db, old+young)
	if _, err := db.Exec(t.Context(), `UPDATE audit_log SET created_at = created_at - interval '9 days' WHERE audit_id <= $1`, old); err != nil {
		t.Fatal(err)
	}
	purge := func(want int64, config sweeper.Config) {
		t.Helper()
		s, err := sweeper.New(db, slog.New(slog.DiscardHandler), config)
		if err != nil {
			t.Fatal(err)
		}
		report, err := s.PurgeOnce(t.Context(), nil)
		if err != nil || report != (sweeper.PurgeReport{AuditRows: want, More: config.PurgeMax > 0}) {
			t.Errorf("%+v: %+v, %v, want %d audit rows", config, report, err, want)
		}
	}
	purge(0, sweeper.Config{})
	purge(0, sweeper.Config{AuditRetention: 10 * day})
	if _, err := audit.Subscribe(t.Context(), db, "slow", audit.SubscriptionConfig{From: audit.FromBeginning}); err != nil {
		t.Fatal(err)
	}
	purge(0, sweeper.Config{AuditRetention: 8 * day})
	if err := audit.Unsubscribe(t.Context(), db, "slow"); err != nil {
		t.Fatal(err)
	}
	purge(2000, sweeper.Config{AuditRetention: 8 * day, PurgeMax: 1000}) // a whole batch, and more
	purge(3000, sweeper.Config{AuditRetention: 8 * day})
	purge(0, sweeper.Config{AuditRetention: 8 * day})
	var left int
	if err := db.QueryRow(t.Context(), `SELECT count(*) FROM audit_log`).Scan(&left); err != nil || left != young {
		t.Errorf("%d rows are left, %v, want %d", left, err, young)
	}
	if _, err := sweeper.New(db, slog.New(slog.DiscardHandler), sweeper.Config{AuditRetention: 7 * day}); err == nil {
		t.Error("a record kept shorter than the holds it tells of was taken")
	}
}

func record(t *testing.T, db *pgxpool.Pool, n int) {
	t.Helper()
	entries := make([]audit.Entry, n)
	for i := range entries {
		entries[i] = audit.Entry{TargetID: uuid.New(), Action: "thing.made", After: json.RawMessage(`{}`)}
	}
	err := pgx.BeginFunc(t.Context(), db, func(tx pgx.Tx) error { return audit.WriteTx(t.Context(), tx, entries) })
	if err != nil {
		t.Fatal(err)
	}
}
