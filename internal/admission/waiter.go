package admission

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast/holdfast/internal/fair"
	"github.com/holdfast/holdfast/internal/groupcommit"
	"github.com/holdfast/holdfast/internal/lanes"
	"github.com/holdfast/holdfast/internal/requestrows"
	"github.com/holdfast/holdfast/internal/tokens"
	"github.com/holdfast/holdfast/ratelimit"
	"github.com/holdfast/holdfast/requests"
)

// waiter is one caller in the admission queue.
type waiter struct {
	groupcommit.Call[requests.View]
	submission requestrows.Submission
	unknown    error      // of the last attempt whose outcome is unknown
	lane       lanes.Lane // of the stream that will decide it, by the last load
	item       ratelimit.Item
	token      tokens.Presented
	rates      []ratelimit.Rate  // in which the item is counted
	hasToken   bool              // it presents an admission token
	retried    bool              // it was in a group that was blocked
	states     []ratelimit.State // of the rates; set before the answer
}

func newWaiter(ctx context.Context, s requestrows.Submission) *waiter {
	w := &waiter{submission: s}
	w.Begin(ctx)
	return w
}

func submissionsOf(group []*waiter) []requestrows.Submission {
	submissions := make([]requestrows.Submission, len(group))
	for i, w := range group {
		submissions[i] = w.submission
	}
	return submissions
}

// leaveError returns the error for a caller whose context ended before w was
// sent, so that nothing was written.
func (w *waiter) leaveError() error {
	err := w.Context().Err()
	if errors.Is(err, context.DeadlineExceeded) {
		return &RefusedError{Why: WhyTimeout, RetryAfter: minRetryAfter}
	}
	return err
}

// rateStates returns the states of w's rates if the rate limiter decided w. It
// returns nil if the outcome is unknown.
func (w *waiter) rateStates(err error) []ratelimit.State {
	_, over := errors.AsType[*ratelimit.ExceededError](err)
	if w.Answered() && (err == nil || over) {
		return w.states
	}
	return nil
}

// join adds w to the queue, or returns the error with which the queue refuses
// it.
func join(queue *groupcommit.Queue[*waiter], w *waiter) *RefusedError {
	switch refusal := queue.Join(w.submission.TenantID, w); refusal {
	case fair.Joined:
		return nil
	case fair.Closed:
		return &RefusedError{Why: WhyClosing, RetryAfter: minRetryAfter}
	default:
		return &RefusedError{TenantOnly: refusal == fair.TenantFull, Why: WhyQueue, RetryAfter: minRetryAfter}
	}
}

// enter adds w to the admission queue of its lane, or returns the error with
// which w is refused.
func (in *Intake) enter(w *waiter) *RefusedError {
	key := w.submission.Key()
	if key.Key != "" && in.keys.IsLocked(time.Now(), key) {
		return &RefusedError{Why: WhyKey, RetryAfter: minRetryAfter}
	}
	if refused := in.shedder.enter(w); refused != nil {
		return refused
	}
	refused := join(in.waiting[w.lane], w)
	if refused != nil {
		in.shedder.leave(w, requests.Request{}, false)
	}
	return refused
}

// answer answers w, and no longer counts it as pending.
func (in *Intake) answer(w *waiter, v requests.View, err error) {
	in.shedder.leave(w, v.Request, err == nil)
	w.Answer(v, err)
}

// present marks the members of the group whose callers still wait as sent, and
// returns them. It answers the others.
func (in *Intake) present(group []*waiter) []*waiter {
	return groupcommit.Present(group, func(w *waiter) { in.answer(w, requests.View{}, w.leaveError()) })
}
