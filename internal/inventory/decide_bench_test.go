package inventory

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"
)

// BenchmarkDecide decides sets of requests for one variant, half of which fit.
func BenchmarkDecide(b *testing.B) {
	for _, size := range []int{1, 100, 2000} {
		b.Run(fmt.Sprintf("group=%d", size), func(b *testing.B) {
			tenant := uuid.New()
			requests := make([]HoldRequest, size)
			for i := range requests {
				requests[i] = HoldRequest{TenantID: tenant, RequestID: uuid.New(), CartID: fmt.Sprint("cart-", i), VariantID: "shoe", Quantity: 1}
			}
			in := inputs{
				Terms: Terms{TTL: time.Minute, LifetimeMax: time.Hour},
				stocks: stocks{now: time.Now(), counters: map[Ref]*counter{{tenant, "shoe"}: {
					TenantID: tenant, VariantID: "shoe", Stock: int64(size/2 + 1), Tracked: true,
				}}},
			}
			for b.Loop() {
				if d := decide(requests, in); len(d.holds) != min(size, size/2+1) {
					b.Fatalf("%d holds", len(d.holds))
				}
			}
			b.ReportMetric(float64(b.N*size)/b.Elapsed().Seconds(), "requests/s")
		})
	}
}
