package ratelimit_test

import (
	"errors"
	"testing"
	"time"

	"github.com/holdfast/holdfast/ratelimit"
)

// After the clock was set back, a rate is full again after at most one window,
// whatever the step. No state is negative.
func TestRateWhenClockIsSetBack(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	rate := ratelimit.Rate{Scope: "s", Amount: 1, Limit: 600, Window: time.Minute}
	for _, hours := range []int{1, 24, 24 * 365} {
		b.setRate("s", hours)
		got := b.decide(countAll, b.item(noToken, rate), b.item(noToken, rate))
		for _, e := range got {
			over, ok := errors.AsType[*ratelimit.ExceededError](e.Err)
			s := e.States[0]
			if !ok || over.Wait <= 0 || over.Wait > 200*time.Millisecond || s.Remaining != 0 || s.Reset <= 0 || s.Reset > rate.Window+time.Second {
				t.Errorf("set back by %d h: %v, %+v", hours, e.Err, s)
			}
		}
		if n := b.count(`SELECT count(*) FROM budget_rates WHERE full_at > (extract(epoch FROM clock_timestamp()) + 61) * 1e9`); n != 0 {
			t.Errorf("set back by %d h: the rate is further from full than its window", hours)
		}
	}
}
