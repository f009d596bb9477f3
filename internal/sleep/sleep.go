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
