package hot_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/internal/lanetest"
	"github.com/holdfast/holdfast/queues"
	"github.com/holdfast/holdfast/queues/hot"
	"github.com/holdfast/holdfast/requests"
)

// BenchmarkDrain holds units of one hot variant: the drain at three group sizes, beside a transaction per request as a
// good engineer would write it. Admission is not counted: its rows are made before the clock starts.
func BenchmarkDrain(b *testing.B) {
	for _, size := range []int{1, 100, 2000} {
		b.Run(fmt.Sprintf("group=%d", size), func(b *testing.B) {
			bench := lanetest.New(b, requests.Hot, hot.NewLane)
			bench.Stock("shoe", b.N)
			lane := bench.Lane(queues.LaneConfig{DrainConfig: queues.DrainConfig{Batch: size}})
			bench.Tick(lane)
			admitMany(b, bench, b.N)
			b.ResetTimer()
			bench.Tick(lane)
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "holds/s")
			b.StopTimer()
			if n := bench.Int(`SELECT count(*) FROM reservations WHERE status = 'held'`); n != int64(b.N) {
				b.Fatalf("%d holds, want %d", n, b.N)
			}
		})
	}
	for _, connections := range []int{16, 64} {
		b.Run(fmt.Sprintf("transaction-per-request/connections=%d", connections), func(b *testing.B) {
			bench := lanetest.New(b, requests.Normal, hot.NewLane)
			bench.Stock("shoe", b.N)
			config := bench.DB.Config()
			config.MaxConns = int32(connections)
			db, err := pgxpool.NewWithConfig(b.Context(), config)
			if err != nil {
				b.Fatal(err)
			}
			b.Cleanup(db.Close)
			b.ResetTimer()
			perRequest(b, db, bench.Tenant, connections)
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "holds/s")
		})
	}
}

// admitMany queues n requests for the shoe in the hot lane.
func admitMany(b *testing.B, bench *lanetest.Bench, n int) {
	b.Helper()
	in := bench.Intake(requests.IntakeConfig{DepthMax: 1 << 30, TenantSharePercent: 100})
	var callers sync.WaitGroup
	var left atomic.Int64
	left.Store(int64(n))
	for range 512 {
		callers.Go(func() {
			for i := left.Add(-1); i >= 0; i = left.Add(-1) {
				s := requests.Submission{TenantID: bench.Tenant, CartID: fmt.Sprint("cart-", i), VariantID: "shoe", Quantity: 1}
				if _, err := in.Submit(context.Background(), s); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	callers.Wait()
}

// perRequest is the rival: guarded update, insert of the request, insert of the hold, audit row, each request in a
// transaction of its own.
func perRequest(b *testing.B, db *pgxpool.Pool, tenant uuid.UUID, connections int) {
	b.Helper()
	var callers sync.WaitGroup
	var left atomic.Int64
	left.Store(int64(b.N))
	for range connections {
		callers.Go(func() {
			for i := left.Add(-1); i >= 0; i = left.Add(-1) {
				id, cart := uuid.Must(uuid.NewV7()), fmt.Sprint("cart-", i)
				err := pgx.BeginFunc(context.Background(), db, func(tx pgx.Tx) error {
					for _, s := range []struct {
						sql  string
						args []any
					}{
						{`INSERT INTO reservation_requests (tenant_id, request_id, lane, status, cart_id, variant_id, quantity) VALUES ($1, $2, 'normal', 'done', $3, 'shoe', 1)`, []any{tenant, id, cart}},
						{`INSERT INTO reservations (tenant_id, reservation_id, resource_kind, resource_key, holder_id, quantity, first_held_at, held_at, expires_at)
						  VALUES ($1, $2, 'inventory.variant', 'shoe', $3, 1, now(), now(), now() + interval '15 minutes')`, []any{tenant, id, cart}},
						{`INSERT INTO audit_log (tenant_id, target_id, action, actor_kind, after) VALUES ($1, $2, 'reservation.held', 'system', '{"status":"held","quantity":1}')`, []any{tenant, id}},
						{`UPDATE inventory_stocks SET reserved = reserved + 1 WHERE tenant_id = $1 AND variant_id = 'shoe' AND stock - reserved >= 1`, []any{tenant}},
					} {
						if _, err := tx.Exec(context.Background(), s.sql, s.args...); err != nil {
							return err
						}
					}
					return nil
				})
				if err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	callers.Wait()
}
