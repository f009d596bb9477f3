package sleep

import (
	"context"
	"time"
)

// For waits for d, or until ctx ends if that is earlier. It returns ctx.Err(),
// so nil means that all of d has passed. If d is not positive it does not wait.
func For(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

// Every calls do once per interval until ctx ends, the first time after one
// interval. A call that takes longer delays the next one, and skips those that
// it misses.
func Every(ctx context.Context, interval time.Duration, do func()) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			do()
		}
	}
}
