package queues_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/internal/lanes"
	"github.com/holdfast/holdfast/internal/queues"
	"github.com/holdfast/holdfast/internal/testkit"
)

// count counts and publishes the load, and returns it.
func count(b *testkit.Fixture) lanes.Load {
	b.TB.Helper()
	load := queues.NewLoad(b.DB)
	b.Until("the load is published", func() bool {
		published, err := load.Publish(b.TB.Context(), 0)
		if err != nil {
			b.TB.Fatal(err)
		}
		return published
	})
	counted, err := load.Read(b.TB.Context(), time.Hour)
	if err != nil {
		b.TB.Fatal(err)
	}
	return counted
}

// The load has the requests of each stream and each tenant, including those in
// isolated retry, the last number drawn, the lanes' controls, and the routes.
// Requests in the normal lane for a variant that moves count in its hot slot.
func TestLoad(t *testing.T) {
	t.Parallel()
	b := testkit.New(t, lanes.Normal)
	other := uuid.New()
	const queueSQL = `
		INSERT INTO reservation_requests (tenant_id, request_id, lane, cart_id, variant_id, quantity, created_at)
		SELECT $1, gen_random_uuid(), 'normal', 'cart-' || n, $2, 1, clock_timestamp() - $3::interval
		FROM generate_series(1, $4::integer) AS n`
	b.Exec(queueSQL, b.Tenant, "shoe", "1 minute", 3)
	b.Exec(queueSQL, other, "shoe", "10 seconds", 2)
	b.Exec(queueSQL, other, "sock", "2 minutes", 4)
	b.Exec(`UPDATE reservation_requests
		SET status = 'processing', claim_expires_at = clock_timestamp() + interval '1 hour', claim_epoch = 1
		WHERE sequence = 4`)
	if err := lanes.Pin(t.Context(), b.DB, b.Inserter, other, "sock"); err != nil {
		t.Fatal(err)
	}
	control(t, b, lanes.Patch{RateCap: new(int32(7)), Paused: new(true)})
	want := lanes.Load{
		Drawn: 9,
		Lanes: map[lanes.Lane]lanes.LaneLoad{
			"normal": {
				Depth: 5, Tenants: 2, Deepest: map[uuid.UUID]int64{b.Tenant: 3, other: 2},
				Streams: map[int16]lanes.StreamLoad{0: {Depth: 5, OldestSeconds: 60}},
				RateCap: 7, Paused: true,
			},
			"hot": {
				Depth: 4, Tenants: 1, Deepest: map[uuid.UUID]int64{other: 4},
				Streams: map[int16]lanes.StreamLoad{0: {Depth: 4, OldestSeconds: 120, SoleTenant: &other}},
			},
		},
		Routes: map[lanes.Route]lanes.Stream{{TenantID: other, VariantID: "sock"}: {Lane: "hot", Slot: 0}},
	}
	got := count(b)
	if got.Age <= 0 || got.Age > time.Minute {
		t.Errorf("the load is %s old", got.Age)
	}
	got.Age = 0
	if diff := cmp.Diff(want, got, cmpopts.EquateApprox(0, 30)); diff != "" {
		t.Errorf("load (-want +got):\n%s", diff)
	}
}

// The published load is bounded: it lists the tenants with the most requests
// and the streams with the oldest ones. The depth counts the requests of all.
func TestLoadIsBounded(t *testing.T) {
	t.Parallel()
	b := testkit.New(t, lanes.Hot)
	b.Exec(`INSERT INTO lane_slots (lane, slot) SELECT 'hot', n FROM generate_series(0, 1199) AS n`)
	b.Exec(`
		INSERT INTO reservation_requests (tenant_id, request_id, lane, slot, cart_id, variant_id, quantity, created_at)
		SELECT ('00000000-0000-0000-0000-' || lpad(n::text, 12, '0'))::uuid, gen_random_uuid(), 'hot', n, 'cart', 'v', 1,
		       clock_timestamp() - n * interval '1 second'
		FROM generate_series(0, 1199) AS n, generate_series(0, n / 200)`)
	got := count(b).Lanes[lanes.Hot]
	if got.Depth != 200*(1+2+3+4+5+6) || got.Tenants != 1200 || len(got.Deepest) != 1000 || len(got.Streams) != 1000 {
		t.Errorf("depth %d of %d tenants, with %d tenants and %d streams", got.Depth, got.Tenants, len(got.Deepest), len(got.Streams))
	}
	for tenant, depth := range got.Deepest {
		if depth < 2 {
			t.Fatalf("tenant %s has %d waiting requests and is listed", tenant, depth)
		}
	}
	for slot := range got.Streams {
		if slot < 200 {
			t.Fatalf("slot %d is listed", slot)
		}
	}
}

