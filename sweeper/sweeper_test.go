package sweeper_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/internal/inventory"
	"github.com/holdfast/holdfast/internal/lanes"
	"github.com/holdfast/holdfast/internal/pgtest"
	"github.com/holdfast/holdfast/sweeper"
)

// fixture is a database with holds of a few variants.
type fixture struct {
	pgtest.Fixture
	tenant uuid.UUID
	log    pgtest.Log
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	s := &fixture{Fixture: pgtest.NewFixture(t), tenant: uuid.New()}
	s.Exec(`INSERT INTO inventory_stocks (tenant_id, variant_id, stock) SELECT $1, 'v' || n, 1000000 FROM generate_series(0, 4) AS n`, s.tenant)
	return s
}

// hold makes n holds that become due after left, or that have been due for
// -left if left is negative.
func (s *fixture) hold(n int, left time.Duration) {
	s.TB.Helper()
	s.Exec(`INSERT INTO reservations
			(tenant_id, reservation_id, resource_kind, resource_key, holder_id, quantity, first_held_at, held_at, expires_at)
		SELECT $1, gen_random_uuid(), $2, 'v' || n % 5, 'cart-' || n, 1, now - interval '1 day', now - interval '1 day', now + $4::interval
		FROM generate_series(1, $3::integer) AS n, (SELECT clock_timestamp() AS now) AS clock`, s.tenant, inventory.Kind, n, left)
	s.Exec(`UPDATE inventory_stocks s SET reserved = (SELECT count(*) FROM reservations r WHERE r.resource_key = s.variant_id AND r.status = 'held')`)
}

func (s *fixture) sweeper(config sweeper.Config) *sweeper.Sweeper {
	s.TB.Helper()
	sw, err := sweeper.New(s.DB, slog.New(slog.NewTextHandler(&s.log, nil)), config)
	if err != nil {
		s.TB.Fatal(err)
	}
	return sw
}

// left fails the test unless that many holds are left, by their rows and by the
// counters.
func (s *fixture) left(want int64) {
	s.TB.Helper()
	if n := s.Int(`SELECT count(*) FROM reservations WHERE status = 'held'`); n != want {
		s.TB.Errorf("%d are held, want %d", n, want)
	}
	if n := s.Int(`SELECT sum(reserved) FROM inventory_stocks`); n != want {
		s.TB.Errorf("%d are reserved, want %d", n, want)
	}
	expired, recorded := s.Int(`SELECT count(*) FROM reservations WHERE status = 'expired'`), s.Int(`SELECT count(*) FROM audit_log WHERE action = 'reservation.expired'`)
	if expired != recorded {
		s.TB.Errorf("%d expired, %d recorded", expired, recorded)
	}
}

func TestRunOnce(t *testing.T) {
	t.Parallel()
	s := newFixture(t)
	s.hold(7, time.Hour)
	s.hold(23, -time.Second)
	sw := s.sweeper(sweeper.Config{Batch: 5})
	before := s.now()
	report, err := sw.RunOnce(t.Context())
	if err != nil || report.ExpiredCount != 23 {
		t.Errorf("%+v, %v; want 23 expired", report, err)
	}
	if report.ScannedAt.Before(before) || report.ScannedAt.After(s.now()) {
		t.Errorf("scanned at %s, the database's clock says between %s and %s", report.ScannedAt, before, s.now())
	}
	s.left(7)
	again, err := sw.RunOnce(t.Context())
	if err != nil || again.ExpiredCount != 0 || !again.ScannedAt.After(report.ScannedAt) {
		t.Errorf("a second sweep: %+v, %v; want none", again, err)
	}
	if s.log.String() != "" {
		t.Errorf("it logged: %s", s.log.String())
	}
	raw, err := json.Marshal(report)
	if want := `{"expired_count":23,"scanned_at":"`; err != nil || !strings.HasPrefix(string(raw), want) {
		t.Errorf("%s, %v, want %s…", raw, err, want)
	}
}

func (s *fixture) now() (now time.Time) {
	s.TB.Helper()
	if err := s.DB.QueryRow(s.TB.Context(), `SELECT clock_timestamp()`).Scan(&now); err != nil {
		s.TB.Fatal(err)
	}
	return now
}

// A backlog larger than the bound is left to the next sweep, and reported.
func TestBacklog(t *testing.T) {
	t.Parallel()
	s := newFixture(t)
	s.hold(50, -time.Second)
	sw := s.sweeper(sweeper.Config{Batch: 10, BatchesMax: 2})
	for i, want := range []struct {
		expired int
		left    int64
		more    bool
	}{{20, 30, true}, {20, 10, true}, {10, 0, false}} {
		report, err := sw.RunOnce(t.Context())
		if err != nil || report.ExpiredCount != want.expired || report.More != want.more || report.ExpiredCount == 0 {
			t.Errorf("sweep %d: %+v, %v; want %+v", i, report, err, want)
		}
		s.left(want.left)
	}
}

