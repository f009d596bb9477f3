package sweeper_test

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/audit"
	"github.com/holdfast/holdfast/internal/lanes"
	"github.com/holdfast/holdfast/internal/pgtest"
	"github.com/holdfast/holdfast/migrations"
	"github.com/holdfast/holdfast/sweeper"
)

const day = 24 * time.Hour

// The record is kept for ever, unless a retention is set. Then older rows are
// deleted, batch by batch up to the bound, except those that a subscription has
// not received.
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
	if _, err := audit.Subscribe(t.Context(), db, "slow", audit.SubscriptionConfig{FromBeginning: true}); err != nil {
		t.Fatal(err)
	}
	purge(0, sweeper.Config{AuditRetention: 8 * day})
	if err := audit.Unsubscribe(t.Context(), db, "slow"); err != nil {
		t.Fatal(err)
	}
	purge(2000, sweeper.Config{AuditRetention: 8 * day, PurgeMax: 1000}) // more than one batch
	purge(3000, sweeper.Config{AuditRetention: 8 * day})
	purge(0, sweeper.Config{AuditRetention: 8 * day})
	var left int
	if err := db.QueryRow(t.Context(), `SELECT count(*) FROM audit_log`).Scan(&left); err != nil || left != young {
		t.Errorf("%d rows are left, %v, want %d", left, err, young)
	}
	if _, err := sweeper.New(db, slog.New(slog.DiscardHandler), sweeper.Config{AuditRetention: 7 * day}); err == nil {
		t.Error("a record kept shorter than its holds was deleted")
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

// meteredFixture is a database with metered commands enabled.
type meteredFixture struct {
	pgtest.Fixture
	tenant uuid.UUID
}

func newMeteredFixture(t *testing.T) *meteredFixture {
	t.Helper()
	m := &meteredFixture{pgtest.NewFixture(t), uuid.New()}
	if err := migrations.Up(t.Context(), m.DB, &migrations.Config{Metered: true}); err != nil {
		t.Fatal(err)
	}
	return m
}

// token makes a token that expired the given time ago.
func (m *meteredFixture) token(subject string, ago time.Duration, spent bool) {
	m.TB.Helper()
	m.Exec(`INSERT INTO expiring_tokens (tenant_id, token_hash, purpose, subject, payload, created_at, expires_at, consumed_at)
		SELECT $1, sha256($2::text::bytea), 'admission', $2::text, 'null', at - interval '1 hour', at, CASE WHEN $4 THEN at - interval '1 minute' END
		FROM (SELECT clock_timestamp() - $3::interval AS at) AS expired`, m.tenant, subject, ago, spent)
}

// entry makes an entry of a budget of the given age.
func (m *meteredFixture) entry(scope string, age time.Duration) {
	m.TB.Helper()
	m.Exec(`INSERT INTO budget_ledger (tenant_id, scope, recorded_at, amount) VALUES ($1, $2, clock_timestamp() - $3::interval, 1)`, m.tenant, scope, age)
}

// scope makes a scope with a charge of the given age.
func (m *meteredFixture) scope(scope string, ago time.Duration) {
	m.TB.Helper()
	m.Exec(`INSERT INTO budget_scopes (tenant_id, scope, last_at, sums) VALUES ($1, $2, clock_timestamp() - $3::interval, '{}')`, m.tenant, scope, ago)
}

// rate makes a rate that is full after the given time.
func (m *meteredFixture) rate(scope string, after time.Duration) {
	m.TB.Helper()
	m.Exec(`INSERT INTO budget_rates (tenant_id, scope, full_at)
		VALUES ($1, $2, extract(epoch FROM clock_timestamp() + $3::interval) * 1000000000)`, m.tenant, scope, after)
}

// commandKey makes an idempotency key of the given age.
func (m *meteredFixture) commandKey(key string, age time.Duration) {
	m.TB.Helper()
	m.Exec(`INSERT INTO command_keys (tenant_id, queue, idempotency_key, command_id, kind, fingerprint, created_at)
		VALUES ($1, 'pictures', $2, gen_random_uuid(), 'enlarge', '', clock_timestamp() - $3::interval)`, m.tenant, key, age)
}

func (m *meteredFixture) sweeper(config sweeper.Config) *sweeper.Sweeper {
	m.TB.Helper()
	s, err := sweeper.New(m.DB, slog.New(slog.DiscardHandler), config)
	if err != nil {
		m.TB.Fatal(err)
	}
	return s
}

func (m *meteredFixture) purge(s *sweeper.Sweeper, want sweeper.PurgeReport) {
	m.TB.Helper()
	report, err := s.PurgeOnce(m.TB.Context(), nil)
	if diff := cmp.Diff(want, report); err != nil || diff != "" {
		m.TB.Errorf("purge: %v (-want +got):\n%s", err, diff)
	}
}

// left fails the test unless exactly these rows are left, by the column that
// identifies them.
func (m *meteredFixture) left(want map[string][]string) {
	m.TB.Helper()
	got := map[string][]string{}
	for table, name := range map[string]string{
		"expiring_tokens": "subject", "budget_ledger": "scope", "budget_scopes": "scope", "budget_rates": "scope",
		"command_keys": "idempotency_key",
	} {
		rows, err := m.DB.Query(m.TB.Context(), fmt.Sprintf(`SELECT %s FROM %s ORDER BY 1`, name, table))
		if err != nil {
			m.TB.Fatal(err)
		}
		got[table], err = pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			m.TB.Fatal(err)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		m.TB.Errorf("left (-want +got):\n%s", diff)
	}
}

// Only rows that have expired or been idle for longer than the retention are
// deleted. With the retention 0 none are.
func TestPurgeMetered(t *testing.T) {
	t.Parallel()
	m := newMeteredFixture(t)
	m.token("old", 49*time.Hour, false)
	m.token("old and spent", 49*time.Hour, true)
	m.token("spent", 47*time.Hour, true)
	m.token("expired", time.Second, false)
	m.token("good", -time.Hour, false)
	m.entry("old", 49*time.Hour)
	m.entry("young", 48*time.Hour) // a window may count an entry for a sixtieth of the window longer
	m.scope("busy", 0)
	m.scope("idle", 50*time.Hour)
	m.scope("nearly idle", 48*time.Hour)
	m.rate("full", -time.Second)
	m.rate("filling", time.Hour)
	m.commandKey("old", 49*time.Hour)
	m.commandKey("young", 47*time.Hour)
	all := map[string][]string{
		"expiring_tokens": {"expired", "good", "old", "old and spent", "spent"},
		"budget_ledger":   {"old", "young"},
		"budget_scopes":   {"busy", "idle", "nearly idle"},
		"budget_rates":    {"filling", "full"},
		"command_keys":    {"old", "young"},
	}

	m.purge(m.sweeper(sweeper.Config{}), sweeper.PurgeReport{})
	m.left(all)
	s := m.sweeper(sweeper.Config{MeteredRetention: 48 * time.Hour})
	m.purge(s, sweeper.PurgeReport{Tokens: 2, LedgerEntries: 1, Scopes: 1, Rates: 1, CommandKeys: 1})
	m.left(map[string][]string{
		"expiring_tokens": {"expired", "good", "spent"},
		"budget_ledger":   {"young"},
		"budget_scopes":   {"busy", "nearly idle"},
		"budget_rates":    {"filling"},
		"command_keys":    {"young"},
	})
	m.purge(s, sweeper.PurgeReport{})

	// A window of a day keeps all its entries, however short the retention.
	m.Exec(`UPDATE budget_scopes SET last_at = clock_timestamp() - interval '24 hours'`)
	m.Exec(`UPDATE budget_ledger SET recorded_at = clock_timestamp() - interval '24 hours'`)
	m.purge(m.sweeper(sweeper.Config{MeteredRetention: time.Minute}), sweeper.PurgeReport{Tokens: 1, CommandKeys: 1})
	m.left(map[string][]string{
		"expiring_tokens": {"expired", "good"},
		"budget_ledger":   {"young"},
		"budget_scopes":   {"busy", "nearly idle"},
		"budget_rates":    {"filling"},
		"command_keys":    {},
	})
}

// Several purges read a table that is longer than the bound of one, and then
// read it again from its beginning.
func TestPurgeWalksOn(t *testing.T) {
	t.Parallel()
	m := newMeteredFixture(t)
	m.Exec(`INSERT INTO budget_scopes (tenant_id, scope, last_at, sums)
		SELECT $1, to_char(n, '0000'), clock_timestamp() - CASE WHEN n > 4000 THEN interval '49 hours' ELSE '1 hour' END, '{}'
		FROM generate_series(1, 5000) AS n`, m.tenant)
	m.Exec(`INSERT INTO budget_rates (tenant_id, scope, full_at)
		SELECT $1, to_char(n, '0000'), extract(epoch FROM clock_timestamp() + CASE WHEN n > 2000 THEN interval '-1 second' ELSE '1 hour' END) * 1000000000
		FROM generate_series(1, 2500) AS n`, m.tenant)
	s := m.sweeper(sweeper.Config{MeteredRetention: 48 * time.Hour, PurgeMax: 1000}) // a whole batch of 2,000
	m.purge(s, sweeper.PurgeReport{})
	m.purge(s, sweeper.PurgeReport{Rates: 500})
	m.purge(s, sweeper.PurgeReport{Scopes: 1000})
	m.scope("", 49*time.Hour)
	m.rate("", -time.Second)
	m.purge(s, sweeper.PurgeReport{Scopes: 1}) // the first purge read a full batch of rates, and this one finds the end of the table
	m.purge(s, sweeper.PurgeReport{Rates: 1})
}

// Several purges reach the old requests behind more kept ones than one purge
// reads, and then read the stream from its beginning again.
func TestPurgeReachesRequestsBehindKeptOnes(t *testing.T) {
	t.Parallel()
	s := newFixture(t)
	insert := func(status string, n int) {
		s.Exec(`INSERT INTO reservation_requests (tenant_id, request_id, lane, cart_id, variant_id, quantity, status, updated_at)
			SELECT $1, gen_random_uuid(), 'hot', 'cart', 'v1', 1, $2, clock_timestamp() - interval '10 days' FROM generate_series(1, $3::integer)`,
			s.tenant, status, n)
	}
	insert("queued", 5000)
	insert("done", 10)
	sw := s.sweeper(sweeper.Config{PurgeMax: 2000}) // one batch
	purge := func(deleted int64, more bool) {
		t.Helper()
		report, err := sw.PurgeOnce(t.Context(), []lanes.Stream{{Lane: lanes.Hot}})
		if want := (sweeper.PurgeReport{Requests: deleted, More: more}); err != nil || report != want {
			t.Errorf("%+v, %v, want %+v", report, err, want)
		}
	}
	purge(0, true)
	purge(0, true)
	purge(10, false)
	s.Exec(`UPDATE reservation_requests SET status = 'done' WHERE sequence = (SELECT min(sequence) FROM reservation_requests)`)
	purge(1, true)
}

// Concurrent purges share the work: each row is deleted by one of them.
func TestMeteredPurgesAtOnce(t *testing.T) {
	t.Parallel()
	m := newMeteredFixture(t)
	const rows = 7000
	m.Exec(`INSERT INTO budget_scopes (tenant_id, scope, last_at, sums)
		SELECT $1, n, clock_timestamp() - interval '49 hours', '{}' FROM generate_series(1, $2::integer) AS n`, m.tenant, rows)
	m.Exec(`INSERT INTO budget_rates (tenant_id, scope, full_at) SELECT $1, n, 0 FROM generate_series(1, $2::integer) AS n`, m.tenant, rows)
	m.Exec(`INSERT INTO command_keys (tenant_id, queue, idempotency_key, command_id, kind, fingerprint, created_at)
		SELECT $1, 'pictures', n, gen_random_uuid(), 'enlarge', '', clock_timestamp() - interval '49 hours' FROM generate_series(1, $2::integer) AS n`, m.tenant, rows)
	shared := m.sweeper(sweeper.Config{MeteredRetention: 48 * time.Hour})
	var scopes, rates, keys atomic.Int64
	var purges sync.WaitGroup
	for _, s := range []*sweeper.Sweeper{shared, shared, m.sweeper(sweeper.Config{MeteredRetention: 48 * time.Hour})} {
		purges.Go(func() {
			report, err := s.PurgeOnce(t.Context(), nil)
			if err != nil {
				t.Error(err)
			}
			scopes.Add(report.Scopes)
			rates.Add(report.Rates)
			keys.Add(report.CommandKeys)
		})
	}
	purges.Wait()
	m.purge(shared, sweeper.PurgeReport{ // rows that two purges may both read
		Scopes: rows - scopes.Load(), Rates: rows - rates.Load(), CommandKeys: rows - keys.Load(),
	})
	m.left(map[string][]string{"expiring_tokens": {}, "budget_ledger": {}, "budget_scopes": {}, "budget_rates": {}, "command_keys": {}})
}

// The report of a database without metered commands has no fields of them.
func TestPurgeReport(t *testing.T) {
	t.Parallel()
	for want, report := range map[string]sweeper.PurgeReport{
		`{"requests":1,"reservations":2,"idempotency_keys":3,"audit_rows":4,"checkouts":0,"more":false}`: {Requests: 1, Reservations: 2, IdempotencyKeys: 3, AuditRows: 4},
		`{"requests":0,"reservations":0,"idempotency_keys":0,"audit_rows":0,"checkouts":0,"more":false,"expiring_tokens":1,"budget_ledger":2,"budget_scopes":3,"budget_rates":5,"command_keys":4}`: {
			Tokens: 1, LedgerEntries: 2, Scopes: 3, Rates: 5, CommandKeys: 4,
		},
	} {
		got, err := json.Marshal(report)
		if err != nil || string(got) != want {
			t.Errorf("%s, %v, want %s", got, err, want)
		}
	}
}
