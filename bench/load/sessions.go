package load

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
)

// Session is one caller's share of a load. One goroutine uses it.
type Session interface {
	// Next returns the next call; false ends the session.
	Next() (Call, bool)
	// Answered takes the answer to that call. An error ends the session, and
	// fails the load.
	Answered(a Answer) error
}

// adds is a session of one add-to-cart after the other.
type adds func() Item

func (next adds) Next() (Call, bool) { return Call{Item: next()}, true }

func (adds) Answered(Answer) error { return nil }

// lateMax is how long after its end a load may wait for an answer.
const lateMax = time.Minute

// Sessions runs a caller for each session, until the session ends or the given
// time is over. It sends the next call when the last one was answered.
func Sessions(ctx context.Context, target Target, long time.Duration, sessions []Session) (*Result, error) {
	tallies := make([]tally, len(sessions))
	conns, err := target.dialAll(ctx, len(sessions))
	if err != nil {
		return nil, err
	}
	defer closeAll(conns)
	began := time.Now()
	var g errgroup.Group
	for i, c := range conns {
		g.Go(func() error {
			if err := c.SetDeadline(began.Add(long + lateMax)); err != nil {
				return fmt.Errorf("bound the calls: %w", err)
			}
			return c.play(ctx, sessions[i], &tallies[i], func() bool { return time.Since(began) >= long })
		})
	}
	err = g.Wait()
	return merge(tallies, time.Since(began)), err
}

// play sends the session's calls one after the other.
func (c *conn) play(ctx context.Context, session Session, t *tally, over func() bool) error {
	for !over() {
		if err := ctx.Err(); err != nil {
			return err
		}
		call, more := session.Next()
		if !more {
			return nil
		}
		a, err := c.send(call)
		if err != nil {
			return err
		}
		if err := t.count(call, a, a.Took); err != nil {
			return err
		}
		if err := session.Answered(a); err != nil {
			return err
		}
		if a.Refused() {
			rest(ctx, c.target.AfterRefusal)
		}
	}
	return nil
}
