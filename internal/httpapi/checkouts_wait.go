package httpapi

import (
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/holdfast/holdfast/internal/checkouts"
	"github.com/holdfast/holdfast/internal/sleep"
)

const (
	// awaitingMax is how many callers may wait for a checkout at one time. Each
	// of them reads its row about every second. A further caller gets the
	// checkout in its present state.
	awaitingMax = 1000
	// pollFirst is the pause after the first read of a checkout. It doubles up to
	// pollMost.
	pollFirst, pollMost = 100 * time.Millisecond, time.Second
)

// awaitCheckout reads a checkout once it has ended, or in its present state
// when the limit is over or the program stops. It reads the row repeatedly: a
// payment takes seconds, so a notification would save little.
func (s *service) awaitCheckout(ctx context.Context, req *request, id uuid.UUID, limit time.Duration) (checkoutJSON, error) {
	if limit == 0 {
		ctx, cancel := context.WithTimeout(ctx, s.bounds.request)
		defer cancel()
		return s.readCheckout(ctx, req, id)
	}
	defer s.awaiting.Add(-1)
	if s.awaiting.Add(1) > awaitingMax {
		limit = 0
	}
	reading, cancel := context.WithTimeout(ctx, limit+s.bounds.grace)
	defer cancel()
	waiting, cancel := context.WithTimeout(reading, limit)
	defer cancel()
	defer s.onStop(cancel)()
	for pause := pollFirst; ; pause = min(2*pause, pollMost) {
		c, err := checkouts.Get(reading, s.pool, req.principal.TenantID, id)
		if err != nil {
			return checkoutJSON{}, err
		}
		if c.Status.Ended() || waiting.Err() != nil {
			return s.withCommitted(reading, c)
		}
		_ = sleep.For(waiting, pause) // then it is read once more
	}
}