// deadline is a context whose time is up once a number of statements that match
// have ended. It traces the statements of its connections.
type deadline struct {
	context.Context
	matches func(sql string) bool
	left    atomic.Int32
	done    chan struct{}
}

type tracedSQL struct{}

func (d *deadline) Done() <-chan struct{} { return d.done }

func (d *deadline) Err() error {
	select {
	case <-d.done:
		return context.DeadlineExceeded
	default:
		return nil
	}
}

func (d *deadline) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	return context.WithValue(ctx, tracedSQL{}, data.SQL)
}

func (d *deadline) TraceQueryEnd(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryEndData) {
	if sql, _ := ctx.Value(tracedSQL{}).(string); d.matches(sql) && d.left.Add(-1) == 0 {
		close(d.done)
	}
}

// reachesItsTime calls pass until it reports no more, at first with a deadline
// after one statement that matches, and with one more each time. Once a pass
// ended at its deadline with work done, the others have no deadline. It fails
// the test if no pass did, or if one has an error although it did some work.
func (s *fixture) reachesItsTime(matches func(sql string) bool, pass func(context.Context, *pgxpool.Pool) (did int64, more, unfinished bool, err error)) {
	s.TB.Helper()
	bounded, more := false, true
	for n := int32(1); more && n < 100; n++ {
		ctx := &deadline{Context: s.TB.Context(), matches: matches, done: make(chan struct{})}
		if !bounded {
			ctx.left.Store(n)
		}
		config := s.DB.Config()
		config.ConnConfig.Tracer = ctx
		db, err := pgxpool.NewWithConfig(s.TB.Context(), config)
		pgtest.Must(s.TB, err)
		did, left, unfinished, err := pass(ctx, db)
		db.Close()
		if (err != nil) != (ctx.Err() != nil && did == 0) {
			s.TB.Fatalf("pass %d: did %d, more %t, %v", n, did, left, err)
		}
		bounded, more = bounded || unfinished, err != nil || left
	}
	if !bounded || more {
		s.TB.Errorf("a pass reached its time: %t; more is left: %t", bounded, more)
	}
}

// 2,000 holds of one variant are due, and a sweep has too little time for them.
// It reports more, without an error. Only a sweep that expires nothing in its
// time returns an error.
func TestSweepReachesItsTime(t *testing.T) {
	t.Parallel()
	s := newFixture(t)
	const due = 2000
	s.hold(due, -time.Second)
	s.Exec(`UPDATE reservations SET resource_key = 'v0'`)
	s.Exec(`UPDATE inventory_stocks SET reserved = CASE variant_id WHEN 'v0' THEN $1 ELSE 0 END`, due)
	commits := func(sql string) bool { return sql == "commit" }
	s.reachesItsTime(commits, func(ctx context.Context, db *pgxpool.Pool) (did int64, more, unfinished bool, err error) {
		sw, err := sweeper.New(db, slog.New(slog.DiscardHandler), sweeper.Config{Batch: 200})
		pgtest.Must(t, err)
		report, err := sw.RunOnce(ctx)
		return int64(report.ExpiredCount), report.More, report.More && report.ExpiredCount > 0, err
	})
	s.left(0) // reports leave out a batch if the context ended during its commit
}

// A purge that reaches its deadline reports more, without an error. The next
// ones delete the rest.
func TestPurgeReachesItsTime(t *testing.T) {
	t.Parallel()
	s := newFixture(t)
	const old = 10_000 // five batches
	s.Exec(`INSERT INTO reservation_requests (tenant_id, request_id, lane, cart_id, variant_id, quantity, status, updated_at)
		SELECT $1, gen_random_uuid(), 'hot', 'cart', 'v1', 1, 'done', clock_timestamp() - interval '10 days' FROM generate_series(1, $2::integer)`,
		s.tenant, old)
	deletes := func(sql string) bool { return strings.Contains(sql, "DELETE FROM reservation_requests") }
	s.reachesItsTime(deletes, func(ctx context.Context, db *pgxpool.Pool) (did int64, more, unfinished bool, err error) {
		sw, err := sweeper.New(db, slog.New(slog.DiscardHandler), sweeper.Config{})
		pgtest.Must(t, err)
		report, err := sw.PurgeOnce(ctx, []lanes.Stream{{Lane: lanes.Hot}})
		return report.Requests, report.More, report.Unfinished(), err
	})
	if n := s.Int(`SELECT count(*) FROM reservation_requests`); n != 0 {
		t.Errorf("%d are left, want 0", n)
	}
}

