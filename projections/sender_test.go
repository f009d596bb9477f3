package projections_test

import (
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/internal/pgtest"
	"github.com/holdfast/holdfast/projections"
)

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
			change, err = y.runtime.SeedTx(ctx, tx, map[projections.Key]totals{y.key("a"): {}}, 0)
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
