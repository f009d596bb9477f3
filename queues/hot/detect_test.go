package hot_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/holdfast/holdfast/audit"
	"github.com/holdfast/holdfast/internal/lanes"
	"github.com/holdfast/holdfast/internal/ops"
	"github.com/holdfast/holdfast/internal/queues"
	"github.com/holdfast/holdfast/internal/signals"
	"github.com/holdfast/holdfast/internal/testkit"
	"github.com/holdfast/holdfast/queues/hot"
	"github.com/holdfast/holdfast/requests"
)

// watched is a fixture with a detector. The test calls its passes, and writes its
// signals as rows.
type watched struct {
	*testkit.Fixture
	detector *hot.Detector
	ranAt    int64 // when the last pass ran, in microseconds of the database's clock
}

const nowSQL = `SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint`

func newWatched(t *testing.T, config hot.DetectorConfig) *watched {
	t.Helper()
	b := testkit.New(t, lanes.Normal)
	config.PromoteRate = 100
	d, err := hot.NewDetector(b.DB, b.Inserter, discard, config)
	if err != nil {
		t.Fatal(err)
	}
	return &watched{Fixture: b, detector: d, ranAt: b.Int(nowSQL)}
}

// arrives records the rate that a process counts for a variant, for a tenant if
// the variant is empty, or for all tenants if the tenant is zero too.
func (w *watched) arrives(tenant uuid.UUID, variant string, rate float64, sources ...string) {
	w.TB.Helper()
	if len(sources) == 0 {
		sources = []string{"one"}
	}
	for _, source := range sources {
		w.Exec(`
			INSERT INTO hot_signals (tenant_id, variant_id, source, rate) VALUES ($1, $2, $3, $4)
			ON CONFLICT (tenant_id, variant_id, source) DO UPDATE SET rate = excluded.rate, measured_at = clock_timestamp()`,
			tenant, variant, uuid.NewSHA1(uuid.Nil, []byte(source)), rate)
	}
}

// later makes all signals and observations that many seconds older.
func (w *watched) later(seconds float64) {
	w.TB.Helper()
	w.Exec(`UPDATE hot_signals SET measured_at = measured_at - $1 * interval '1 second'`, seconds)
	w.observedLater(seconds)
}

// observedLater makes all observations that many seconds older.
func (w *watched) observedLater(seconds float64) {
	w.TB.Helper()
	for _, sql := range []string{
		`UPDATE hot_detector SET ran_at = ran_at - $1 * interval '1 second'`,
		`UPDATE hot_observations SET busy_since = busy_since - $1 * interval '1 second', quiet_since = quiet_since - $1 * interval '1 second'`,
		`UPDATE hot_variants SET moved_at = moved_at - $1 * interval '1 second'`,
	} {
		w.Exec(sql, seconds)
	}
}

// pass is tryPass. It fails the test if the pass was not made.
func (w *watched) pass() hot.Detected {
	w.TB.Helper()
	done := w.tryPass()
	if !done.Ran {
		w.TB.Error("no pass was made")
	}
	return done
}

// tryPass makes one pass, as if one second had passed since the last one,
// however long the test took. No signal gets a time in the future by that.
func (w *watched) tryPass() hot.Detected {
	w.TB.Helper()
	const second = 1.005 // a little more than the interval, because times are rounded
	seconds := second - float64(w.Int(nowSQL)-w.ranAt)/1e6
	w.Exec(`UPDATE hot_signals SET measured_at = least(measured_at - $1 * interval '1 second', greatest(measured_at, clock_timestamp()))`, seconds)
	w.observedLater(seconds)
	done, err := w.detector.RunOnce(w.TB.Context())
	if err != nil {
		w.TB.Fatal(err)
	}
	if done.Ran {
		w.ranAt = w.Int(`SELECT (extract(epoch FROM ran_at) * 1000000)::bigint FROM hot_detector`)
	}
	return done
}

// wants fails the test unless exactly these variants are hot or entering.
func (w *watched) wants(variants ...string) {
	w.TB.Helper()
	listed, err := ops.HotVariants(w.TB.Context(), w.DB, w.Tenant)
	if err != nil {
		w.TB.Fatal(err)
	}
	var taking []string
	for i := range listed {
		if listed[i].TakesNew() {
			taking = append(taking, listed[i].VariantID)
		}
	}
	slices.Sort(taking)
	if fmt.Sprint(taking) != fmt.Sprint(variants) {
		w.TB.Errorf("hot are %v, want %v", taking, variants)
	}
}

