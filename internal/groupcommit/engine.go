package groupcommit

import (
	"context"
	"sync"
	"time"

	"github.com/holdfast/holdfast/internal/fair"
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
	// tenant's do; see fair.Queue.
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
	*fair.Queue[M]
	config  QueueConfig[M]
	stalled chan struct{} // holds a value while a commit is stalled
}

// Queue adds a queue to the engine. It is called before Run.
func (e *Engine[M]) Queue(config QueueConfig[M]) *Queue[M] {
	q := &Queue[M]{Queue: fair.NewQueue[M](config.Limit), config: config, stalled: make(chan struct{}, 1)}
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
