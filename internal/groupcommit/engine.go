package groupcommit

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// Engine commits the members of its queues in groups.
type Engine[M any] struct {
	groupMax    int
	stopTimeout time.Duration
	queues      []*Queue[M]
	bisection   bisection
}

// New makes an engine whose groups have up to groupMax members. It commits
// nothing until Run is called. Run commits queued members for up to stopTimeout
// after its context has ended.
func New[M any](groupMax int, stopTimeout time.Duration) *Engine[M] {
	return &Engine[M]{groupMax: groupMax, stopTimeout: stopTimeout, bisection: newBisection()}
}

// QueueConfig is how an engine serves a queue.
type QueueConfig[M any] struct {
	// Limit is how many members of one tenant wait at most while no other
	// tenant's do; see fairQueue.
	Limit int
	// Committers is how many groups are committed concurrently.
	Committers int
	// Commit commits a group. It answers its members, or queues them again. Its
	// context ends StopTimeout after that of Run.
	Commit func(ctx context.Context, group []M)
	// Serial means that a committer waits for its group however long the commit
	// takes. Otherwise a commit that takes unusually long delays its own group,
	// and the next one for a moment, but not later groups: at most one such
	// commit of a queue runs while later groups commit.
	Serial bool
	// Last means that the queue is closed once the groups of all other queues
	// are committed, because those queue members here.
	Last bool
}

// Queue is a queue of an engine, with its committers.
type Queue[M any] struct {
	*fairQueue[M]
	config  QueueConfig[M]
	stalled chan struct{} // holds a value while a commit is stalled
}

// Queue adds a queue to the engine. It is called before Run.
func (e *Engine[M]) Queue(config QueueConfig[M]) *Queue[M] {
	q := &Queue[M]{fairQueue: newFairQueue[M](config.Limit), config: config, stalled: make(chan struct{}, 1)}
	e.queues = append(e.queues, q)
	return q
}

// Run commits groups until ctx ends, then closes the queues, commits the
// members that are in them, and returns. It cancels the groups that are not
// committed within the stop timeout of the end.
func (e *Engine[M]) Run(ctx context.Context) {
	work, cut := context.WithCancel(context.WithoutCancel(ctx))
	defer cut()
	var first, last sync.WaitGroup
	for _, q := range e.queues {
		serving := &first
		if q.config.Last {
			serving = &last
		}
		for range q.config.Committers {
			serving.Go(func() { q.serve(work, e.groupMax) })
		}
	}
	<-ctx.Done()
	e.close(false)
	defer time.AfterFunc(e.stopTimeout, cut).Stop()
	first.Wait()
	e.close(true)
	last.Wait()
	e.bisection.running.Wait()
}

// close closes the queues that are closed last, or the others.
func (e *Engine[M]) close(last bool) {
	for _, q := range e.queues {
		if q.config.Last == last {
			q.Close()
		}
	}
}

// serve commits groups of up to limit members, one after the other, until the
// queue is closed and empty and all are committed.
func (q *Queue[M]) serve(ctx context.Context, limit int) {
	var working sync.WaitGroup
	for group := q.Take(limit); len(group) > 0; group = q.Take(limit) {
		if q.config.Serial {
			q.config.Commit(ctx, group)
			continue
		}
		committed := make(chan struct{})
		working.Go(func() {
			defer close(committed)
			q.config.Commit(ctx, group)
		})
		q.awaitCommit(committed)
	}
	working.Wait()
}

// stallAfter is how long a group's commit may take before the next group of its
// queue no longer waits for it.
const stallAfter = 500 * time.Millisecond

// awaitCommit waits until a group is committed. It returns earlier, after
// stallAfter, if no other commit of the queue is stalled.
func (q *Queue[M]) awaitCommit(committed <-chan struct{}) {
	timer := time.NewTimer(stallAfter)
	defer timer.Stop()
	select {
	case <-committed:
		return
	case <-timer.C:
	}
	select {
	case <-committed:
	case q.stalled <- struct{}{}:
		go func() {
			<-committed
			<-q.stalled
		}()
	}
}

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
// reports true for a call that was sent before. A process that was stopped for
// longer than the deadline may get here before the context's timer fires, so the
// deadline is compared with the clock.
func (c *Call[R]) Send() bool {
	deadline, bounded := c.ctx.Deadline()
	if c.ctx.Err() != nil || bounded && !time.Now().Before(deadline) {
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
