package projections_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/internal/pg"
	"github.com/holdfast/holdfast/internal/pgtest"
	"github.com/holdfast/holdfast/projections"
)

func TestApplyEvent(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	ctx := t.Context()
	if _, found, err := y.runtime.Read(ctx, y.key("a")); found || err != nil {
		t.Errorf("before the first event: found %t, %v", found, err)
	}
	_, err := y.runtime.ReadRequired(ctx, y.key("a"))
	if missing, ok := errors.AsType[*projections.Error](err); !ok || !errors.Is(err, projections.ErrStateNotFound) || missing.Key != y.key("a") {
		t.Errorf("before the first event: %v", err)
	}
	events := []moved{y.move("a", "nail", 5), y.move("a", "screw", 2), y.move("a", "nail", -1)}
	for _, m := range events {
		y.must(y.runtime.ApplyEvent(ctx, m))
	}
	y.must(y.runtime.ApplyEvent(ctx, y.move("b", "nail", 9)))
	y.want("a", 3, events...)
	var got []string
	for _, f := range y.sent.of("projection.warehouses.totals.a") {
		got = append(got, fmt.Sprintf("%s %d-%d %s", f.Event, f.First, f.Version, f.Payload))
	}
	want := []string{
		`delta 1-1 {"item":"nail","total":5}`, `delta 2-2 {"item":"screw","total":2}`, `delta 3-3 {"item":"nail","total":4}`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("frames (-want +got):\n%s", diff)
	}
	other := projections.Key{TenantID: uuid.New(), Key: "a"}
	if _, found, err := y.runtime.Read(ctx, other); found || err != nil {
		t.Errorf("another tenant's key: found %t, %v", found, err)
	}
}

