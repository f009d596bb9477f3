package queues_test

import (
	"encoding/json"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/holdfast/holdfast/audit"
	"github.com/holdfast/holdfast/internal/lanetest"
	"github.com/holdfast/holdfast/queues"
	"github.com/holdfast/holdfast/queues/normal"
	"github.com/holdfast/holdfast/requests"
)

var operator = audit.Origin{Actor: audit.User("hf_ops000"), CorrelationID: "c-7"}

func control(t *testing.T, b *lanetest.Bench, patch queues.LanePatch) {
	t.Helper()
	if err := queues.Control(t.Context(), b.DB, requests.Normal, patch, operator); err != nil {
		t.Fatal(err)
	}
}

// A change of a lane's controls is one audit row with what was before and after; what is so already is none, and writes
// nothing; what is refused changes nothing.
func TestControlIsRecorded(t *testing.T) {
	t.Parallel()
	b := lanetest.New(t, requests.Normal, normal.NewLane)
	version := func() int64 {
		return b.Int(`SELECT xmin::text::bigint FROM lane_slots WHERE lane = 'normal' AND slot = -1`)
	}
	for range 2 { // the second time nothing changes
		control(t, b, queues.LanePatch{Paused: new(true)})
	}
	control(t, b, queues.LanePatch{RateCap: new(int32(50))})
	before := version()
	for _, same := range []queues.LanePatch{{}, {Paused: new(true)}, {RateCap: new(int32(50))}, {Paused: new(true), RateCap: new(int32(50))}} {
		control(t, b, same)
	}
	if after := version(); after != before {
		t.Error("a patch that changes nothing wrote the row")
	}
	control(t, b, queues.LanePatch{Paused: new(false), RateCap: new(int32(0))})
	control(t, b, queues.LanePatch{RateCap: new(int32(0))})
	for lane, want := range map[string]error{requests.Normal: queues.ErrRateCap, "cold": queues.ErrUnknownLane} {
		patch := queues.LanePatch{Paused: new(true)}
		if want == queues.ErrRateCap {
			patch.RateCap = new(int32(-1))
		}
		if err := queues.Control(t.Context(), b.DB, lane, patch, operator); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", lane, err, want)
		}
	}

	records, err := audit.History(t.Context(), b.DB, uuid.Nil, queues.LaneTarget(requests.Normal))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, r := range records {
		if r.Action != "lane.controlled" || r.Origin != operator {
			t.Errorf("%s by %+v", r.Action, r.Origin)
		}
		got = append(got, squeezed(t, r.Before)+" → "+squeezed(t, r.After))
	}
	want := []string{
		`{"lane":"normal","paused":false,"rate_cap":null} → {"lane":"normal","paused":true,"rate_cap":null}`,
		`{"lane":"normal","paused":true,"rate_cap":null} → {"lane":"normal","paused":true,"rate_cap":50}`,
		`{"lane":"normal","paused":true,"rate_cap":50} → {"lane":"normal","paused":false,"rate_cap":null}`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func squeezed(t *testing.T, text json.RawMessage) string {
	t.Helper()
	var value map[string]any
	if err := json.Unmarshal(text, &value); err != nil {
		t.Fatal(err)
	}
	out, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// fill queues n requests of carts of their own.
func fill(b *lanetest.Bench, n int) {
	b.TB.Helper()
	b.Exec(`
		INSERT INTO reservation_requests (tenant_id, request_id, lane, cart_id, variant_id, quantity)
		SELECT $1, gen_random_uuid(), 'normal', 'cart-' || n, 'shoe', 1
		FROM generate_series(1, $2::integer) AS n`, b.Tenant, n)
}

// Two processes share a lane's rate cap. Its bucket is filled by the database's clock, which the test drives by moving the
// time of the last refill back: whatever the machine's speed, over ten seconds they decide what the cap allows in the time
// that has passed for the bucket, and a tenth less at most.
func TestCapIsShared(t *testing.T) {
	t.Parallel()
	b := lanetest.New(t, requests.Normal, normal.NewLane)
	b.Stock("shoe", 1_000_000)
	const limit, steps, step = 200, 100, "100 milliseconds"
	fill(b, 2*limit*steps/10)
	control(t, b, queues.LanePatch{RateCap: new(int32(limit))})
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
		t.Errorf("%.0f decided in %.2f s under a cap of %d a second, which allows %.0f", decided, passed, limit, allowed)
	}
	if passed < 10 {
		t.Errorf("%.2f s have passed for the bucket, want 10", passed)
	}
}

// A new cap gives no credit for the time before it, and the same one again takes none away.
func TestCapBeginsEmpty(t *testing.T) {
	t.Parallel()
	b := lanetest.New(t, requests.Normal, normal.NewLane)
	const agoSQL = `SELECT count(*) FROM lane_slots WHERE lane = 'normal' AND slot = -1 AND tokens = $1::integer AND refilled_at < clock_timestamp() - interval '30 minutes'`
	b.Exec(`UPDATE lane_slots SET tokens = 400, refilled_at = clock_timestamp() - interval '1 hour' WHERE lane = 'normal' AND slot = -1`)
	control(t, b, queues.LanePatch{RateCap: new(int32(1000))})
	if b.Int(`SELECT tokens::bigint FROM lane_slots WHERE lane = 'normal' AND slot = -1`) != 0 || b.Int(agoSQL, 0) != 0 {
		t.Error("a new cap begins with what was saved before it")
	}
	b.Exec(`UPDATE lane_slots SET tokens = 400, refilled_at = clock_timestamp() - interval '1 hour' WHERE lane = 'normal' AND slot = -1`)
	control(t, b, queues.LanePatch{RateCap: new(int32(1000)), Paused: new(true)})
	if b.Int(agoSQL, 400) != 1 {
		t.Error("a cap that stays lost what was saved under it")
	}
}

// A pause and a cap hold in every process within two seconds, and so does their end. The two processes are busy all the
// time, and only the database's clock is asked.
func TestControlReachesEveryProcess(t *testing.T) {
	t.Parallel()
	b := lanetest.New(t, requests.Normal, normal.NewLane)
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
	control(t, b, queues.LanePatch{Paused: new(true)})
	paused := now()
	for now() < paused+2500 {
		fill(b, 20)
	}
	if last := b.Int(lastSQL); last > paused+2000 {
		t.Errorf("a request was decided %d ms after the pause", last-paused)
	}
	control(t, b, queues.LanePatch{Paused: new(false)})
	busy()
	control(t, b, queues.LanePatch{RateCap: new(int32(1))})
	capped := now()
	for now() < capped+3000 {
		fill(b, 20)
	}
	const betweenSQL = `
		SELECT count(*)
		FROM reservation_requests
		WHERE status = 'done' AND extract(epoch FROM updated_at) * 1000 - $1::bigint BETWEEN 1000 AND 3000`
	if n := b.Int(betweenSQL, capped); n > 3 {
		t.Errorf("%d were decided from the first to the third second under a cap of 1 a second", n)
	}
	control(t, b, queues.LanePatch{RateCap: new(int32(0))})
	busy()
}
