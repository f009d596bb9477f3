package queues

import "testing"

// A slot whose claims find only requests that other transactions have locked is
// drained less and less often, up to a bound.
func TestBlockedPause(t *testing.T) {
	t.Parallel()
	for empty, want := range map[int]int64{1: 2, 2: 4, 5: 32, 6: 64, 7: 64, 1 << 40: 64} {
		if got := blockedPause(empty); got.Milliseconds() != want {
			t.Errorf("after %d empty claims %s, want %d ms", empty, got, want)
		}
	}
}
