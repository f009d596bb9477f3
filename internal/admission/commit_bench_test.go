package admission_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/holdfast/holdfast/internal/admission"
	"github.com/holdfast/holdfast/internal/lanes"
	"github.com/holdfast/holdfast/internal/requestrows"
	"github.com/holdfast/holdfast/internal/testkit"
)

// BenchmarkAdmit admits requests for one variant, in groups of at most the
// given size, from 64 or 512 callers, with and without idempotency keys.
func BenchmarkAdmit(b *testing.B) {
	for _, c := range []struct {
		group, callers int
		keyed          bool
	}{{1, 64, false}, {100, 64, false}, {500, 512, false}, {1, 64, true}, {100, 64, true}, {500, 512, true}} {
		b.Run(fmt.Sprintf("group=%d/callers=%d/keyed=%t", c.group, c.callers, c.keyed), func(b *testing.B) {
			fixture := testkit.New(b, lanes.Normal)
			fixture.Stock("shoe", 1)
			in := fixture.Intake(admission.IntakeConfig{GroupMax: c.group, DepthMax: 1 << 30, TenantSharePercent: 100})
			var callers sync.WaitGroup
			var left atomic.Int64
			left.Store(int64(b.N))
			b.ResetTimer()
			for range c.callers {
				callers.Go(func() {
					for i := left.Add(-1); i >= 0; i = left.Add(-1) {
						s := requestrows.Submission{TenantID: fixture.Tenant, CartID: fmt.Sprint("cart-", i), VariantID: "shoe", Quantity: 1}
						if c.keyed {
							s.IdempotencyKey = fmt.Sprint("key-", i)
						}
						if _, err := in.Submit(context.Background(), s); err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			callers.Wait()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "requests/s")
		})
	}
}
