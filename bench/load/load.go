package load

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
)

// Result is the result of a load.
type Result struct {
	// Accepted counts the answers 200 and 202, Decided those of 200 alone,
	// Refused 429 and 503. Missed counts calls of an open load that found every
	// connection busy and were not sent.
	Accepted, Decided, Refused, Missed int64
	// Elapsed is from the first call until the last answer.
	Elapsed time.Duration
	// Latencies are those of the accepted calls, sorted.
	Latencies []time.Duration
}

// Quantile is the latency that a share q of the accepted calls did not exceed;
// 0 without any.
func (r *Result) Quantile(q float64) time.Duration {
	if len(r.Latencies) == 0 {
		return 0
	}
	return r.Latencies[min(int(q*float64(len(r.Latencies))), len(r.Latencies)-1)]
}

// tally gathers one connection's results.
type tally struct{ Result }

// count takes the answer to a call, with its latency: in an open load that is
// more than what the call took.
func (t *tally) count(call Call, a Answer, latency time.Duration) error {
	switch {
	case a.Status == http.StatusOK:
		t.Decided++
		t.Accepted++
		t.Latencies = append(t.Latencies, latency)
	case a.Status == http.StatusAccepted:
		t.Accepted++
		t.Latencies = append(t.Latencies, latency)
	case a.Refused():
		t.Refused++
	case a.Status == http.StatusConflict && call.Verb == Checkout: // the session decides what it means
	default:
		return fmt.Errorf("the service answered %d: %.200s", a.Status, a.Body)
	}
	return nil
}

func merge(tallies []tally, elapsed time.Duration) *Result {
	total := &Result{Elapsed: elapsed}
	for i := range tallies {
		t := &tallies[i]
		total.Accepted += t.Accepted
		total.Decided += t.Decided
		total.Refused += t.Refused
		total.Missed += t.Missed
		total.Latencies = append(total.Latencies, t.Latencies...)
	}
	slices.Sort(total.Latencies)
	return total
}

// Closed runs callers for the given time, each sending its next add-to-cart
// when the last one was answered.
func Closed(ctx context.Context, target Target, callers int, long time.Duration, next func() Item) (*Result, error) {
	sessions := make([]Session, callers)
	for i := range sessions {
		sessions[i] = adds(next)
	}
	return Sessions(ctx, target, long, sessions)
}

// rest waits, or until ctx ends.
func rest(ctx context.Context, long time.Duration) {
	if long == 0 {
		return
	}
	timer := time.NewTimer(long)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// Open sends rate calls per second for the given time over up to conns
// connections. A call that finds all of them busy is not sent and counts as
// missed.
func Open(ctx context.Context, target Target, rate float64, conns int, long time.Duration, next func() Item) (*Result, error) {
	tallies := make([]tally, conns)
	opened, err := target.dialAll(ctx, conns)
	if err != nil {
		return nil, err
	}
	defer closeAll(opened)
	due := make(chan time.Time, conns)
	var idle atomic.Int64
	idle.Store(int64(conns))
	g, ctx := errgroup.WithContext(ctx)
	for i, c := range opened {
		g.Go(func() error {
			for at := range due {
				call := Call{Item: next()}
				a, err := c.send(call)
				idle.Add(1)
				if err != nil {
					return err
				}
				if err := tallies[i].count(call, a, time.Since(at)); err != nil {
					return err
				}
			}
			return nil
		})
	}
	began := time.Now()
	missed := pace(ctx, rate, long, func(at time.Time) bool {
		if idle.Add(-1) < 0 {
			idle.Add(1)
			return false
		}
		due <- at
		return true
	})
	close(due)
	err = g.Wait()
	total := merge(tallies, time.Since(began))
	total.Missed = missed
	return total, err
}

// pace calls send when each call is due, several at once after a late wake-up,
// and counts those it refuses.
func pace(ctx context.Context, rate float64, long time.Duration, send func(time.Time) bool) (missed int64) {
	began := time.Now()
	gap := time.Duration(float64(time.Second) / rate)
	tick := time.NewTicker(max(gap, time.Millisecond))
	defer tick.Stop()
	for n := 0; ctx.Err() == nil; {
		now := time.Now()
		if now.Sub(began) >= long {
			break
		}
		for at := began.Add(time.Duration(n) * gap); !at.After(now); at = began.Add(time.Duration(n) * gap) {
			if !send(at) {
				missed++
			}
			n++
		}
		<-tick.C
	}
	return missed
}

func (t Target) dialAll(ctx context.Context, n int) (conns []*conn, err error) {
	conns = make([]*conn, n)
	var g errgroup.Group
	g.SetLimit(16)
	for i := range conns {
		g.Go(func() (err error) { conns[i], err = t.dial(ctx); return err })
	}
	if err := g.Wait(); err != nil {
		closeAll(conns)
		return nil, err
	}
	if t.Ready != nil {
		t.Ready()
	}
	return conns, nil
}

func closeAll(conns []*conn) {
	var closing sync.WaitGroup
	for _, c := range conns {
		if c != nil {
			closing.Go(func() { _ = c.Close() }) // nothing is lost by it
		}
	}
	closing.Wait()
}
