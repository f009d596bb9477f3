package ready_test

import (
	"log/slog"
	"testing"

	"github.com/google/uuid"

	"github.com/holdfast/holdfast/audit"
	"github.com/holdfast/holdfast/internal/inventory"
	"github.com/holdfast/holdfast/internal/pgtest"
	"github.com/holdfast/holdfast/internal/ready"
	"github.com/holdfast/holdfast/projections"
)

// BenchmarkFeed folds the holds of one hot variant into all ready projections.
// An operation is one event.
func BenchmarkFeed(b *testing.B) {
	db := pgtest.New(b)
	tenant := uuid.New()
	_, err := inventory.Set(b.Context(), db, tenant, "shoe", inventory.StockPatch{Stock: new(int64(1_000_000_000))}, audit.Origin{})
	pgtest.Must(b, err)
	pgtest.Exec(b, db, `INSERT INTO audit_log (tenant_id, target_id, action, actor_kind, created_at, resource_kind, resource_key, holder_id, quantity, expires_at)
		SELECT $1, uuidv7(), 'reservation.held', 'system', clock_timestamp() + n * interval '1 ms', 'inventory.variant', 'shoe', 'cart-' || n, 1,
		       clock_timestamp()
		FROM generate_series(1, $2) n`, tenant, b.N)
	set, err := ready.New(db, projections.Config{Log: slog.New(slog.DiscardHandler)})
	pgtest.Must(b, err)
	feed, err := projections.NewFeed(db, projections.Config{Log: slog.New(slog.DiscardHandler)})
	pgtest.Must(b, err)
	pgtest.Must(b, set.Register(feed))
	b.ResetTimer()
	for folded := 0; folded <= b.N; {
		report, err := feed.RunOnce(b.Context())
		pgtest.Must(b, err)
		folded += report.Delivered
	}
}
