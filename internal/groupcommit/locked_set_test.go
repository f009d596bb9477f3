package groupcommit_test

import (
	"testing"
	"time"

	"github.com/holdfast/holdfast/internal/groupcommit"
)

// A set has at most a given number of keys. It drops them after a second, and
// then accepts others.
func TestLockedSet(t *testing.T) {
	t.Parallel()
	set, now := groupcommit.NewLockedSet[int](2), time.Now()
	set.MarkLocked(now, 1, 2, 3)
	for key, want := range map[int]bool{0: false, 1: true, 2: true, 3: false} {
		if got := set.IsLocked(now, key); got != want {
			t.Errorf("%d: %t, want %t", key, got, want)
		}
	}
	later := now.Add(time.Second + 1)
	set.MarkLocked(later, 3)
	if set.IsLocked(later, 1) || !set.IsLocked(later, 3) {
		t.Errorf("a second later: 1 is locked: %t, 3: %t", set.IsLocked(later, 1), set.IsLocked(later, 3))
	}
}