// Concurrent sweeps share the work: each hold is expired by one of them.
func TestSweepsAtOnce(t *testing.T) {
	t.Parallel()
	s := newFixture(t)
	s.hold(300, -time.Minute) // for so long that a sweep waits for a stock
	sw := s.sweeper(sweeper.Config{Batch: 20})
	var total atomic.Int64
	var sweeps sync.WaitGroup
	for range 3 {
		sweeps.Go(func() {
			report, err := sw.RunOnce(context.Background())
			if err != nil {
				t.Error(err)
			}
			total.Add(int64(report.ExpiredCount))
		})
	}
	sweeps.Wait()
	if n := total.Load(); n != 300 {
		t.Errorf("%d expired in all, want 300", n)
	}
	s.left(0)
}

// A sweep that fails keeps the expiries of its earlier batches, and those of
// other variants in the failed one, and reports their number.
func TestSweepFailsHalfway(t *testing.T) {
	t.Parallel()
	s := newFixture(t)
	s.hold(10, -time.Hour)
	s.hold(10, -time.Minute)
	s.Exec(`UPDATE reservations SET holder_id = 'bad' WHERE reservation_id = (SELECT reservation_id FROM reservations ORDER BY expires_at DESC LIMIT 1)`)
	s.Exec(`ALTER TABLE reservations ADD CONSTRAINT poison CHECK (holder_id <> 'bad') NOT VALID`)
	report, err := s.sweeper(sweeper.Config{Batch: 10}).RunOnce(t.Context())
	if err == nil || report.ExpiredCount != 18 {
		t.Errorf("%+v, %v; want 18 expired, and an error", report, err)
	}
	s.left(2)
}

// A variant with inconsistent counters has more of the longest due holds than a
// whole sweep expires. It is skipped and reported, and blocks no other
// variant's expiry, in this sweep and the next.
func TestSweepSkipsABrokenVariant(t *testing.T) {
	t.Parallel()
	s := newFixture(t)
	s.hold(400, -time.Hour)
	s.Exec(`UPDATE reservations SET resource_key = 'v0'`)
	s.hold(50, -time.Minute)
	s.Exec(`UPDATE reservations SET resource_key = 'v1' WHERE resource_key = 'v0' AND expires_at > clock_timestamp() - interval '30 minutes'`)
	s.Exec(`UPDATE inventory_stocks s SET reserved = (SELECT count(*) FROM reservations r WHERE r.resource_key = s.variant_id AND r.status = 'held')`)
	s.Exec(`UPDATE inventory_stocks SET reserved = 7 WHERE variant_id = 'v0'`)
	sw := s.sweeper(sweeper.Config{Batch: 20, BatchesMax: 10})
	for sweep, want := range []int{50, 0} {
		report, err := sw.RunOnce(t.Context())
		if err == nil || report.ExpiredCount != want {
			t.Errorf("sweep %d: %+v, %v; want %d expired and an error", sweep, report, err, want)
		}
		if len(report.Skipped) != 1 || report.Skipped[0].TenantID != s.tenant || report.Skipped[0].VariantID != "v0" || report.Skipped[0].Error == "" {
			t.Errorf("sweep %d skipped %+v, want only v0", sweep, report.Skipped)
		}
	}
	if n := strings.Count(s.log.String(), "level=ERROR"); n != 2 || !strings.Contains(s.log.String(), "tenant_id="+s.tenant.String()+" variant_id=v0") {
		t.Errorf("%d errors logged, want one of v0 each sweep:\n%s", n, s.log.String())
	}
	if strings.Contains(s.log.String(), "backlog") {
		t.Errorf("holds that cannot be expired count as a backlog:\n%s", s.log.String())
	}
	if n := s.Int(`SELECT count(*) FROM reservations WHERE status = 'held' AND resource_key = 'v0'`); n != 400 {
		t.Errorf("%d holds of the broken variant are left, want all 400", n)
	}
	s.Exec(`UPDATE inventory_stocks SET reserved = 400 WHERE variant_id = 'v0'`)
	if report, err := s.sweeper(sweeper.Config{}).RunOnce(t.Context()); err != nil || report.ExpiredCount != 400 || report.Skipped != nil {
		t.Errorf("once it is repaired: %+v, %v", report, err)
	}
	s.left(0)
}

// A variant whose stock is locked by another transaction is left to the next
// sweep, without an error, and blocks no other variant.
func TestSweepSkipsALockedVariant(t *testing.T) {
	t.Parallel()
	s := newFixture(t)
	s.hold(200, -time.Hour)
	stuck, err := s.DB.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = stuck.Rollback(t.Context()) }()
	if _, err := stuck.Exec(t.Context(), `SELECT FROM inventory_stocks WHERE variant_id IN ('v1', 'v2') FOR NO KEY UPDATE`); err != nil {
		t.Fatal(err)
	}
	sw := s.sweeper(sweeper.Config{Batch: 10, BatchesMax: 30})
	report, err := sw.RunOnce(t.Context())
	if err != nil || report.ExpiredCount != 120 || len(report.Skipped) != 2 {
		t.Errorf("%+v, %v; want 120 expired and 2 variants skipped", report, err)
	}
	if n := strings.Count(s.log.String(), "level=WARN"); n != 2 {
		t.Errorf("%d warnings, want one of each variant:\n%s", n, s.log.String())
	}
	if err := stuck.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if report, err := sw.RunOnce(t.Context()); err != nil || report.ExpiredCount != 80 || report.Skipped != nil {
		t.Errorf("once it is free: %+v, %v", report, err)
	}
	s.left(0)
}