// One process counts at a time, and not more often than requested. After a
// count it pauses, for at most a second.
func TestOneProcessCounts(t *testing.T) {
	t.Parallel()
	b := testkit.New(t, lanes.Normal)
	load := queues.NewLoad(b.DB)
	publish := func(every time.Duration, want bool, when string) {
		t.Helper()
		if published, err := load.Publish(t.Context(), every); err != nil || published != want {
			t.Errorf("%s: published %t, %v", when, published, err)
		}
	}
	counter := b.Lock(`SELECT pg_advisory_xact_lock('lane_loads'::regclass::oid::integer, 0)`)
	publish(0, false, "while another process counts")
	counter.Release()
	publish(time.Hour, true, "for the first time")
	publish(time.Hour, false, "within an hour")
	const movedSQL = `UPDATE lane_loads SET counted_at = clock_timestamp() - $1::interval, published_at = clock_timestamp() - $2::interval`
	b.Exec(movedSQL, "0.6 seconds", "0.2 seconds")
	publish(0, false, "0.2 s after a count of 0.4 s")
	b.Exec(movedSQL, "11 seconds", "1.1 seconds")
	publish(0, true, "1.1 s after a count of 10 s")
	b.Exec(movedSQL, "-1 hour", "-1 hour")
	publish(time.Minute, true, "once the clock was set back")
}

// A drain under a rate cap has the lane's controls locked until it ends. It
// neither waits for a process that publishes the load, nor delays one.
func TestPublishingBesideACappedDrain(t *testing.T) {
	t.Parallel()
	b := testkit.New(t, lanes.Normal)
	b.Stock("shoe", 100)
	fill(b, 10)
	control(t, b, lanes.Patch{RateCap: new(int32(1000))})
	blocker := b.Lock(`LOCK TABLE lane_loads IN EXCLUSIVE MODE`)
	published := make(chan bool, 1)
	go func() {
		ok, _ := queues.NewLoad(b.DB).Publish(t.Context(), 0)
		published <- ok
	}()
	b.Blocked() // the publisher, before it writes
	b.Until("the drain has decided all", func() bool {
		b.Tick(b.Lane(queues.LaneConfig{}))
		return b.Int(`SELECT count(*) FROM reservation_requests WHERE status = 'queued'`) == 0
	})
	blocker.Release()
	if !<-published {
		t.Error("the load was not published")
	}

	b.Lock(`UPDATE lane_slots SET tokens = 0 WHERE slot = -1`) // as a drain does
	if depth := count(b).Lanes[lanes.Normal].Depth; depth != 0 {
		t.Errorf("depth %d during a drain, want 0", depth)
	}
}

// statements records the statements that a pool sends.
type statements struct {
	mu   sync.Mutex
	sent []string
}

func (s *statements) add(ctx context.Context, sql string) context.Context {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sent = append(s.sent, sql)
	return ctx
}

func (s *statements) take() (sent []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sent, s.sent = s.sent, nil
	return sent
}

func (s *statements) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	return s.add(ctx, data.SQL)
}
func (*statements) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}
func (s *statements) TraceBatchStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceBatchStartData) context.Context {
	for _, q := range data.Batch.QueuedQueries {
		s.add(ctx, q.SQL)
	}
	return ctx
}
func (*statements) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}
func (*statements) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData)     {}

// Running lanes publish the load when requests arrive and when they are
// decided. After that they send only their ticks. The commits that publish do
// not wait for the disk.
func TestIdleLanesPublishNothing(t *testing.T) {
	t.Parallel()
	b := testkit.New(t, lanes.Normal)
	b.Stock("shoe", 100)
	config, sent := b.DB.Config(), &statements{}
	config.ConnConfig.Tracer = sent
	db, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(db.Close)
	traced := testkit.On(t, db, lanes.Normal)
	lane := traced.Lane(queues.LaneConfig{TickEvery: 20 * time.Millisecond})
	traced.Run(lane)
	published := func(depth int) func() bool {
		return func() bool {
			return b.Int(`SELECT count(*) FROM lane_loads WHERE lane = 'normal' AND (load->>'depth')::integer = $1
				AND drawn = (SELECT max(sequence) FROM reservation_requests)`, depth) == 1
		}
	}
	holder := b.LockStock("shoe")
	for range 3 {
		b.Submit("cart", "shoe", 1)
	}
	b.Until("the backlog is published", published(3))
	holder.Release()
	b.Until("the empty backlog is published", published(0))
	if all := strings.Join(sent.take(), "\n"); !strings.Contains(all, "'synchronous_commit', 'off', true") {
		t.Errorf("the load was published with a commit that waits for the disk: %s", all)
	}
	// The measured rate is recorded once more. A quarter of a second later
	// nothing has changed.
	ticks := 0
	b.Until("a second of ticks and nothing else", func() bool {
		for _, sql := range sent.take() {
			if strings.Contains(sql, "SELECT s.slot\nFROM "+lanes.Slots) {
				ticks++
				continue
			}
			if strings.Contains(sql, "FROM waiting_requests") { // which looks for units to offer
				continue
			}
			ticks = 0
		}
		return ticks >= 50
	})
}
