package requests

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// ErrOutcomeUnknown means that it is unknown whether a request was admitted.
var ErrOutcomeUnknown = errors.New("request: the outcome is unknown")

// leave returns the error of a caller whose ctx ends before m is answered: if m was not sent yet it is refused, and never
// admitted. Otherwise its group is being committed, and the outcome is unknown.
func (in *Intake) leave(ctx context.Context, m *member) error {
	if m.leave() {
		err := m.gone()
		count(ctx, err)
		return err
	}
	return fmt.Errorf("admit request %s: %w: %w", m.submission.RequestID, ErrOutcomeUnknown, ctx.Err())
}

// Run commits groups until ctx ends, then closes the line, commits what stands in it, rings and returns. What a database
// that does not answer has not committed within StopTimeout of the end is given up, its outcome unknown.
func (in *Intake) Run(ctx context.Context) error {
	work, cut := context.WithCancel(context.WithoutCancel(ctx))
	defer cut()
	aside := func(_ context.Context, group []*member) { in.setAside(work, group) } // in a time of its own
	var working sync.WaitGroup
	for _, line := range in.lines {
		for range in.config.Committers {
			working.Go(func() {
				line.Serve(in.config.GroupMax, func(group []*member) { in.commit(work, group, aside) })
			})
		}
	}
	working.Go(func() { in.recall(work) })
	working.Go(func() { in.shedder.run(ctx) })
	ended := make(chan struct{})
	var ringing sync.WaitGroup
	ringing.Go(func() { in.chime.run(work, ended) })
	<-ctx.Done()
	for _, line := range in.lines {
		line.Close()
	}
	in.refused.Close()
	defer time.AfterFunc(in.config.StopTimeout, cut).Stop()
	working.Wait()
	in.aside.running.Wait()
	close(ended)
	ringing.Wait()
	return nil
}

// ownLockWait is the pause before a group is tried again that waits for its own earlier attempt.
const ownLockWait = 20 * time.Millisecond

func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

// unsentError means that there was no connection: nothing was sent, and nothing happened.
type unsentError struct{ cause error }

func (e *unsentError) Error() string { return e.cause.Error() }

// SafeToRetry is what package pgconn asks for.
func (e *unsentError) SafeToRetry() bool { return true }