// makeHot keeps the variants busy until they are hot.
func (w *watched) makeHot(rate float64, variants ...string) (total hot.Detected) {
	w.TB.Helper()
	for range 4 {
		for _, v := range variants {
			w.arrives(w.Tenant, v, rate)
		}
		done := w.pass()
		total.Promoted += done.Promoted
		total.Demoted += done.Demoted
	}
	return total
}

func (w *watched) history(variant string) []audit.Record {
	w.TB.Helper()
	records, err := audit.History(w.TB.Context(), w.DB, w.Tenant, audit.TargetOf(w.Tenant, "lane", variant))
	if err != nil {
		w.TB.Fatal(err)
	}
	return records
}

// A variant becomes hot once it has been busy for a while, counted over all
// processes. It becomes normal once it has been quiet for a longer time. The
// audit log records both, with the figures. A rate between the thresholds
// causes no move.
func TestComesAndGoes(t *testing.T) {
	t.Parallel()
	w := newWatched(t, hot.DetectorConfig{})
	w.Stock("shoe", 10)
	w.Stock("sock", 10)
	step := func(rate float64, seconds int, promoted, demoted int) {
		t.Helper()
		var total hot.Detected
		for range seconds {
			w.arrives(w.Tenant, "shoe", rate/2, "one", "other")
			w.arrives(w.Tenant, "sock", 60, "one")
			done := w.pass()
			total.Promoted += done.Promoted
			total.Demoted += done.Demoted
		}
		if total.Promoted != promoted || total.Demoted != demoted {
			t.Errorf("at %g/s for %d s: %d promoted, %d demoted, want %d and %d", rate, seconds, total.Promoted, total.Demoted, promoted, demoted)
		}
	}
	// More than 2 s at a rate, and 30 s, cause a move. A break begins them again.
	// On a busy machine the steps take longer, by far less than what is left.
	step(120, 1, 0, 0)
	step(90, 1, 0, 0) // a break
	step(120, 1, 0, 0)
	step(120, 3, 1, 0)
	w.wants("shoe")
	step(120, 3, 0, 0)
	step(30, 60, 0, 0) // neither busy nor quiet
	step(10, 16, 0, 0)
	step(30, 1, 0, 0)
	step(10, 16, 0, 0)
	w.wants("shoe")
	step(10, 18, 0, 1)
	w.wants()

	records := w.history("shoe")
	if len(records) != 2 {
		t.Fatalf("%d records, want 2: %+v", len(records), records)
	}
	in, out := records[0], records[1]
	if in.Action != "lane.promoted" || in.Actor != audit.Job("detector") || string(in.Before) != `{"lane": "normal", "slot": 0}` ||
		!strings.Contains(in.Reason, "120/s, 0/s turned away, 0 waiting, over 100/s") {
		t.Errorf("%+v", in)
	}
	if out.Action != "lane.demoted" || string(out.Before) != string(in.After) || !strings.Contains(out.Reason, "10/s, 0/s turned away, 0 waiting, under 25/s for 30s") {
		t.Errorf("%+v", out)
	}
	lane := w.HotLane(queues.LaneConfig{})
	w.Until("it has left the lane", func() bool {
		w.Tick(lane)
		return w.Int(`SELECT count(*) FROM hot_variants`) == 0
	})
}

// A variant with many queued requests becomes hot. Its slot then decides the
// queued and the new requests in one order. If it is demoted with requests
// left, they move with it.
func TestDepthPromotes(t *testing.T) {
	t.Parallel()
	const deep = 60
	w := newWatched(t, hot.DetectorConfig{PromoteDepth: deep, DemoteAfter: time.Second})
	w.Stock("shoe", deep+20)
	w.Stock("sock", 10)
	for i := range deep {
		w.Submit(fmt.Sprint("cart-", i), "shoe", 1)
	}
	sock := w.Submit("a", "sock", 1)
	w.arrives(uuid.Nil, "", 1) // a signal, so that the pass is made
	w.pass()
	w.wants()
	w.pass()
	w.pass()
	w.wants("shoe")
	if records := w.history("shoe"); len(records) != 1 || !strings.Contains(records[0].Reason, "60 waiting") {
		t.Errorf("%+v", records)
	}
	for i := range 10 {
		w.Submit(fmt.Sprint("late-", i), "shoe", 1)
	}
	if report := w.Tick(w.Lane(queues.LaneConfig{})); report.Claimed != 1 {
		t.Errorf("the normal lane decided %d, want the sock", report.Claimed)
	}
	w.Want(sock, requests.Done, "")
	for range 3 {
		w.pass() // it is quiet and leaves the lane, with all its requests undecided
	}
	w.wants()
	for i := range 20 {
		w.Submit(fmt.Sprint("last-", i), "shoe", 1)
	}
	lane := w.HotLane(queues.LaneConfig{DrainConfig: queues.DrainConfig{Batch: 7}})
	w.Tick(lane)
	w.Tick(w.Lane(queues.LaneConfig{}))
	w.CheckOrder("shoe")
	w.CheckInvariants()
	if n := w.Int(`SELECT count(*) FROM reservation_requests WHERE status = 'queued'`); n != 0 {
		t.Errorf("%d requests are left", n)
	}
}

