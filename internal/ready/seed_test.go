package ready_test

import (
	"context"
	"log/slog"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/internal/pgtest"
	"github.com/holdfast/holdfast/internal/ready"
	"github.com/holdfast/holdfast/projections"
)

// commits counts the transactions that are committed.
type commits struct{ n atomic.Int64 }

func (c *commits) TraceQueryStart(ctx context.Context, _ *pgx.Conn, query pgx.TraceQueryStartData) context.Context {
	if query.SQL == "commit" {
		c.n.Add(1)
	}
	return ctx
}

func (c *commits) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// discarded is a receiver of frames that sends nothing.
type discarded struct{}

func (discarded) Send(context.Context, []projections.Frame) error { return nil }

// Reseed replaces the states of 200 stocks per transaction, and reports how far
// it is.
func TestReseedInBatches(t *testing.T) {
	t.Parallel()
	const stocks = 450
	db := pgtest.New(t)
	pgtest.Exec(t, db, `INSERT INTO inventory_stocks (tenant_id, variant_id, stock) SELECT $1, 'v' || n, n FROM generate_series(1, $2::int) AS n`,
		uuid.New(), stocks)
	counted := &commits{}
	config := db.Config()
	config.ConnConfig.Tracer = counted
	traced, err := pgxpool.NewWithConfig(t.Context(), config)
	pgtest.Must(t, err)
	t.Cleanup(traced.Close)
	set, err := ready.New(traced, projections.Config{Send: discarded{}.Send, Log: slog.New(slog.DiscardHandler)})
	pgtest.Must(t, err)
	for version := range 2 {
		counted.n.Store(0)
		var done []int
		n, err := set.Reseed(t.Context(), func(seeded int) { done = append(done, seeded) })
		if want := []int{200, 400, 450}; err != nil || n != stocks || !slices.Equal(done, want) {
			t.Errorf("%d seeded, %v; progress %v", n, err, done)
		}
		if n := counted.n.Load(); n != 3 {
			t.Errorf("%d transactions for %d stocks", n, stocks)
		}
		right := pgtest.Int(t, db, `SELECT count(*) FROM projection_snapshots p JOIN inventory_stocks s ON s.tenant_id = p.tenant_id AND s.variant_id = p.key
			WHERE p.version = $1 AND p.state->>'stock' = s.stock::text`, version+1)
		if right != stocks {
			t.Errorf("%d states are those of their stocks, with version %d", right, version+1)
		}
	}
	if n, err := set.Stocks(t.Context()); err != nil || n != stocks {
		t.Errorf("%d stocks, %v", n, err)
	}
}
