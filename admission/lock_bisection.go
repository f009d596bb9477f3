package admission

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/holdfast/holdfast/internal/pgerr"
)

// bisection finds the member of a group that waits for a lock. In all
// likelihood, a slow call that finishes at once has that member's idempotency
// key. The group is halved, concurrently with the committers, until the waiting
// member is alone. Its key is remembered for a while (ratelimit.LockedSet), so
// that it delays no other group.
//
// A lock wait ends after lock_timeout, which the intake's connections ought to
// set.
type bisection struct {
	background chan struct{} // the group that is bisected in the background; capacity 1
	permits    chan struct{} // one for each part that is being admitted, which takes a connection
	running    sync.WaitGroup
}

// bisectionPermits is how many parts of groups that wait for locks are admitted
// concurrently. The other connections are for groups that wait for no lock.
const bisectionPermits = 2

func newBisection() *bisection {
	return &bisection{background: make(chan struct{}, 1), permits: make(chan struct{}, bisectionPermits)}
}

// isKeyLocked reports whether err is a lock timeout because another transaction
// has locked a row with the same key, or of the same request.
func isKeyLocked(err error) bool { return pgerr.IsRowLocked(err, "reservation_requests") }

// startBisection bisects a group that waits for a lock. It does so in the
// background, unless another group is bisected there already. Then it bisects
// the group before it returns to the committer.
func (in *Intake) startBisection(ctx context.Context, group []*waiter) {
	select {
	case in.bisection.background <- struct{}{}:
		in.bisection.running.Go(func() {
			defer func() { <-in.bisection.background }()
			in.bisect(ctx, group)
		})
	default:
		in.bisect(ctx, group)
	}
}

// bisect admits the two halves of a group that waits for a lock, then the
// halves of each part that still waits, and so on, within one CommitTimeout. A
// caller that still waits when it is the only one of its part is refused.
func (in *Intake) bisect(ctx context.Context, group []*waiter) {
	ctx, cancel := context.WithTimeout(ctx, in.config.CommitTimeout)
	defer cancel()
	for locked := [][]*waiter{group}; len(locked) > 0; {
		var halves [][]*waiter
		for _, g := range locked {
			halves = append(halves, g[:len(g)/2], g[len(g)/2:])
		}
		still := make([][][]*waiter, len(halves)) // the parts of each half that still wait
		var round sync.WaitGroup
		for i, half := range halves {
			round.Go(func() {
				select {
				case in.bisection.permits <- struct{}{}:
					defer func() { <-in.bisection.permits }()
				case <-ctx.Done(): // the commit will fail with ctx's error
				}
				still[i] = in.commit(ctx, half)
			})
		}
		round.Wait()
		locked = slices.Concat(still...)
	}
}

// failure returns the error for a caller whose request was not admitted. It
// counts a refusal.
func (in *Intake) failure(w *waiter, err error) error {
	if !pgerr.IsLockTimeout(err) {
		return fmt.Errorf("admit request %s: %w", w.submission.RequestID, err)
	}
	refused := &RefusedError{Why: WhyLocked, RetryAfter: minRetryAfter}
	if isKeyLocked(err) && w.submission.IdempotencyKey != "" {
		refused.Why = WhyKey
		in.keys.MarkLocked(time.Now(), w.submission.Key())
	}
	count(w.ctx, refused)
	return refused
}