// Callers on one key are serialized, whatever runtime they use.
func TestApplyEventConcurrently(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	pgtest.Exec(t, y.db, fmt.Sprintf(`ALTER DATABASE %q SET synchronous_commit = off`, y.db.Config().ConnConfig.Database))
	y.db.Reset()
	second := openYard(t, y.db)
	second.sent, second.tenant = y.sent, y.tenant
	var callers sync.WaitGroup
	const each, keys = 25, 3
	for n := range 8 {
		runtime := y.runtime
		if n%2 == 0 {
			runtime = second.runtime
		}
		callers.Go(func() {
			for i := range each {
				if err := runtime.ApplyEvent(t.Context(), y.move(fmt.Sprint("w", i%keys), "nail", 1)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	callers.Wait()
	sum := int64(0)
	for k := range keys {
		state, version, _ := y.state(fmt.Sprint("w", k))
		if state.Events != version || state.Units["nail"] != version {
			t.Errorf("w%d: version %d, %+v", k, version, state)
		}
		sum += version
	}
	if sum != 8*each {
		t.Errorf("%d events, want %d", sum, 8*each)
	}
}

// A failed broadcast leaves the state, and the next frame shows the gap.
func TestBroadcastFails(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	y.sent.broken = true
	err := y.runtime.ApplyEvent(t.Context(), y.move("a", "nail", 5))
	if !isBroadcastError(err) || !errors.Is(err, errBroken) || !strings.HasPrefix(err.Error(), "projection: ") {
		t.Errorf("the error is %v", err)
	}
	y.want("a", 1, y.move("a", "nail", 5))
	y.sent.broken = false
	y.must(y.runtime.ApplyEvent(t.Context(), y.move("a", "nail", 1)))
	if frames := y.sent.of(channel("a")); len(frames) != 1 || frames[0].First != 2 {
		t.Errorf("the next frame is %+v", frames)
	}
}

// An event that cannot be folded changes nothing, and leaves no row.
func TestApplyEventFails(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	ctx := t.Context()
	y.must(y.runtime.ApplyEvent(ctx, y.move("a", "nail", 5)))
	for _, m := range []moved{y.move("a", "panic", 1), y.move("b", "panic", 1), y.move("b", "large", 1), y.move("", "nail", 1), y.move("c\x00", "nail", 1),
		y.move(strings.Repeat("ä", projections.KeyMax+1), "nail", 1)} {
		err := y.runtime.ApplyEvent(ctx, m)
		if !errors.Is(err, projections.ErrApply) && !errors.Is(err, projections.ErrJSON) || !strings.HasPrefix(err.Error(), "projection: ") {
			t.Errorf("%.20q %q: %v", m.Warehouse, m.Item, err)
		}
	}
	y.want("a", 1, y.move("a", "nail", 5))
	if n := pgtest.Int(t, y.db, `SELECT count(*) FROM projection_snapshots`); n != 1 {
		t.Errorf("%d rows, want 1", n)
	}
	ended, cancel := context.WithCancel(ctx)
	cancel()
	err := y.runtime.ApplyEvent(ended, y.move("a", "nail", 1))
	if !isDatabaseError(err) || !errors.Is(err, context.Canceled) || !strings.HasPrefix(err.Error(), "projection: ") {
		t.Errorf("after the end of the context: %v", err)
	}
}

// ApplyEventTx is undone with the caller's transaction, and refuses one that
// might not see the newest state.
func TestApplyEventTx(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	ctx := t.Context()
	apply := func(options pgx.TxOptions, after error) error {
		var change projections.Change
		err := pgx.BeginTxFunc(ctx, y.db, options, func(tx pgx.Tx) (err error) {
			if change, err = y.runtime.ApplyEventTx(ctx, tx, y.move("a", "nail", 5)); err == nil {
				err = after
			}
			return err
		})
		if err == nil {
			err = y.runtime.Broadcast(ctx, change)
		}
		return err
	}
	if err := apply(pgx.TxOptions{}, errBroken); !errors.Is(err, errBroken) {
		t.Error(err)
	}
	if _, found, err := y.runtime.Read(ctx, y.key("a")); found || err != nil || len(y.sent.of(channel("a"))) > 0 {
		t.Errorf("after a rollback: found %t, %v", found, err)
	}
	for _, level := range []pgx.TxIsoLevel{pgx.RepeatableRead, pgx.Serializable} {
		if err := apply(pgx.TxOptions{IsoLevel: level}, nil); !errors.Is(err, pg.ErrIsolation) {
			t.Errorf("%s: %v", level, err)
		}
	}
	y.must(apply(pgx.TxOptions{}, nil))
	y.want("a", 1, y.move("a", "nail", 5))
	y.wantGapless("a", 1)
}

func TestRebuild(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	ctx := t.Context()
	for range 4 {
		y.must(y.runtime.ApplyEvent(ctx, y.move("a", "nail", 5)))
	}
	events := make([]moved, 250) // more than two snapshot intervals
	for i := range events {
		events[i] = y.move("a", "screw", int64(i))
	}
	state, err := y.runtime.Rebuild(ctx, y.key("a"), slices.Values(events), 77)
	y.must(err)
	y.want("a", 5, events...)
	if _, _, position := y.state("a"); position != 77 || state.Events != 250 {
		t.Errorf("position %d, returned %+v", position, state)
	}
	frames := y.sent.of(channel("a"))
	stored, err := projections.Snapshots(ctx, y.db, y.tenant, []string{channel("a")})
	y.must(err)
	last := frames[len(frames)-1]
	if len(frames) != 5 || last.Event != "rebuild" || last.First != 5 || last.Version != 5 || string(last.Payload) != string(stored[0].Payload) {
		t.Errorf("%d frames, the last is %+v", len(frames), last)
	}
	if _, err := y.runtime.Rebuild(ctx, y.key("a"), slices.Values(events[:1]), 76); !errors.Is(err, projections.ErrBehind) {
		t.Errorf("from an older position: %v", err)
	}
	if _, err := y.runtime.Rebuild(ctx, y.key("new"), slices.Values(events[:1]), 0); err != nil {
		t.Error(err)
	}
	y.want("new", 1, events[0])
}

// A rebuild without events deletes the row and sends nothing.
func TestRebuildEmpty(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	ctx := t.Context()
	none := slices.Values([]moved(nil))
	y.must(y.runtime.ApplyEvent(ctx, y.move("a", "nail", 5)))
	for range 2 {
		state, err := y.runtime.Rebuild(ctx, y.key("a"), none, 0)
		if err != nil || state.Events != 0 {
			t.Errorf("%+v, %v", state, err)
		}
	}
	if n := pgtest.Int(t, y.db, `SELECT count(*) FROM projection_snapshots`); n != 0 || len(y.sent.frames) != 1 {
		t.Errorf("%d rows, %d frames", n, len(y.sent.frames))
	}
	y.must(y.runtime.ApplyEvent(ctx, y.move("a", "nail", 3)))
	y.want("a", 1, y.move("a", "nail", 3))
}

func TestSnapshotsAndVersions(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	ctx := t.Context()
	names := []string{"a", "inventory.variant", "a b/ü.1", strings.Repeat("k", projections.KeyMax)}
	for i, name := range names {
		for range i + 1 {
			y.must(y.runtime.ApplyEvent(ctx, y.move(name, "nail", 1)))
		}
	}
	channels := []string{"projection.warehouses.totals.none", "ops.overview", "projection.", "projection.warehouses", "projection.warehouses.totals."}
	for _, name := range names {
		channels = append(channels, channel(name))
	}
	frames, err := projections.Snapshots(ctx, y.db, y.tenant, channels)
	y.must(err)
	var got []string
	for _, f := range frames {
		got = append(got, fmt.Sprintf("%s %s %d %d %t", f.Channel, f.Event, f.First, f.Version, len(f.Payload) > 20 && f.TenantID == y.tenant))
	}
	var want []string
	for i, name := range names {
		want = append(want, fmt.Sprintf("%s snapshot %d %d true", channel(name), i+1, i+1))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("snapshots (-want +got):\n%s", diff)
	}
	tenants := make([]uuid.UUID, 2*len(channels))
	for i := range tenants {
		tenants[i] = y.tenant
		if i >= len(channels) {
			tenants[i] = uuid.New()
		}
	}
	versions, err := projections.Versions(ctx, y.db, tenants, append(channels, channels...))
	y.must(err)
	if diff := cmp.Diff(append([]int64{0, 0, 0, 0, 0, 1, 2, 3, 4}, make([]int64, 9)...), versions); diff != "" {
		t.Errorf("versions (-want +got):\n%s", diff)
	}
	if _, err := projections.Versions(ctx, y.db, tenants[:1], channels); err == nil {
		t.Error("fewer tenants than channels are accepted")
	}
	if _, err := projections.Snapshots(ctx, y.db, y.tenant, make([]string, projections.ChannelsMax+1)); err == nil {
		t.Error("too many channels are accepted")
	}
}

func TestNewRefuses(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	for name, change := range map[string]func(*projections.Projection[moved, totals, total]){
		"no name":       func(p *projections.Projection[moved, totals, total]) { p.Name = "" },
		"upper case":    func(p *projections.Projection[moved, totals, total]) { p.Name = "Totals" },
		"an empty word": func(p *projections.Projection[moved, totals, total]) { p.Name = "a..b" },
		"a long name": func(p *projections.Projection[moved, totals, total]) {
			p.Name = strings.Repeat("a", projections.NameMax+1)
		},
		"no key":              func(p *projections.Projection[moved, totals, total]) { p.Key = nil },
		"no apply":            func(p *projections.Projection[moved, totals, total]) { p.Apply = nil },
		"a negative interval": func(p *projections.Projection[moved, totals, total]) { p.SnapshotInterval = -1 },
		"an endless interval": func(p *projections.Projection[moved, totals, total]) { p.SnapshotInterval = math.MaxInt },
		"rebuild as a delta":  func(p *projections.Projection[moved, totals, total]) { p.EventName = "rebuild" },
	} {
		p := warehouses()
		change(&p)
		if _, err := projections.New(db, p, projections.Config{}); err == nil || !strings.HasPrefix(err.Error(), "projection: ") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
