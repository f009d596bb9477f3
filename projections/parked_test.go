package projections_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast/holdfast/internal/ops"
	"github.com/holdfast/holdfast/internal/pgtest"
	"github.com/holdfast/holdfast/projections"
)

// full is a state that counts how often it is encoded and decoded while its text
// begins with countedFiller.
type full struct {
	Text  string
	Count int
}

const countedFiller = "c"

type plainFull full

// fullCodings counts the encodings and decodings in TestFullKeyIsParked, the only
// test with that filler.
var fullCodings atomic.Int64

func (f *full) MarshalJSON() ([]byte, error) {
	f.coded()
	return json.Marshal((*plainFull)(f))
}

func (f *full) UnmarshalJSON(text []byte) error {
	defer f.coded()
	return json.Unmarshal(text, (*plainFull)(f))
}

func (f *full) coded() {
	if strings.HasPrefix(f.Text, countedFiller) {
		fullCodings.Add(1)
	}
}

// fullYard is a yard with a projection whose item "fill" makes a state of almost
// StateMax, to which the item "grow" adds 100 bytes unless it is mended.
type fullYard struct {
	*yard
	runtime *projections.Runtime[moved, full, int]
	log     pgtest.Log
	filler  string
	mended  bool
}

func newFullYard(t *testing.T, batch int) *fullYard {
	t.Helper()
	y := &fullYard{yard: newYard(t), filler: "x"}
	config := projections.Config{Send: y.sent.Send, Log: slog.New(slog.NewTextHandler(&y.log, nil)), Batch: batch, Lease: time.Minute}
	var err error
	y.runtime, err = projections.New(y.db, projections.Projection[moved, full, int]{
		Name: "warehouses.full",
		Key:  func(m moved) projections.Key { return projections.Key{TenantID: m.Tenant, Key: m.Warehouse} },
		Apply: func(s *full, m moved) int {
			s.Count++
			switch {
			case m.Item == "fill":
				s.Text = strings.Repeat(y.filler, projections.StateMax-500)
			case m.Item == "large" && !y.mended:
				s.Text = strings.Repeat(y.filler, projections.StateMax+1)
			case m.Item == "grow" && !y.mended:
				s.Text += strings.Repeat(y.filler, 100)
			}
			return s.Count
		},
		Source: &projections.Source[moved]{Decode: decodeMoved},
	}, config)
	y.must(err)
	y.feed, err = projections.NewFeed(y.db, config)
	y.must(err)
	y.must(y.runtime.Register(y.feed))
	return y
}

// parked returns the parked keys by name.
func (y *fullYard) parked() map[string]ops.ParkedKey {
	y.t.Helper()
	list, err := ops.ParkedKeys(y.t.Context(), y.db)
	y.must(err)
	found := make(map[string]ops.ParkedKey)
	for _, k := range list {
		found[k.Key] = k
	}
	return found
}

func (y *fullYard) count(warehouse string) int {
	y.t.Helper()
	state, err := y.runtime.ReadRequired(y.t.Context(), y.key(warehouse))
	y.must(err)
	return state.Count
}

const writtenSQL = `SELECT count(*) FROM projection_snapshots WHERE key = 'full' AND updated_at = $1`

