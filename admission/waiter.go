package admission

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/holdfast/holdfast/internal/fair"
	"github.com/holdfast/holdfast/lanes"
	"github.com/holdfast/holdfast/metered"
	"github.com/holdfast/holdfast/ratelimit"
	"github.com/holdfast/holdfast/requests"
)

// waiter is one caller in the admission queue.
type waiter struct {
	submission requests.Submission
	ctx        context.Context //nolint:containedctx // the caller's own
	answered   chan struct{}   // closed once view or err is set
	view       requests.View
	err        error
	unknown    error      // of the last attempt whose outcome is unknown
	lane       lanes.Lane // of the stream that will decide it, by the last load
	item       ratelimit.Item
	token      metered.Presented
	rates      []ratelimit.Rate  // in which the item is counted
	hasToken   bool              // it presents an admission token
	retried    bool              // it was in a group that was blocked
	states     []ratelimit.State // of the rates; set before answered is closed
	state      *atomic.Int32     // stateWaiting, stateSent or stateGone
}

func newWaiter(ctx context.Context, s requests.Submission) *waiter {
	return &waiter{submission: s, ctx: ctx, answered: make(chan struct{}), state: new(atomic.Int32)}
}

func submissionsOf(group []*waiter) []requests.Submission {
	submissions := make([]requests.Submission, len(group))
	for i, w := range group {
		submissions[i] = w.submission
	}
	return submissions
}

// The states of a waiter. The last two are final.
const (
	stateWaiting int32 = iota
	stateSent          // its group is being sent to the database, or was
	stateGone          // its caller no longer waits, and nothing was sent
)

// leave ends the wait of w's caller. It returns false if w was sent.
func (w *waiter) leave() bool {
	return w.transition(stateGone)
}

// send marks w as sent. It returns false if the caller has left.
func (w *waiter) send() bool {
	return w.transition(stateSent)
}

func (w *waiter) transition(state int32) bool {
	return w.state.CompareAndSwap(stateWaiting, state) || w.state.Load() == state
}

// leaveError returns the error for a caller whose context ended before w was
// sent, so that nothing was written.
func (w *waiter) leaveError() error {
	if errors.Is(w.ctx.Err(), context.DeadlineExceeded) {
		return &RefusedError{Why: WhyTimeout, RetryAfter: minRetryAfter}
	}
	return w.ctx.Err()
}

func (w *waiter) answer(v requests.View, err error) {
	w.view, w.err = v, err
	close(w.answered)
}

// rateStates returns the states of w's rates if the rate limiter decided w. It
// returns nil if the outcome is unknown.
func (w *waiter) rateStates(err error) []ratelimit.State {
	_, over := errors.AsType[*ratelimit.ExceededError](err)
	select {
	case <-w.answered:
		if err == nil || over {
			return w.states
		}
	default:
	}
	return nil
}

// join adds w to the queue, or returns the error with which the queue refuses
// it.
func join(queue *fair.Queue[*waiter], w *waiter) *RefusedError {
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
	w.answer(v, err)
}

// markSent marks the members of the group whose callers still wait as sent, and
// returns them. It answers the others.
func (in *Intake) markSent(group []*waiter) []*waiter {
	return slices.DeleteFunc(group, func(w *waiter) bool {
		if w.ctx.Err() != nil {
			w.leave() // does nothing if w was sent before
		}
		gone := !w.send()
		if gone {
			in.answer(w, requests.View{}, w.leaveError())
		}
		return gone
	})
}