// Purge deletes only old finished rows: requests, ended holds a day later,
// stored answers, checkouts with their keys.
func TestPurgeOnce(t *testing.T) {
	t.Parallel()
	s := newFixture(t)
	s.hold(3, time.Hour)
	s.hold(40, -time.Second)
	sw := s.sweeper(sweeper.Config{RequestRetention: 48 * time.Hour})
	if _, err := sw.RunOnce(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.Exec(`UPDATE reservations r
		SET ended_at = r.ended_at - old.age, expires_at = r.expires_at - old.age
		FROM (SELECT reservation_id, CASE holder_id WHEN 'cart-1' THEN interval '73 hours' ELSE interval '71 hours' END AS age FROM reservations) AS old
		WHERE r.reservation_id = old.reservation_id AND r.status = 'expired'`)
	for status, age := range map[string]string{"done": "49 hours", "failed": "47 hours", "queued": "49 hours"} {
		for _, lane := range []string{"normal", "hot"} {
			s.Exec(`INSERT INTO reservation_requests (tenant_id, request_id, lane, cart_id, variant_id, quantity, status, reason, updated_at)
				SELECT $1, gen_random_uuid(), $2, 'cart', 'v1', 1, $3, CASE $3 WHEN 'failed' THEN 'cancelled' END, clock_timestamp() - $4::text::interval
				FROM generate_series(1, 5)`, s.tenant, lane, status, age)
		}
	}
	for key, age := range map[string]string{"old": "49 hours", "young": "47 hours"} {
		s.Exec(`INSERT INTO idempotency_keys (tenant_id, idempotency_key, fingerprint, created_at)
			VALUES ($1, $2, '', clock_timestamp() - $3::text::interval)`, s.tenant, key, age)
	}
	for _, c := range []struct{ status, age string }{{"committed", "49 hours"}, {"committed", "47 hours"}, {"validating", "49 hours"}} {
		s.Exec(`INSERT INTO checkouts (tenant_id, checkout_id, cart_id, payment_reference, status, holds, units, deadline, next_attempt_at, ended_at)
			SELECT $1, gen_random_uuid(), 'cart', 'payment', $2, 1, 1, at, at, CASE $2 WHEN 'committed' THEN at END
			FROM (SELECT clock_timestamp() - $3::text::interval) AS ended (at)`, s.tenant, c.status, c.age)
	}
	s.Exec(`INSERT INTO idempotency_keys (tenant_id, idempotency_key, fingerprint, created_at, kept_with)
		SELECT tenant_id, checkout_id, '', clock_timestamp() - interval '50 hours', checkout_id FROM checkouts`)
	report, err := sw.PurgeOnce(t.Context(), []lanes.Stream{{Lane: lanes.Normal}})
	if want := (sweeper.PurgeReport{Requests: 5, Reservations: 1, IdempotencyKeys: 2, Checkouts: 1}); err != nil || report != want {
		t.Errorf("%+v, %v; want %+v", report, err, want)
	}
	report, err = sw.PurgeOnce(t.Context(), []lanes.Stream{{Lane: lanes.Normal}, {Lane: lanes.Hot}})
	if want := (sweeper.PurgeReport{Requests: 5}); err != nil || report != want {
		t.Errorf("then from the other stream: %+v, %v; want %+v", report, err, want)
	}
	for what, want := range map[string]int64{"reservations": 42, "reservation_requests": 20, "idempotency_keys": 3, "checkouts": 2} {
		if n := s.Int(`SELECT count(*) FROM ` + what); n != want {
			t.Errorf("%d %s are left, want %d", n, what, want)
		}
	}
	if n := s.Int(`SELECT count(*) FROM audit_log`); n != 40 {
		t.Errorf("%d audit rows are left, want all 40", n)
	}
}

func TestConfig(t *testing.T) {
	t.Parallel()
	for name, config := range map[string]sweeper.Config{
		"no batch": {Batch: -1}, "too large a batch": {Batch: 10_001}, "no batches": {BatchesMax: -1},
		"no retention": {RequestRetention: time.Second}, "no purge": {PurgeMax: -1}, "metered, but no retention": {MeteredRetention: time.Second},
	} {
		if _, err := sweeper.New(nil, nil, config); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}
