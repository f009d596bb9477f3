package signals

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/google/uuid"
	"pgregory.net/rapid"

	"github.com/holdfast/holdfast/internal/requestrows"
)

// No count is too high, or too low by more than the bound. The number of
// counted keys does not exceed the capacity.
func TestFrequent(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		capacity := rapid.IntRange(1, 8).Draw(t, "capacity")
		f := newFrequent[int](capacity)
		truth, total := make(map[int]int64), int64(0)
		for range rapid.IntRange(0, 300).Draw(t, "adds") {
			key, n := rapid.IntRange(0, 20).Draw(t, "key"), rapid.Int64Range(1, 5).Draw(t, "n")
			f.add(key, n)
			truth[key] += n
			total += n
		}
		if f.total != total || len(f.counts) > capacity {
			t.Fatalf("%d counted with %d keys, want %d with at most %d", f.total, len(f.counts), total, capacity)
		}
		for key, count := range truth {
			got := int64(0)
			if f.counts[key] != nil {
				got = *f.counts[key]
			}
			if got > count || count-got > total/int64(capacity+1) {
				t.Fatalf("key %d: %d of %d, of %d in all", key, got, count, total)
			}
		}
	})
}

// A process counts at least as many variants as the detector may keep hot.
func TestRecordsEveryPossibleHotVariant(t *testing.T) {
	t.Parallel()
	s := New(nil, nil)
	recorded, tenant := make(map[string]bool), uuid.New()
	for range 3 {
		for i := range VariantsRecorded {
			s.Observe([]requestrows.Submission{{TenantID: tenant, VariantID: fmt.Sprint("hot-", i)}})
		}
	}
	for i := range variantCapacity - VariantsRecorded {
		s.Observe([]requestrows.Submission{{TenantID: tenant, VariantID: fmt.Sprint("quiet-", i)}})
	}
	for _, signal := range s.endWindow() {
		recorded[signal.VariantID] = true
	}
	for i := range 256 {
		if !recorded[fmt.Sprint("hot-", i)] {
			t.Errorf("hot-%d is not recorded", i)
		}
	}
}

// BenchmarkObserve counts requests in groups of 40: for a single hot variant,
// for 10,000 equally busy ones, and for 10,000 of which a few have most
// requests.
func BenchmarkObserve(b *testing.B) {
	const groupSize = 40
	zipf := rand.NewZipf(rand.New(rand.NewPCG(1, 2)), 1.1, 1, 9999)
	for name, next := range map[string]func() int{
		"one":     func() int { return 0 },
		"uniform": func() int { return rand.IntN(10_000) },
		"skewed":  func() int { return int(zipf.Uint64()) },
	} {
		b.Run(name, func(b *testing.B) {
			s, tenant := New(nil, nil), uuid.New()
			groups := make([][]requestrows.Submission, 1000)
			for i := range groups {
				groups[i] = make([]requestrows.Submission, groupSize)
				for j := range groups[i] {
					groups[i][j] = requestrows.Submission{TenantID: tenant, VariantID: fmt.Sprint("variant-", next())}
				}
			}
			b.ReportAllocs()
			b.ResetTimer()
			for i := 0; i < b.N; i += groupSize {
				s.Observe(groups[i/groupSize%len(groups)])
			}
		})
	}
}