// Requests that are rejected as out of stock count, because the order matters
// to them.
func TestShortfallsPromote(t *testing.T) {
	t.Parallel()
	w := newWatched(t, hot.DetectorConfig{})
	w.Stock("shoe", 0)
	lane := w.Lane(queues.LaneConfig{})
	for range 4 {
		for i := range 30 {
			w.Submit(fmt.Sprint("cart-", i), "shoe", 1)
		}
		w.Tick(lane)
		w.arrives(w.Tenant, "shoe", 80)
		w.pass()
	}
	w.wants("shoe")
}

// Settings of operators take precedence. A pinned variant stays hot even if it
// is quiet. A variant whose stock has lane normal never becomes or stays hot.
// The same is true of a variant that does not exist or is not tracked.
func TestOperatorComesFirst(t *testing.T) {
	t.Parallel()
	w := newWatched(t, hot.DetectorConfig{DemoteAfter: time.Second})
	for _, v := range []string{"pinned", "normal", "digital", "turned"} {
		w.Stock(v, 10)
	}
	w.Exec(`UPDATE inventory_stocks SET lane = 'normal' WHERE variant_id = 'normal'`)
	w.Exec(`UPDATE inventory_stocks SET tracked = false WHERE variant_id = 'digital'`)
	w.Pin("pinned")
	w.makeHot(500, "normal", "digital", "unknown", "turned")
	w.wants("pinned", "turned")
	w.Exec(`UPDATE inventory_stocks SET lane = 'normal' WHERE variant_id = 'turned'`)
	w.makeHot(500, "turned")
	for range 5 {
		w.arrives(w.Tenant, "pinned", 0)
		w.pass()
	}
	w.wants("pinned")
	if records := w.history("pinned"); len(records) != 0 {
		t.Errorf("the detector moved it: %+v", records)
	}
}

// While the hot lane is paused, no variant moves there.
func TestPausedLanePromotesNone(t *testing.T) {
	t.Parallel()
	w := newWatched(t, hot.DetectorConfig{})
	w.Stock("shoe", 10)
	paused := true
	if err := lanes.Control(t.Context(), w.DB, lanes.Hot, lanes.Patch{Paused: &paused}, audit.Origin{}); err != nil {
		t.Fatal(err)
	}
	w.makeHot(500, "shoe")
	w.wants()
	paused = false
	if err := lanes.Control(t.Context(), w.DB, lanes.Hot, lanes.Patch{Paused: &paused}, audit.Origin{}); err != nil {
		t.Fatal(err)
	}
	w.makeHot(500, "shoe")
	w.wants("shoe")
}

// While the hot lane is paused, no variant leaves it, because the lane could
// not decide the remaining requests. After the pause a variant must be quiet
// for the whole time again.
func TestPausedLaneDemotesNone(t *testing.T) {
	t.Parallel()
	w := newWatched(t, hot.DetectorConfig{DemoteAfter: 2 * time.Second})
	w.Stock("shoe", 10)
	w.Stock("sock", 10)
	w.makeHot(500, "shoe", "sock")
	control := func(paused bool) {
		t.Helper()
		if err := lanes.Control(t.Context(), w.DB, lanes.Hot, lanes.Patch{Paused: &paused}, audit.Origin{}); err != nil {
			t.Fatal(err)
		}
	}
	control(true)
	w.Exec(`UPDATE inventory_stocks SET lane = 'normal' WHERE variant_id = 'sock'`)
	w.makeHot(0, "shoe", "sock")
	w.wants("shoe", "sock")
	control(false)
	w.pass()
	w.wants("shoe")
	w.makeHot(0, "shoe")
	w.wants()
}

