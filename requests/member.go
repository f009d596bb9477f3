package requests

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/holdfast/holdfast/metered"
)

// member is one caller in the line.
type member struct {
	submission Submission
	ctx        context.Context //nolint:containedctx // the caller's own
	answered   chan struct{}   // closed once view or err is set
	view       View
	err        error
	unknown    error  // the last of its attempts that nobody knows the fate of
	lane       string // of the stream it is for, as far as is known
	visit      metered.Visit
	rates      []metered.Rate     // that the visit is counted in
	shows      bool               // an admission token
	again      bool               // it was in a group that was blocked
	standings  []metered.Standing // set before answered is closed
	state      *atomic.Int32      // memberWaits, memberSent or memberGone
}

func newMember(ctx context.Context, s Submission) *member {
	return &member{submission: s, ctx: ctx, answered: make(chan struct{}), state: new(atomic.Int32)}
}

func submissionsOf(group []*member) []Submission {
	submissions := make([]Submission, len(group))
	for i, m := range group {
		submissions[i] = m.submission
	}
	return submissions
}

// The states of a member. The last two are final.
const (
	memberWaits int32 = iota
	memberSent        // its group is being sent to the database, or was
	memberGone        // its caller waits no longer, and nothing was sent
)

// leave ends the wait of m's caller. It reports false if m was sent.
func (m *member) leave() bool {
	return m.settle(memberGone)
}

// send reports whether m may be sent: not if its caller has gone before.
func (m *member) send() bool {
	return m.settle(memberSent)
}

func (m *member) settle(state int32) bool {
	return m.state.CompareAndSwap(memberWaits, state) || m.state.Load() == state
}

// gone is the error of a caller whose time was up before m was sent: nothing was written.
func (m *member) gone() error {
	if errors.Is(m.ctx.Err(), context.DeadlineExceeded) {
		return &RefusedError{Why: WhyTimeout, RetryAfter: retrySoonest}
	}
	return m.ctx.Err()
}

func (m *member) answer(v View, err error) {
	m.view, m.err = v, err
	close(m.answered)
}

// told is how m's rates stand, if m was answered, and by the turnstile: where nobody knows what came of it, nothing is said.
func (m *member) told(err error) []metered.Standing {
	_, over := errors.AsType[*metered.OverRateError](err)
	select {
	case <-m.answered:
		if err == nil || over {
			return m.standings
		}
	default:
	}
	return nil
}
