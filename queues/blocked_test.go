package queues

import (
	"testing"
	"time"
)

// Whoever finds nothing but what others have asks less and less often, and again in time.
func TestBlockedFor(t *testing.T) {
	t.Parallel()
	for empty, want := range map[int]time.Duration{1: 2, 2: 4, 5: 32, 6: 64, 7: 64, 1 << 40: 64} {
		if got := blockedFor(empty); got != want*time.Millisecond {
			t.Errorf("after %d empty claims %s, want %d ms", empty, got, want)
		}
	}
}
