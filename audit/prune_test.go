package audit_test

import (
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/audit"
	"github.com/holdfast/holdfast/internal/pgtest"
)

func prune(t *testing.T, db *pgxpool.Pool, retention time.Duration, limit int) int64 {
	t.Helper()
	n, err := audit.Prune(t.Context(), db, retention, limit)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// age moves the times of the records with ids up to last two days back.
func age(t *testing.T, db *pgxpool.Pool, last int64) {
	t.Helper()
	execute(t, db, `UPDATE audit_log SET created_at = created_at - interval '2 days' WHERE audit_id <= $1`, last)
}

func left(t *testing.T, db *pgxpool.Pool) []int64 {
	t.Helper()
	return ask[[]int64](t, db, `SELECT coalesce(array_agg(audit_id ORDER BY audit_id), '{}') FROM audit_log`)
}

// Pruning deletes old rows, the oldest first and a bounded number per call. It
// keeps the newer part of a target's history.
func TestPrune(t *testing.T) {
	t.Parallel()
	db, tenant, target := pgtest.New(t), uuid.New(), uuid.New()
	for range 10 {
		e := step(target, "1")
		e.TenantID = tenant
		if err := write(t, db, e); err != nil {
			t.Fatal(err)
		}
	}
	age(t, db, 7)
	if n := prune(t, db, 72*time.Hour, 100); n != 0 {
		t.Errorf("%d records were pruned too early", n)
	}
	for _, want := range []int64{3, 3, 1, 0} {
		if n := prune(t, db, 24*time.Hour, 3); n != want {
			t.Errorf("%d records were pruned, want %d", n, want)
		}
	}
	if ids := left(t, db); !slices.Equal(ids, []int64{8, 9, 10}) {
		t.Errorf("%v are left, want 8, 9, 10", ids)
	}
	if records := history(t, db, tenant, target); len(records) != 3 || records[0].AuditID != 8 {
		t.Errorf("the history of a pruned target: %+v", records)
	}
	if ids := deliver(t, subscribe(t, db, "new", audit.SubscriptionConfig{FromBeginning: true}), 3); !slices.Equal(ids, []int64{8, 9, 10}) {
		t.Errorf("a new subscription received %v", ids)
	}
}

// Pruning stops at the slowest subscription. It continues when that
// subscription advances or is removed.
func TestPruneWaitsForSubscriptions(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	config := audit.SubscriptionConfig{FromBeginning: true, Batch: 4}
	slow, quick := subscribe(t, db, "slow", config), subscribe(t, db, "quick", config)
	writeSteps(t, db, 10)
	age(t, db, 10)
	deliver(t, quick, 10)
	if n := prune(t, db, 24*time.Hour, 100); n != 0 {
		t.Errorf("%d records were pruned that a subscription had not received", n)
	}
	deliver(t, slow, 4)
	if n := prune(t, db, 24*time.Hour, 100); n != 4 {
		t.Errorf("%d records were pruned, want the 4 that both have received", n)
	}
	if s := state(t, db, "slow"); s.Lag != 6 || s.LagSeconds < 24*3600 {
		t.Errorf("the slow one: %+v", s)
	}
	if ids := deliver(t, slow, 4); !slices.Equal(ids, []int64{5, 6, 7, 8}) {
		t.Errorf("the slow one received %v", ids)
	}
	if err := audit.Unsubscribe(t.Context(), db, "slow"); err != nil {
		t.Fatal(err)
	}
	if n := prune(t, db, 24*time.Hour, 100); n != 6 {
		t.Errorf("%d records were pruned, want the other 6", n)
	}
	if ids := left(t, db); len(ids) != 0 {
		t.Errorf("%v are left", ids)
	}
}

// ReconstructState returns a target's state from its record, even after
// pruning.
func TestReconstructState(t *testing.T) {
	t.Parallel()
	record := func(after string) audit.Record {
		return audit.Record{AuditID: 7, Entry: audit.Entry{After: []byte(after)}}
	}
	state, err := audit.ReconstructState([]audit.Record{record(`{"a": 1, "b": {"x": 1}}`), record(`{"b": {"y": 2}, "c": null}`)})
	if err != nil || len(state) != 3 || string(state["a"]) != "1" || string(state["b"]) != `{"y": 2}` || string(state["c"]) != "null" {
		t.Errorf("%s, %v", state, err)
	}
	if state, err := audit.ReconstructState(nil); state != nil || err != nil {
		t.Errorf("without records: %v, %v", state, err)
	}
	for _, after := range []string{``, `7`, `null`, `[]`, `{`} {
		if _, err := audit.ReconstructState([]audit.Record{record(after)}); err == nil {
			t.Errorf("a state of %q was accepted", after)
		}
	}
}