// The detector keeps at most the allowed number of variants hot, per tenant and
// in total. These are the busiest ones, and each has a separate slot while
// there are enough. A variant that is much busier replaces one that has been
// hot for its minimum time.
func TestPlacesAreLimited(t *testing.T) {
	t.Parallel()
	w := newWatched(t, hot.DetectorConfig{VariantsMax: 3, TenantMax: 2, DemoteAfter: 10 * time.Second})
	other := uuid.New()
	for i := range 5 {
		w.Stock(fmt.Sprint("v", i), 10)
		w.Exec(`INSERT INTO inventory_stocks (tenant_id, variant_id, stock) VALUES ($1, $2, 10)`, other, fmt.Sprint("v", i))
	}
	rates := []float64{110, 140, 180, 150, 120}
	hotter := func(top float64) {
		for range 4 {
			for i, rate := range rates {
				w.arrives(w.Tenant, fmt.Sprint("v", i), rate)
			}
			w.arrives(other, "v0", 105)
			w.arrives(w.Tenant, "v4", top)
			w.pass()
		}
	}
	hotter(120)
	w.wants("v2", "v3")
	if n := w.Int(`SELECT count(*) FROM hot_variants WHERE tenant_id = $1`, other); n != 1 {
		t.Errorf("%d hot variants of the other tenant, want 1", n)
	}
	if n := w.Int(`SELECT count(DISTINCT slot) FROM hot_variants`); n != 3 {
		t.Errorf("3 hot variants have %d slots", n)
	}
	hotter(500) // not yet: the others have not been hot for their minimum time
	w.wants("v2", "v3")
	hotter(200)
	hotter(200) // busier, but not enough
	w.wants("v2", "v3")
	hotter(500)
	w.wants("v2", "v4")
}

