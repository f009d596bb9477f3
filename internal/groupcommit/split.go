package groupcommit

import (
	"context"
	"slices"
	"sync"
	"time"
)

// Present marks the members of a group as sent. It returns those whose callers
// still wait, and passes the others to left.
func Present[M interface{ Send() bool }](group []M, left func(M)) []M {
	return slices.DeleteFunc(group, func(m M) bool {
		gone := !m.Send()
		if gone {
			left(m)
		}
		return gone
	})
}

// Split commits whole, and then the parts that commit returns of it, and so on.
// The parts of a part precede the next part, so members keep their order.
func Split[P any](whole P, commit func(part P) (parts []P)) {
	for todo := []P{whole}; len(todo) > 0; {
		parts := commit(todo[0])
		todo = append(parts, todo[1:]...)
	}
}

// Halves returns the halves of a group of at least two members.
func Halves[M any](group []M) [][]M {
	return [][]M{group[:len(group)/2], group[len(group)/2:]}
}

// bisection bounds the groups that are bisected because they wait for a lock.
type bisection struct {
	background chan struct{} // the group that is bisected in the background; capacity 1
	permits    chan struct{} // one for each part that is being committed, which takes a connection
	running    sync.WaitGroup
}

// bisectionPermits is how many parts of groups that wait for locks are
// committed concurrently. The other connections are for groups that wait for no
// lock.
const bisectionPermits = 2

func newBisection() bisection {
	return bisection{background: make(chan struct{}, 1), permits: make(chan struct{}, bisectionPermits)}
}

// Bisect finds the member of a group that waits for a lock: it commits the two
// halves of the group, then the halves of each part that still waits, and so
// on, within the timeout. commit returns the parts that still wait, of at least
// two members each.
//
// It does so in the background, unless another group is bisected there already.
// Then it returns once the group is committed.
func (e *Engine[M]) Bisect(ctx context.Context, timeout time.Duration, group []M, commit func(ctx context.Context, part []M) (waiting [][]M)) {
	run := func() {
		ctx, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		for waiting := [][]M{group}; len(waiting) > 0; {
			waiting = round(ctx, e.bisection.permits, waiting, commit)
		}
	}
	select {
	case e.bisection.background <- struct{}{}:
		e.bisection.running.Go(func() {
			defer func() { <-e.bisection.background }()
			run()
		})
	default:
		run()
	}
}

// round commits the halves of each group concurrently, and returns the parts
// that still wait.
func round[M any](ctx context.Context, permits chan struct{}, groups [][]M, commit func(ctx context.Context, part []M) [][]M) [][]M {
	var halves [][]M
	for _, g := range groups {
		halves = append(halves, Halves(g)...)
	}
	waiting := make([][][]M, len(halves)) // the parts of each half that still wait
	var running sync.WaitGroup
	for i, half := range halves {
		running.Go(func() {
			select {
			case permits <- struct{}{}:
				defer func() { <-permits }()
			case <-ctx.Done(): // the commit will fail with ctx's error
			}
			waiting[i] = commit(ctx, half)
		})
	}
	running.Wait()
	return slices.Concat(waiting...)
}
