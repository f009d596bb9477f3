package ready

import (
	"encoding/json"
	"flag"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/holdfast/holdfast/audit"
	"github.com/holdfast/holdfast/internal/inventory"
	"github.com/holdfast/holdfast/internal/pgtest"
	"github.com/holdfast/holdfast/projections"
)

var update = flag.Bool("update", false, "write the golden files again")

var (
	noon   = time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)
	tenant = uuid.MustParse("0197f0a0-0000-7000-8000-000000000001")
)

// requestAt is the id of a request that was accepted at that time.
func requestAt(at time.Time) uuid.UUID {
	id := uuid.MustParse("00000000-0000-7000-8000-000000000000")
	ms := at.UnixMilli()
	for i := range 6 {
		id[i] = byte(ms >> (8 * (5 - i)))
	}
	return id
}

// hold is an event of a variant's reservation that was accepted at noon.
func hold(kind Kind, after time.Duration, quantity int64) *Event {
	return &Event{
		TenantID: tenant, TargetID: requestAt(noon), At: noon.Add(after), Kind: kind,
		ResourceKind: inventory.Kind, ResourceKey: "shoe", Quantity: quantity,
	}
}

func failed(reason string, after time.Duration) *Event {
	return &Event{TenantID: tenant, TargetID: requestAt(noon), At: noon.Add(after), Kind: RequestFailed, Reason: reason}
}

func stock(a Availability) *Event {
	return &Event{TenantID: tenant, At: noon, Kind: StockChanged, Stock: &a}
}

// sampleEvents is a history in which every kind of event occurs.
func sampleEvents() []*Event {
	seat := hold(Held, 2*time.Second, 1)
	seat.ResourceKind = "hall.seat"
	return []*Event{
		stock(Availability{VariantID: "shoe", Stock: 10, Tracked: true}),
		hold(Held, 20*time.Millisecond, 2),
		hold(Held, 40*time.Millisecond, 3),
		seat,
		failed("out_of_stock", 300*time.Millisecond),
		hold(Committed, 6*time.Second, 2),
		hold(Expired, 7*time.Second, 1),
		hold(Released, 7*time.Second, 1),
		stock(Availability{VariantID: "shoe", Stock: 20, Reserved: 1, Tracked: true, Backorder: true}),
		hold(Held, 11*time.Second, 30),
		failed("internal_error", 12*time.Second),
		hold(Held, 4*time.Second, 1), // its transaction took long
	}
}

// folded is the state and the combined delta of the events, by key.
type folded[S, D any] struct {
	State S `json:"state"`
	Delta D `json:"delta"`
}

func fold[S, D any](p projections.Projection[*Event, S, D], events []*Event) map[string]*folded[S, D] {
	states := make(map[string]*folded[S, D])
	for _, e := range events {
		key := p.Key(e)
		if key == (projections.Key{}) {
			continue
		}
		f := states[key.Key]
		if f == nil {
			f = &folded[S, D]{}
			f.Delta = p.Apply(&f.State, e)
			states[key.Key] = f
			continue
		}
		f.Delta = p.Coalesce(f.Delta, p.Apply(&f.State, e))
	}
	return states
}

// The states and deltas are what docs/projections.md promises to clients.
func TestGolden(t *testing.T) {
	t.Parallel()
	for name, states := range map[string]any{
		"reservations.counters": fold(counters(), sampleEvents()),
		"stocks.availability":   fold(availability(), sampleEvents()),
		"outcomes.rate":         fold(rate(), sampleEvents()),
		"outcomes.latency":      fold(latency(), sampleEvents()),
	} {
		pgtest.Golden(t, name, states, *update)
	}
}

// A delta is the difference between two states: a client that merges buckets by
// their time has the state.
func TestDeltasMakeStates(t *testing.T) {
	t.Parallel()
	var state, client Rate
	p := rate()
	for _, e := range sampleEvents() {
		if p.Key(e) != (projections.Key{}) {
			client = mergeWindows(client, p.Apply(&state, e))
		}
	}
	if diff := cmp.Diff(state.Buckets, client.Buckets); diff != "" {
		t.Errorf("the client's buckets (-state +client):\n%s", diff)
	}
}

