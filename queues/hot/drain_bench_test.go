package hot_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/holdfast/holdfast/internal/admission"
	"github.com/holdfast/holdfast/internal/lanes"
	"github.com/holdfast/holdfast/internal/queues"
	"github.com/holdfast/holdfast/internal/requestrows"
	"github.com/holdfast/holdfast/internal/testkit"
)

// BenchmarkDrain decides requests for one hot variant: with enough stock at
// three group sizes, and sold out. It excludes admission, whose rows are made
// before the clock starts. bench/ compares it with other methods.
func BenchmarkDrain(b *testing.B) {
	for _, c := range []struct {
		size    int
		soldOut bool
	}{{1, false}, {100, false}, {2000, false}, {2000, true}} {
		b.Run(fmt.Sprintf("group=%d/sold-out=%t", c.size, c.soldOut), func(b *testing.B) {
			fixture := testkit.New(b, lanes.Hot)
			held := b.N
			if c.soldOut {
				held = 0
			}
			fixture.Stock("shoe", held)
			lane := fixture.Lane(queues.LaneConfig{DrainConfig: queues.DrainConfig{Batch: c.size}})
			fixture.Tick(lane)
			admitMany(b, fixture, b.N)
			b.ResetTimer()
			fixture.Tick(lane)
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "decided/s")
			b.StopTimer()
			if n := fixture.Int(`SELECT count(*) FROM reservations WHERE status = 'held'`); n != int64(held) {
				b.Fatalf("%d holds, want %d", n, held)
			}
		})
	}
}

// admitMany queues n requests for the shoe in the hot lane.
func admitMany(b *testing.B, fixture *testkit.Fixture, n int) {
	b.Helper()
	in := fixture.Intake(admission.IntakeConfig{DepthMax: 1 << 30, TenantSharePercent: 100})
	var callers sync.WaitGroup
	var left atomic.Int64
	left.Store(int64(n))
	for range 512 {
		callers.Go(func() {
			for i := left.Add(-1); i >= 0; i = left.Add(-1) {
				s := requestrows.Submission{TenantID: fixture.Tenant, CartID: fmt.Sprint("cart-", i), VariantID: "shoe", Quantity: 1}
				if _, err := in.Submit(context.Background(), s); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	callers.Wait()
}