// Concurrent detectors of several processes move a variant once.
func TestDetectorsSideBySide(t *testing.T) {
	t.Parallel()
	w := newWatched(t, hot.DetectorConfig{PromoteAfter: time.Nanosecond, Every: time.Hour})
	w.Stock("shoe", 10)
	w.arrives(w.Tenant, "shoe", 500)
	w.pass()
	w.Exec(`UPDATE hot_detector SET ran_at = ran_at - interval '1 hour'`)
	w.arrives(w.Tenant, "shoe", 500)
	var mu sync.Mutex
	var ran, promoted int
	var side sync.WaitGroup
	for range 6 {
		side.Go(func() {
			done, err := w.detector.RunOnce(t.Context())
			if err != nil {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			promoted += done.Promoted
			if done.Ran {
				ran++
			}
		})
	}
	side.Wait()
	if ran != 1 || promoted != 1 || len(w.history("shoe")) != 1 {
		t.Errorf("%d passes promoted %d times, with %d records, want one of each", ran, promoted, len(w.history("shoe")))
	}
}

// A detector that dies during a pass has no effect. The next detector makes the
// moves.
func TestDetectorDies(t *testing.T) {
	t.Parallel()
	w := newWatched(t, hot.DetectorConfig{})
	w.Stock("shoe", 10)
	w.Exec(`UPDATE hot_detector SET ran_at = clock_timestamp() - interval '1 second'`)
	w.Exec(`INSERT INTO hot_observations (tenant_id, variant_id, rate, waiting, busy_since) VALUES ($1, 'shoe', 500, 0, clock_timestamp() - interval '3 seconds')`, w.Tenant)
	w.arrives(w.Tenant, "shoe", 500)
	owner := w.Lock(`INSERT INTO hot_variants (tenant_id, variant_id, slot) VALUES ($1, 'shoe', 9)`, w.Tenant)
	died := make(chan error, 1)
	ctx, kill := context.WithCancel(t.Context())
	go func() { _, err := w.detector.RunOnce(ctx); died <- err }()
	w.Blocked() // It has decided, and waits for the transaction that pins the same variant.
	kill()
	if err := <-died; !errors.Is(err, context.Canceled) {
		t.Errorf("it died of %v", err)
	}
	owner.Release()
	w.wants()
	if records := w.history("shoe"); len(records) != 0 {
		t.Errorf("recorded a move that was rolled back: %+v", records)
	}
	w.Until("the server has released its locks", func() bool {
		done, err := w.detector.RunOnce(t.Context())
		return err != nil || done.Ran
	})
	w.wants("shoe")
	if len(w.history("shoe")) != 1 {
		t.Error("moved without one record")
	}
}

// A slot whose drain is stalled delays only the moves of its variants. A
// variant that becomes hot gets another slot at once.
func TestStalledSlotDelaysItself(t *testing.T) {
	t.Parallel()
	w := newWatched(t, hot.DetectorConfig{DemoteAfter: time.Second})
	w.Exec(`INSERT INTO lane_slots (lane, slot) SELECT 'hot', generate_series(0, 4) ON CONFLICT DO NOTHING`)
	for _, v := range []string{"shoe", "sock", "hat"} {
		w.Stock(v, 10)
	}
	w.makeHot(500, "shoe", "sock")
	w.wants("shoe", "sock")
	w.Exec(`UPDATE hot_variants SET slot = 3 WHERE variant_id = 'shoe'`)
	owner := w.Lock(`SELECT FROM lane_slots WHERE lane = 'hot' AND slot IN (0, 3) FOR UPDATE`) // 0 is free, and the first to be chosen
	w.Exec(`UPDATE hot_variants SET slot = 4 WHERE variant_id = 'sock'`)
	for range 5 {
		w.arrives(w.Tenant, "shoe", 0)
		w.arrives(w.Tenant, "sock", 0)
		w.arrives(w.Tenant, "hat", 500)
		w.pass()
	}
	w.wants("hat", "shoe")
	if n := len(w.history("shoe")); n != 1 {
		t.Errorf("%d records of the waiting move, want 1", n)
	}
	owner.Release()
	w.arrives(w.Tenant, "hat", 500)
	w.pass()
	w.wants("hat")
}

// The signals of a process that has ended expire, and its variants become
// normal. In the end no row is left.
func TestSilentProcess(t *testing.T) {
	t.Parallel()
	w := newWatched(t, hot.DetectorConfig{})
	w.Stock("shoe", 10)
	w.makeHot(500, "shoe")
	w.wants("shoe")
	passes := 0
	for ; passes < 60; passes++ {
		if !w.tryPass().Ran {
			break
		}
		if passes < 30 {
			w.wants("shoe")
		}
	}
	w.wants()
	if n := w.Int(`SELECT count(*) FROM hot_signals`) + w.Int(`SELECT count(*) FROM hot_observations`); n != 0 || passes > 40 {
		t.Errorf("after %d passes there are %d rows left", passes, n)
	}
}

// A tenant that keeps its neighbours waiting is diverted. One without
// neighbours is not. Once it sends little it is restored.
func TestFloodIsDiverted(t *testing.T) {
	t.Parallel()
	const deep = 50
	w := newWatched(t, hot.DetectorConfig{FloodRate: 100, FloodDepth: deep, DemoteAfter: 2 * time.Second})
	for i := range deep + 10 {
		w.Submit(fmt.Sprint("cart-", i), fmt.Sprint("v", i), 1)
	}
	step := func(own, all float64, diverted, restored int) {
		t.Helper()
		var total hot.Detected
		for range 4 {
			w.arrives(w.Tenant, "", own)
			w.arrives(uuid.Nil, "", all)
			done := w.pass()
			total.Diverted += done.Diverted
			total.Restored += done.Restored
		}
		if total.Diverted != diverted || total.Restored != restored {
			t.Errorf("at %g/s of %g/s: %d diverted, %d restored, want %d and %d", own, all, total.Diverted, total.Restored, diverted, restored)
		}
	}
	step(500, 500, 0, 0) // no neighbours
	step(50, 60, 0, 0)   // no flood
	step(500, 510, 1, 0)
	if r := w.Submit("a", "v1", 1); r.Lane != lanes.Normal || r.Slot != 1 {
		t.Errorf("admitted to %s %d", r.Lane, r.Slot)
	}
	step(60, 70, 0, 0)
	step(40, 50, 0, 0) // some of its requests wait in the diverted stream
	w.Tick(w.Lane(queues.LaneConfig{}))
	step(40, 50, 0, 1)
	if r := w.Submit("a", "v1", 1); r.Lane != lanes.Normal || r.Slot != 0 {
		t.Errorf("admitted to %s %d", r.Lane, r.Slot)
	}
	records := w.history("")
	if len(records) != 2 || records[0].Action != "lane.diverted" || records[1].Action != "lane.restored" {
		t.Fatalf("%+v", records)
	}
	if why := records[0].Reason; !strings.Contains(why, "500/s") || !strings.Contains(why, "60 waiting") || strings.Contains(why, "510") {
		t.Errorf("diverted because of %q", why)
	}
}

// A detector that may keep more variants hot than a process counts is rejected.
func TestDetectorIsBounded(t *testing.T) {
	t.Parallel()
	if _, err := hot.NewDetector(nil, nil, discard, hot.DetectorConfig{VariantsMax: signals.VariantsRecorded + 1}); err == nil {
		t.Error("a detector may keep more variants hot than a process counts")
	}
}