// A window has 15 minutes, the newest bucket among them. What comes later than
// that is left out.
func TestWindow(t *testing.T) {
	t.Parallel()
	var r Rate
	for i := range 400 {
		applyRate(&r, hold(Held, time.Duration(i)*bucketLength, 1))
	}
	if n, first := len(r.Buckets), r.Buckets[0].At; n != 181 || first != noon.Add(219*bucketLength) {
		t.Errorf("%d buckets from %s", n, first)
	}
	before := r.Buckets[180]
	if delta := applyRate(&r, hold(Held, 0, 1)); len(delta.Buckets) != 0 || len(r.Buckets) != 181 || r.Buckets[180] != before {
		t.Errorf("an event of before the window: %d buckets, delta %+v", len(r.Buckets), delta)
	}
	applyRate(&r, hold(Held, 10*time.Hour, 1))
	if len(r.Buckets) != 1 {
		t.Errorf("%d buckets after a pause", len(r.Buckets))
	}
}

// Quantiles have an error of at most 7 %, and survive the state's storage.
func TestQuantiles(t *testing.T) {
	t.Parallel()
	var l Latency
	for ms := range 1000 {
		applyLatency(&l, failed("out_of_stock", time.Duration(ms+1)*time.Millisecond))
		text, err := json.Marshal(l)
		pgtest.Must(t, err)
		l = Latency{}
		pgtest.Must(t, json.Unmarshal(text, &l))
	}
	b := l.Buckets[0]
	for name, q := range map[string]struct{ got, want float64 }{"p50": {b.P50, 500}, "p95": {b.P95, 950}, "p99": {b.P99, 990}, "max": {b.Max, 1000}} {
		if off := q.got/q.want - 1; off < -0.08 || off > 0.08 {
			t.Errorf("%s is %g, want about %g", name, q.got, q.want)
		}
	}
	applyLatency(&l, failed("out_of_stock", -time.Second)) // the clock of another machine
	applyLatency(&l, failed("out_of_stock", 30*24*time.Hour))
	last := l.Buckets[len(l.Buckets)-1]
	if last.Count != 1 || last.P99 != last.Max && last.P99 < 1e9 {
		t.Errorf("after a month: %+v", last)
	}
}

// Old buckets keep their quantiles without a histogram.
func TestOldBuckets(t *testing.T) {
	t.Parallel()
	var l Latency
	for i := range 40 {
		e := failed("out_of_stock", time.Duration(i)*bucketLength)
		e.TargetID = requestAt(e.At.Add(-100 * time.Millisecond))
		applyLatency(&l, e)
	}
	histograms := 0 // the middle of the bin of 100 ms is 93.9 ms
	for _, b := range l.Buckets {
		histograms += len(b.Bins)
		if b.Count != 1 || b.P99 != 93.9 {
			t.Errorf("%+v", b)
		}
	}
	if histograms != openBuckets {
		t.Errorf("%d histograms, want %d", histograms, openBuckets)
	}
	late := failed("out_of_stock", 0)
	late.TargetID = requestAt(late.At.Add(-time.Hour))
	delta := applyLatency(&l, late)
	if b := l.Buckets[0]; b.Count != 2 || b.P99 != 93.9 || b.Max != 3_600_000 || len(delta.Buckets) != 1 {
		t.Errorf("after a late outcome: %+v, delta %+v", b, delta)
	}
}

func TestDecode(t *testing.T) {
	t.Parallel()
	entry := func(action, after string) *audit.Record {
		return &audit.Record{Entry: audit.Entry{TenantID: tenant, TargetID: requestAt(noon), Action: action, After: json.RawMessage(after)}, CreatedAt: noon}
	}
	for _, none := range []string{"reservation.extended", "checkout.begun", "lane.controlled", ""} {
		if e, ok := decode(entry(none, `{}`)); ok {
			t.Errorf("%s is %+v", none, e)
		}
	}
	quoted := `{"status": "held", "quantity": 2, "holder_id": "a \"b\" \\ {", "unit_ids": ["quantity", "x"], "resource_key": "r\u00f6\"ll/\u20ac", "resource_kind": "inventory.variant"}`
	want := hold(Held, 0, 2)
	want.ResourceKey = "rö\"ll/€"
	if got, ok := decode(entry("reservation.held", quoted)); !ok || cmp.Diff(want, got) != "" {
		t.Errorf("(-want +got):\n%s", cmp.Diff(want, got))
	}
	if e, ok := decode(entry("request.failed", `{"reason": "limit_exceeded", "before": {"reason": ["}", "\\"]}, "n": null}`)); !ok || e.Reason != "limit_exceeded" {
		t.Errorf("a failed request: %+v", e)
	}
	if _, ok := decode(entry("request.failed", `{}`)); !ok {
		t.Error("an empty object is no event")
	}
	for _, broken := range []string{``, `[]`, `{"quantity": "x"}`, `{"quantity": 2`, `{"quantity": 2.5}`, `{"resource_key": 7}`, `{"a": [1, "}`, `{"a" 1}`} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%q is decoded", broken)
				}
			}()
			decode(entry("reservation.held", broken))
		}()
	}
}
