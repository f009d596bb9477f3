package postings_test

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/uuid"

	"github.com/holdfast/holdfast/postings"
)

// Each verb changes the units in the state that it expects and owned by the
// caller, and no others, and returns how many.
func TestCounts(t *testing.T) {
	t.Parallel()
	ours, theirs := uuid.New(), uuid.New()
	found := map[string]func(h *fixture){ // makes the state of s1 that the verb finds
		"active":               func(*fixture) {},
		"pending, ours":        func(h *fixture) { reserve(h, ours, "s1") },
		"pending, another's":   func(h *fixture) { reserve(h, theirs, "s1") },
		"inactive, ours":       func(h *fixture) { reserve(h, ours, "s1"); finalize(h, ours, "s1") },
		"inactive, another's":  func(h *fixture) { reserve(h, theirs, "s1"); finalize(h, theirs, "s1") },
		"released, once ours":  func(h *fixture) { reserve(h, ours, "s1"); release(h, ours, "s1") },
		"released by a second": func(h *fixture) { reserve(h, ours, "s1"); release(h, theirs, "s1") },
	}
	type after struct {
		n      int64
		status string
	}
	a, p, i := "active", "pending_inactive", "inactive"
	for state, want := range map[string][3]after{ // after reserve, release, finalize
		"active":               {{1, p}, {0, a}, {0, a}},
		"pending, ours":        {{0, p}, {1, a}, {1, i}},
		"pending, another's":   {{0, p}, {0, p}, {0, p}},
		"inactive, ours":       {{0, i}, {0, i}, {0, i}},
		"inactive, another's":  {{0, i}, {0, i}, {0, i}},
		"released, once ours":  {{1, p}, {0, a}, {0, a}},
		"released by a second": {{0, p}, {1, a}, {1, i}},
	} {
		for k, do := range []verb{reserve, release, finalize} {
			t.Run(state+", "+[]string{"reserve", "release", "finalize"}[k], func(t *testing.T) {
				t.Parallel()
				h := newFixture(t, 2)
				found[state](h)
				if n := do(h, ours, "s1"); n != want[k].n {
					t.Errorf("the verb changed %d units, want %d", n, want[k].n)
				}
				units, err := postings.List(t.Context(), h.DB, h.block, "", 10)
				h.Must(err)
				if len(units) != 2 || units[0].Status != want[k].status || units[1].Status != a {
					t.Errorf("units %+v, want s1 %s and s2 active", units, want[k].status)
				}
			})
		}
	}
}

// A recovery distinguishes its own units from those of others by their counts.
func TestCountOwned(t *testing.T) {
	t.Parallel()
	h := newFixture(t, 6)
	ours, theirs := uuid.New(), uuid.New()
	reserve(h, ours, "s1", "s2", "s3")
	finalize(h, ours, "s1")
	reserve(h, theirs, "s4", "s5")
	finalize(h, theirs, "s5")
	got, err := postings.CountOwned(t.Context(), h.DB, h.block, append(seats(1, 6), "s7"), ours)
	h.Must(err)
	if want := (postings.Counts{Active: 1, Pending: 2, Inactive: 1, Others: 2, Unknown: 1}); got != want {
		t.Errorf("counts %+v, want %+v", got, want)
	}
}

// A unit of another tenant, or of another block of the same tenant, is not
// changed, whatever its id.
func TestUnitsOfOthers(t *testing.T) {
	t.Parallel()
	h := newFixture(t, 1)
	for _, other := range []postings.Block{{TenantID: uuid.New(), Block: "hall"}, {TenantID: h.block.TenantID, Block: "stage"}} {
		n, err := postings.Reserve(t.Context(), h.DB, other, []string{"s1"}, uuid.New())
		if err != nil || n != 0 {
			t.Errorf("%+v: reserved %d units, %v", other, n, err)
		}
	}
}

// Pairs of sagas fight for overlapping sets of units. Each takes all of its
// units or gives back what it got. No unit is finalized twice, none is left
// pending, and every unit has the owner that finalized it.
func TestOverlappingSagas(t *testing.T) {
	t.Parallel()
	const units, workers, pairs = 400, 8, 500
	h := newFixture(t, units)
	all := seats(1, units)
	var won atomic.Int64
	saga := func(ids []string) {
		owner := uuid.New()
		if reserve(h, owner, ids...) < int64(len(ids)) {
			release(h, owner, ids...)
			return
		}
		n := finalize(h, owner, ids...)
		if n != int64(len(ids)) {
			t.Errorf("finalized %d of %d units that it owned", n, len(ids))
		}
		won.Add(n)
	}
	var wait sync.WaitGroup
	for worker := range workers {
		wait.Go(func() {
			random := rand.New(rand.NewPCG(1, uint64(worker)))
			for range pairs / workers {
				first, n := random.IntN(units-8), 1+random.IntN(6)
				var pair sync.WaitGroup
				pair.Go(func() { saga(all[first : first+n]) })
				pair.Go(func() { saga(all[first+n/2 : first+n/2+n]) })
				pair.Wait()
			}
		})
	}
	wait.Wait()
	counts := h.count()
	if counts["pending_inactive"] != 0 || int64(counts["inactive"]) != won.Load() || won.Load() == 0 {
		t.Errorf("units %v, want none pending and %d inactive", counts, won.Load())
	}
}
