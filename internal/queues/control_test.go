package queues_test

import (
	"sync"
	"testing"
	"time"

	"github.com/holdfast/holdfast/audit"
	"github.com/holdfast/holdfast/internal/lanes"
	"github.com/holdfast/holdfast/internal/queues"
	"github.com/holdfast/holdfast/internal/testkit"
)

var operator = audit.Origin{Actor: audit.User("hf_ops000"), CorrelationID: "c-7"}

func control(t *testing.T, b *testkit.Fixture, patch lanes.Patch) {
	t.Helper()
	if err := lanes.Control(t.Context(), b.DB, lanes.Normal, patch, operator); err != nil {
		t.Fatal(err)
	}
}

// fill queues n requests, each of a different cart.
func fill(b *testkit.Fixture, n int) {
	b.TB.Helper()
	b.Exec(`
		INSERT INTO reservation_requests (tenant_id, request_id, lane, cart_id, variant_id, quantity)
		SELECT $1, gen_random_uuid(), 'normal', 'cart-' || n, 'shoe', 1
		FROM generate_series(1, $2::integer) AS n`, b.Tenant, n)
}

// Two processes share a lane's rate cap. Its bucket is filled by the database's
// clock, which the test advances by moving back the time of the last refill.
// Over ten seconds of that clock they decide what the cap allows, or at most a
// tenth less, whatever the speed of the machine.
func TestCapIsShared(t *testing.T) {
	t.Parallel()
	b := testkit.New(t, lanes.Normal)
	b.Stock("shoe", 1_000_000)
	const limit, steps, step = 200, 100, "100 milliseconds"
	fill(b, 2*limit*steps/10)
	control(t, b, lanes.Patch{RateCap: new(int32(limit))})
	const refilledSQL = `SELECT (extract(epoch FROM refilled_at) * 1000000)::bigint FROM lane_slots WHERE lane = 'normal' AND slot = -1`
	began := b.Int(refilledSQL)
	moved := int64(0)
	config := queues.LaneConfig{ServeFor: time.Nanosecond, Concurrency: 1}
	processes := []*queues.Lane{b.Lane(config), b.Lane(config)}
	for range steps {
		b.Exec(`UPDATE lane_slots SET refilled_at = refilled_at - interval '` + step + `' WHERE lane = 'normal' AND slot = -1`)
		moved += 100_000
		var both sync.WaitGroup
		for _, lane := range processes {
			both.Go(func() {
				if _, err := lane.Tick(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
		both.Wait()
	}
	passed := float64(b.Int(refilledSQL)-began+moved) / 1e6
	decided := float64(b.Int(`SELECT count(*) FROM reservations`))
	if allowed := limit * passed; decided > allowed+1 || decided < 0.9*allowed {
		t.Errorf("%.0f decided in %.2f s under a cap of %d per second, which allows %.0f", decided, passed, limit, allowed)
	}
	if passed < 10 {
		t.Errorf("%.2f s have passed for the bucket, want 10", passed)
	}
}

// A new cap gives no credit for the time before it. Setting the same cap again
// does not take credit away.
func TestCapBeginsEmpty(t *testing.T) {
	t.Parallel()
	b := testkit.New(t, lanes.Normal)
	const agoSQL = `SELECT count(*) FROM lane_slots WHERE lane = 'normal' AND slot = -1 AND tokens = $1::integer AND refilled_at < clock_timestamp() - interval '30 minutes'`
	b.Exec(`UPDATE lane_slots SET tokens = 400, refilled_at = clock_timestamp() - interval '1 hour' WHERE lane = 'normal' AND slot = -1`)
	control(t, b, lanes.Patch{RateCap: new(int32(1000))})
	if b.Int(`SELECT tokens::bigint FROM lane_slots WHERE lane = 'normal' AND slot = -1`) != 0 || b.Int(agoSQL, 0) != 0 {
		t.Error("a new cap has credit from the time before it")
	}
	b.Exec(`UPDATE lane_slots SET tokens = 400, refilled_at = clock_timestamp() - interval '1 hour' WHERE lane = 'normal' AND slot = -1`)
	control(t, b, lanes.Patch{RateCap: new(int32(1000)), Paused: new(true)})
	if b.Int(agoSQL, 400) != 1 {
		t.Error("a cap that was set again lost its credit")
	}
}

// A pause and a cap apply in every process within two seconds, and so does
// their end. The two processes are busy all the time. Times are read from the
// database's clock only.
func TestControlReachesEveryProcess(t *testing.T) {
	t.Parallel()
	b := testkit.New(t, lanes.Normal)
	b.Stock("shoe", 10_000_000)
	for range 2 {
		b.Run(b.Lane(queues.LaneConfig{DrainConfig: queues.DrainConfig{Batch: 10}}))
	}
	now := func() int64 { return b.Int(`SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint`) }
	const lastSQL = `SELECT coalesce((extract(epoch FROM max(updated_at)) * 1000)::bigint, 0) FROM reservation_requests WHERE status = 'done'`
	busy := func() {
		t.Helper()
		began := now()
		for last := b.Int(lastSQL); b.Int(lastSQL) <= max(last, began); {
			if now() > began+20_000 {
				t.Fatal("nothing is decided")
			}
			fill(b, 20)
		}
	}
	busy()
	control(t, b, lanes.Patch{Paused: new(true)})
	paused := now()
	for now() < paused+2500 {
		fill(b, 20)
	}
	if last := b.Int(lastSQL); last > paused+2000 {
		t.Errorf("a request was decided %d ms after the pause", last-paused)
	}
	control(t, b, lanes.Patch{Paused: new(false)})
	busy()
	control(t, b, lanes.Patch{RateCap: new(int32(1))})
	capped := now()
	for now() < capped+3000 {
		fill(b, 20)
	}
	const betweenSQL = `
		SELECT count(*)
		FROM reservation_requests
		WHERE status = 'done' AND extract(epoch FROM updated_at) * 1000 - $1::bigint BETWEEN 1000 AND 3000`
	if n := b.Int(betweenSQL, capped); n > 3 {
		t.Errorf("%d were decided from the first to the third second under a cap of 1 per second", n)
	}
	control(t, b, lanes.Patch{RateCap: new(int32(0))})
	busy()
}
