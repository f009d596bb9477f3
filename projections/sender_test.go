package projections_test

import (
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/internal/pgtest"
	"github.com/holdfast/holdfast/projections"
)

// sum is a delta that shows which events were combined into it. As a real one
// would have to, it does not depend on where a client begins.
type sum struct {
	Events int64 `json:"events"`
}

// A channel whose deltas can be combined has at most one frame per 50 ms. The
// frames cover every version once, the last one included, however many events
// there are. Another channel is not delayed.
func TestFrameRate(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	y := &yard{t: t, db: db, sent: &recorder{}}
	runtime, err := projections.New(db, projections.Projection[moved, sum, sum]{
		Name:     "warehouses.totals",
		Key:      func(m moved) projections.Key { return projections.Key{TenantID: m.Tenant, Key: m.Warehouse} },
		Apply:    func(s *sum, _ moved) sum { s.Events++; return *s },
		Coalesce: func(_, b sum) sum { return b },
	}, projections.Config{Broadcaster: y.sent, Log: slog.New(slog.DiscardHandler)})
	y.must(err)
	events, begun := int64(0), time.Now()
	for ; time.Since(begun) < 300*time.Millisecond; events++ {
		y.must(runtime.ApplyEvent(t.Context(), y.move("a", "nail", 1)))
		if events == 0 {
			y.must(runtime.ApplyEvent(t.Context(), y.move("b", "nail", 1)))
		}
	}
	pgtest.Until(t, "the last frame is sent", func() bool {
		frames := y.sent.of(channel("a"))
		return frames[len(frames)-1].Version == events
	})
	y.wantGapless("a", events)
	y.wantGapless("b", 1)
	for _, f := range y.sent.of(channel("a")) {
		if string(f.Payload) != fmt.Sprintf(`{"events":%d}`, f.Version) {
			t.Errorf("the frame of version %d has %s", f.Version, f.Payload)
		}
	}
	sent := int64(len(y.sent.of(channel("a"))))
	if most := int64(time.Since(begun)/(50*time.Millisecond)) + 2; sent > most {
		t.Errorf("%d frames, want at most %d", sent, most)
	}
	t.Logf("%d events in %d frames", events, sent)
}

// A rebuild's frame replaces the deltas before it that wait, and not a delta
// that came after it in another process.
func TestRebuildKeepsLaterDelta(t *testing.T) {
	t.Parallel()
	y := newYard(t, func(p *projections.Projection[moved, totals, total]) {
		p.Coalesce = func(_, b total) total { return b }
	})
	ctx := t.Context()
	apply := func(m moved) (change projections.Change) {
		y.must(pgx.BeginFunc(ctx, y.db, func(tx pgx.Tx) (err error) {
			change, err = y.runtime.ApplyEventTx(ctx, tx, m)
			return err
		}))
		return change
	}
	seed := func() (change projections.Change) {
		y.must(pgx.BeginFunc(ctx, y.db, func(tx pgx.Tx) (err error) {
			change, err = y.runtime.SeedTx(ctx, tx, []projections.Seed[totals]{{Key: y.key("a")}}, 0)
			return err
		}))
		return change
	}
	changes := []projections.Change{apply(y.move("a", "nail", 1)), apply(y.move("a", "nail", 2)), seed(), apply(y.move("a", "nail", 3))}
	y.must(y.runtime.Broadcast(ctx, changes[0], changes[1], changes[3], changes[2])) // the last delta comes before the rebuild
	pgtest.Until(t, "the last delta is sent", func() bool {
		frames := y.sent.of(channel("a"))
		return frames[len(frames)-1].Version == 4
	})
}
