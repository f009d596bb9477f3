package audit_test

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/audit"
	"github.com/holdfast/holdfast/internal/pg"
	"github.com/holdfast/holdfast/internal/pgtest"
)

func write(t *testing.T, db *pgxpool.Pool, entries ...audit.Entry) error {
	t.Helper()
	return pgx.BeginFunc(t.Context(), db, func(tx pgx.Tx) error { return audit.WriteTx(t.Context(), tx, entries) })
}

func history(t *testing.T, db *pgxpool.Pool, tenant, target uuid.UUID) []audit.Record {
	t.Helper()
	records, err := audit.History(t.Context(), db, tenant, target)
	if err != nil {
		t.Fatal(err)
	}
	return records
}

// Entries are read back unchanged, in their order.
func TestWriteAndRead(t *testing.T) {
	t.Parallel()
	db, tenant, target, other := pgtest.New(t), uuid.New(), uuid.New(), uuid.New()
	var entries []audit.Entry
	for i, actor := range []audit.Actor{audit.User("hf_shop00"), audit.Job("expiry"), audit.System(), audit.Anonymous(), {}} {
		entries = append(entries,
			audit.Entry{
				TenantID: tenant, TargetID: target, Action: fmt.Sprint("thing.", i),
				Origin: audit.Origin{Actor: actor, CorrelationID: "c-1", Reason: "because “of\n it"},
				Before: json.RawMessage(`{"n": 0}`), After: json.RawMessage(`{"n": 1}`),
			},
			audit.Entry{TenantID: tenant, TargetID: other, Action: "other.made", After: json.RawMessage(`{}`)})
	}
	if err := write(t, db, entries...); err != nil {
		t.Fatal(err)
	}
	var want []audit.Entry
	for _, e := range entries {
		if e.TargetID == target {
			if e.Actor.Kind == "" {
				e.Actor.Kind = "system" // the default kind of an actor
			}
			want = append(want, e)
		}
	}
	records := history(t, db, tenant, target)
	var got []audit.Entry
	for i, r := range records {
		got = append(got, r.Entry)
		if r.CreatedAt.IsZero() || (i > 0 && r.AuditID <= records[i-1].AuditID) {
			t.Errorf("record %d: audit id %d at %s", i, r.AuditID, r.CreatedAt)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if others := history(t, db, tenant, other); len(others) != 5 || others[0].Before != nil || others[0].CorrelationID != "" {
		t.Errorf("the record of the other target: %+v", others)
	}
	for _, none := range [][2]uuid.UUID{{uuid.New(), target}, {tenant, uuid.New()}} {
		if records := history(t, db, none[0], none[1]); len(records) != 0 {
			t.Errorf("%d records of targets that the tenant does not have", len(records))
		}
	}
}

// For a long history, History returns the newest rows, the oldest of these
// first.
func TestHistoryBound(t *testing.T) {
	t.Parallel()
	db, tenant, target := pgtest.New(t), uuid.New(), uuid.New()
	entries := make([]audit.Entry, audit.HistoryMax+5)
	for i := range entries {
		entries[i] = audit.Entry{TenantID: tenant, TargetID: target, Action: fmt.Sprint("thing.", i), After: json.RawMessage(`{}`)}
	}
	if err := write(t, db, entries...); err != nil {
		t.Fatal(err)
	}
	records := history(t, db, tenant, target)
	if len(records) != audit.HistoryMax {
		t.Fatalf("%d records, want %d", len(records), audit.HistoryMax)
	}
	for i, r := range records {
		if want := fmt.Sprint("thing.", i+5); r.Action != want {
			t.Fatalf("record %d is %s, want %s", i, r.Action, want)
		}
	}
}

// A transaction that is rolled back records nothing. Nothing is recorded either
// if one of the entries is invalid, or if the list is empty.
func TestAllOrNothing(t *testing.T) {
	t.Parallel()
	db, tenant, target := pgtest.New(t), uuid.New(), uuid.New()
	if err := write(t, db); err != nil {
		t.Error(err)
	}
	good := audit.Entry{TenantID: tenant, TargetID: target, Action: "thing.made", After: json.RawMessage(`{}`)}
	for name, spoil := range map[string]func(*audit.Entry){
		"no after":      func(e *audit.Entry) { e.After = nil },
		"invalid JSON":  func(e *audit.Entry) { e.After = json.RawMessage(`{`) },
		"unknown actor": func(e *audit.Entry) { e.Actor.Kind = "robot" },
	} {
		bad := good
		spoil(&bad)
		if err := write(t, db, good, bad); !pg.IsData(err) {
			t.Errorf("%s: %v, want an error of the row", name, err)
		}
	}
	if records := history(t, db, tenant, target); len(records) != 0 {
		t.Errorf("%d records of uncommitted entries", len(records))
	}
}

// The UUID of a text key never changes, because it is the key of searches in
// the log.
func TestTargetOf(t *testing.T) {
	t.Parallel()
	tenant := uuid.MustParse("0193a000-0000-7000-8000-000000000001")
	other := uuid.MustParse("0193a000-0000-7000-8000-000000000002")
	if got, want := audit.TargetOf(tenant, "stock", "rolls/buns").String(), "362f6116-fff3-5b7e-a481-16c9db0eebf9"; got != want {
		t.Errorf("the stock of rolls/buns is %s, want %s", got, want)
	}
	seen := map[uuid.UUID]string{}
	for name, target := range map[string]uuid.UUID{
		"a stock": audit.TargetOf(tenant, "stock", "a"), "another stock": audit.TargetOf(tenant, "stock", "b"),
		"another kind": audit.TargetOf(tenant, "lane", "a"), "another tenant": audit.TargetOf(other, "stock", "a"),
		"the key split at another place": audit.TargetOf(tenant, "stoc", "ka"), "no key": audit.TargetOf(tenant, "stock", ""),
	} {
		if twin, ok := seen[target]; ok {
			t.Errorf("%s and %s have the same id", name, twin)
		}
		seen[target] = name
	}
}

// A record as JSON, as the HTTP API returns it.
func TestRecordJSON(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 2, 12, 0, 0, 123456000, time.UTC)
	full := audit.Record{AuditID: 7, CreatedAt: at, Entry: audit.Entry{
		TenantID: uuid.New(), TargetID: uuid.New(), Action: "thing.changed",
		Origin: audit.Origin{Actor: audit.User("hf_shop00"), CorrelationID: "c-1", Reason: "damaged"},
		Before: json.RawMessage(`{"n":0}`), After: json.RawMessage(`{"n":1}`),
	}}
	bare := audit.Record{AuditID: 8, CreatedAt: at, Entry: audit.Entry{Action: "thing.made", Origin: audit.Origin{Actor: audit.System()}, After: json.RawMessage(`{}`)}}
	for want, r := range map[string]audit.Record{
		`{"audit_id":7,"action":"thing.changed","actor_kind":"user","actor_id":"hf_shop00","correlation_id":"c-1","reason":"damaged","before":{"n":0},"after":{"n":1},"created_at":"2026-11-02T12:00:00.123456Z"}`: full,
		`{"audit_id":8,"action":"thing.made","actor_kind":"system","before":null,"after":{},"created_at":"2026-11-02T12:00:00.123456Z"}`:                                                                           bare,
	} {
		got, err := json.Marshal(r)
		if err != nil || string(got) != want {
			t.Errorf("%s, %v, want %s", got, err, want)
		}
	}
}
