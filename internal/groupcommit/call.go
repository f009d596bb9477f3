package groupcommit

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
)

// Errors of a caller whose context ends before its call has a result.
var (
	// ErrLeft means that the call was not sent, and will not be.
	ErrLeft = errors.New("groupcommit: the caller left the queue")
	// ErrSent means that the call's group is being committed, or was: the
	// outcome is unknown.
	ErrSent = errors.New("groupcommit: the outcome is unknown")
)

// Call is what a member of a group has for its caller: the state of the wait,
// and the result. A member embeds it, calls Begin before it joins a queue, and
// is not copied after that.
type Call[R any] struct {
	ctx    context.Context //nolint:containedctx // the caller's own
	state  atomic.Int32
	done   chan struct{} // closed once result and err are set
	result R
	err    error
}

// The states of a call. stateSent and stateLeft are final, except for a call
// that is queued again.
const (
	stateWaiting int32 = iota
	stateSent          // its group is being sent to the database, or was
	stateLeft          // its caller no longer waits, and nothing was sent
)

// Begin begins the call of a caller with the context ctx.
func (c *Call[R]) Begin(ctx context.Context) { c.ctx, c.done = ctx, make(chan struct{}) }

// Context returns the caller's context.
func (c *Call[R]) Context() context.Context { return c.ctx }

// Send marks the call as sent, and reports whether its caller still waits. It
// reports true for a call that was sent before.
func (c *Call[R]) Send() bool {
	if c.ctx.Err() != nil {
		c.transition(stateLeft)
	}
	return c.transition(stateSent)
}

// Requeue marks a sent call, for which nothing was done, as waiting again.
func (c *Call[R]) Requeue() { c.state.Store(stateWaiting) }

// transition moves a waiting call to the state, and reports whether it has that
// state.
func (c *Call[R]) transition(state int32) bool {
	return c.state.CompareAndSwap(stateWaiting, state) || c.state.Load() == state
}

// Answer gives the caller its result. It is called once.
func (c *Call[R]) Answer(r R, err error) {
	c.result, c.err = r, err
	close(c.done)
}

// Answered reports whether the call has a result.
func (c *Call[R]) Answered() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

// Wait returns the result. If the caller's context ends first, the error is
// also its error, and ErrLeft or ErrSent.
func (c *Call[R]) Wait() (r R, err error) {
	select {
	case <-c.done:
		return c.result, c.err
	case <-c.ctx.Done():
	}
	ended := ErrSent
	if c.transition(stateLeft) {
		ended = ErrLeft
	}
	return r, fmt.Errorf("%w: %w", ended, c.ctx.Err())
}