// A key whose state has reached the limit is parked after a few failures. Its
// events then cost no decoding and no write, and those of the other keys are
// folded. A rebuild with a mended projection repairs it, and the feed continues.
func TestFullKeyIsParked(t *testing.T) {
	t.Parallel()
	y := newFullYard(t, 0)
	y.filler = countedFiller
	const failing, good = 1000, 10
	events := []moved{y.move("full", "fill", 1)}
	for i := range failing {
		events = append(events, y.move("full", "grow", 1), y.move(fmt.Sprint("good", i%good), "nail", 1))
	}
	y.record(events...)
	y.follow()
	for i := range good {
		if n := y.count(fmt.Sprint("good", i)); n != failing/good {
			t.Errorf("%d events of a good key are folded, want %d", n, failing/good)
		}
	}
	const most = 30 // 8 failures, and the runs before them that fit
	if n := fullCodings.Load(); n > most {
		t.Errorf("%d encodings and decodings, want at most %d", n, most)
	}
	k, ok := y.parked()["full"]
	if !ok || !strings.Contains(k.Reason, "above the limit") || k.TenantID != y.tenant || k.Name != "warehouses.full" || k.ParkedAt.IsZero() {
		t.Fatalf("parked: %+v", k)
	}
	if n := pgtest.Int(t, y.db, `SELECT count(*) FROM projection_snapshots WHERE key = 'full' AND version = (state->>'Count')::bigint
		AND version > 0 AND position < parked_audit_id`); n != 1 {
		t.Error("the state has other events than those before the one that it lacks")
	}

	var writtenAt any
	y.must(y.db.QueryRow(t.Context(), `SELECT updated_at FROM projection_snapshots WHERE key = 'full'`).Scan(&writtenAt))
	fullCodings.Store(0)
	for range 3 {
		y.record(y.move("full", "grow", 1), y.move("full", "nail", 1), y.move("good0", "nail", 1))
		y.follow()
	}
	if n := fullCodings.Load(); n != 0 || pgtest.Int(t, y.db, writtenSQL, writtenAt) != 1 {
		t.Errorf("a parked key is decoded or encoded %d times, or written", n)
	}
	if n := y.count("good0"); n != failing/good+3 {
		t.Errorf("%d events of a good key are folded", n)
	}
	if text := y.log.String(); strings.Count(text, "level=ERROR") != 1 || !strings.Contains(text, "is parked") {
		t.Errorf("the log is\n%s", text)
	}
	err := y.runtime.ApplyEvent(t.Context(), y.move("full", "nail", 1))
	if !isParkedError(err) {
		t.Errorf("ApplyEvent: %v", err)
	}
	list, err := ops.Projections(t.Context(), y.db)
	if err != nil || len(list) != 1 || list[0].Parked != 1 || list[0].Keys != good+1 {
		t.Errorf("%+v, %v", list, err)
	}

	if n, err := y.feed.RebuildFromRecord(t.Context(), "warehouses.full", nil); n != good+1 || !isParkedError(err) {
		t.Errorf("a rebuild with the same projection: %d, %v", n, err)
	}
	if _, ok := y.parked()["full"]; !ok {
		t.Error("the rebuild has not parked the key again")
	}
	y.mended = true
	if n, err := y.feed.RebuildFromRecord(t.Context(), "warehouses.full", nil); n != good+1 || err != nil {
		t.Errorf("a rebuild with the mended projection: %d, %v", n, err)
	}
	y.record(y.move("full", "grow", 1))
	y.follow()
	if n := y.count("full"); n != 1+failing+2*3+1 || len(y.parked()) != 0 {
		t.Errorf("after the rebuild the state has %d events, parked: %v", n, y.parked())
	}
}

func isParkedError(err error) bool {
	return errors.Is(err, projections.ErrParked)
}

// What failures cost is added up over deliveries, until all events of a run can
// be folded. So one failure now and then parks no key.
func TestFailuresAreAddedUp(t *testing.T) {
	t.Parallel()
	y := newFullYard(t, 1) // an event per delivery
	record := func(items ...string) {
		for _, item := range items {
			y.record(y.move("full", item, 1))
		}
		y.follow()
	}
	// A run encodes a state of 1 MiB, and decodes it again.
	record("fill", "grow", "grow", "grow", "grow") // the last ones are above the limit
	room := y.count("full")
	for range 3 {
		record("grow", "grow", "nail")
		record("grow", "nail")
	}
	if len(y.parked()) != 0 || y.count("full") != room+6 {
		t.Errorf("parked: %v; %d events, want %d", y.parked(), y.count("full"), room+6)
	}
	record("grow", "grow", "grow", "grow", "grow", "grow", "grow", "grow", "nail")
	if len(y.parked()) != 1 || y.count("full") != room+6 {
		t.Errorf("parked: %v; %d events, want %d", y.parked(), y.count("full"), room+6)
	}
}

// A key that has no state yet is parked, too: it reads as one without a state.
func TestKeyWithoutStateIsParked(t *testing.T) {
	t.Parallel()
	y := newFullYard(t, 0)
	events := make([]moved, 40)
	for i := range events {
		events[i] = y.move("new", "large", 1)
	}
	y.record(events...)
	y.follow()
	_, found, err := y.runtime.Read(t.Context(), y.key("new"))
	if k := y.parked()["new"]; found || err != nil || k.AuditID == 0 {
		t.Errorf("found %t, %v; parked: %+v", found, err, k)
	}
	frames, err := projections.Snapshots(t.Context(), y.db, y.tenant, []string{projections.Channel("warehouses.full", "new")})
	if err != nil || len(frames) != 0 {
		t.Errorf("%+v, %v", frames, err)
	}
	y.record(y.move("new", "nail", 1))
	y.follow()
	if _, found, err := y.runtime.Read(t.Context(), y.key("new")); found || err != nil {
		t.Errorf("found %t, %v", found, err)
	}
	y.mended = true
	if n, err := y.feed.RebuildFromRecord(t.Context(), "warehouses.full", nil); n != 1 || err != nil {
		t.Errorf("%d rebuilt, %v", n, err)
	}
	if n := y.count("new"); n != 41 || len(y.parked()) != 0 {
		t.Errorf("%d events, parked: %v", n, y.parked())
	}
}
