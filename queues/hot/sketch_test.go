package hot

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/google/uuid"
	"pgregory.net/rapid"

	"github.com/holdfast/holdfast/requests"
)

// No count is too high, none too low by more than promised, and no more is remembered than there are places.
func TestFrequent(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		places := rapid.IntRange(1, 8).Draw(t, "places")
		f := newFrequent[int](places)
		truth, total := make(map[int]int64), int64(0)
		for range rapid.IntRange(0, 300).Draw(t, "adds") {
			key, n := rapid.IntRange(0, 20).Draw(t, "key"), rapid.Int64Range(1, 5).Draw(t, "n")
			f.add(key, n)
			truth[key] += n
			total += n
		}
		if f.total != total || len(f.counts) > places {
			t.Fatalf("%d counted in %d places, want %d in %d at most", f.total, len(f.counts), total, places)
		}
		for key, count := range truth {
			got := int64(0)
			if f.counts[key] != nil {
				got = *f.counts[key]
			}
			if got > count || count-got > total/int64(places+1) {
				t.Fatalf("key %d: %d of %d, of %d in all", key, got, count, total)
			}
		}
	})
}

// Of as many busy variants as may be hot by themselves, a process tells of each, and no detector may have more places.
func TestTellsOfAllThatMayBeHot(t *testing.T) {
	t.Parallel()
	s := NewSignals(nil, nil)
	told, tenant := make(map[string]bool), uuid.New()
	for range 3 {
		for i := range VariantsNoted {
			s.Observe([]requests.Submission{{TenantID: tenant, VariantID: fmt.Sprint("hot-", i)}})
		}
	}
	for i := range variantPlaces - VariantsNoted {
		s.Observe([]requests.Submission{{TenantID: tenant, VariantID: fmt.Sprint("calm-", i)}})
	}
	for _, signal := range s.take() {
		told[signal.VariantID] = true
	}
	for i := range 256 {
		if !told[fmt.Sprint("hot-", i)] {
			t.Errorf("it does not tell of hot-%d", i)
		}
	}
	if _, err := (DetectorConfig{VariantsMax: VariantsNoted + 1}).withDefaults(); err == nil {
		t.Error("a detector may have more variants hot than a process tells of")
	}
}

// BenchmarkObserve counts one request, in groups of 40: of a single hot variant, of 10,000 alike, and of 10,000 where few
// make most of it.
func BenchmarkObserve(b *testing.B) {
	const groupSize = 40
	zipf := rand.NewZipf(rand.New(rand.NewPCG(1, 2)), 1.1, 1, 9999)
	for name, next := range map[string]func() int{
		"one":     func() int { return 0 },
		"uniform": func() int { return rand.IntN(10_000) },
		"skewed":  func() int { return int(zipf.Uint64()) },
	} {
		b.Run(name, func(b *testing.B) {
			s, tenant := NewSignals(nil, nil), uuid.New()
			groups := make([][]requests.Submission, 1000)
			for i := range groups {
				groups[i] = make([]requests.Submission, groupSize)
				for j := range groups[i] {
					groups[i][j] = requests.Submission{TenantID: tenant, VariantID: fmt.Sprint("variant-", next())}
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
