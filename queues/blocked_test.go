package queues

import "testing"

// Whoever finds nothing but what others have asks less and less often, and again in time.
func TestBlockedFor(t *testing.T) {
	t.Parallel()
	for empty, want := range map[int]int64{1: 2, 2: 4, 5: 32, 6: 64, 7: 64, 1 << 40: 64} {
		if got := blockedFor(empty); got.Milliseconds() != want {
			t.Errorf("after %d empty claims %s, want %d ms", empty, got, want)
		}
	}
}
