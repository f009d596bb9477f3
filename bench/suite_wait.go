package main

import (
	"context"
	"fmt"
	"time"

	"github.com/holdfast/holdfast/bench/load"
)

const (
	waitName       = "holdfast over HTTP, waiting"
	waitLoneName   = "holdfast over HTTP, one waiting caller"
	waitLoneBatch  = "synchronous, micro-batcher, one caller"
	waitSync       = "synchronous, four statements, waiting"
	waitMicroBatch = "synchronous, micro-batcher, waiting"
	waitSpread     = "holdfast over HTTP, waiting, many variants"
	waitSpreadSync = "synchronous, four statements, many variants"
)

// waiting is add-to-cart over HTTP by callers that wait for the outcome: 64 of
// them on one hot variant and on 1,000 variants, and one in an idle system.
func (b *bench) waiting(ctx context.Context) ([]Measure, error) {
	return b.withDeployment(ctx, func(f *deployment) ([]Measure, error) { return b.waitingOf(ctx, f) })
}

func (b *bench) waitingOf(ctx context.Context, f *deployment) ([]Measure, error) {
	transaction, err := b.startSynchronous(ctx, formTransaction, otherVariants+1)
	if err != nil {
		return nil, err
	}
	defer transaction.close()
	batcher, err := b.newSynchronous(ctx, formMicroBatch)
	if err != nil {
		return nil, err
	}
	defer batcher.close()
	c, err := b.compare(ctx,
		f.waitingContender(waitName, "HTTP: Holdfast, 64 clients that wait", httpClients, toHot),
		transaction.contenderOf(waitSync, "HTTP: a transaction per request, 64 clients", 0, httpClients, toHot),
		batcher.contenderOf(waitMicroBatch, "HTTP: a micro-batcher, 64 clients", 0, httpClients, toHot),
		f.waitingContender(waitSpread, "HTTP: Holdfast, 64 clients that wait, 1,000 variants", httpClients, toNormal),
		transaction.contenderOf(waitSpreadSync, "HTTP: a transaction per request, 64 clients, 1,000 variants", 0, httpClients, toNormal),
		f.waitingContender(waitLoneName, "HTTP: Holdfast, one client that waits", 1, toHot),
		batcher.contenderOf(waitLoneBatch, "HTTP: a micro-batcher, one client", 0, 1, toHot),
	)
	if err != nil {
		return nil, err
	}
	p50 := func(s sample) float64 { return float64(s.p50.Microseconds()) / 1000 }
	p99 := func(s sample) float64 { return float64(s.p99.Microseconds()) / 1000 }
	measures := []Measure{
		c.over("http_wait_vs_sync", waitName, waitSync),
		c.over("http_wait_vs_microbatch", waitName, waitMicroBatch),
		c.over("http_spread_wait_vs_sync", waitSpread, waitSpreadSync),
		c.overBy("http_outcome_p99_vs_microbatch", waitName, waitMicroBatch, p99),
		c.overBy("lone_p50_vs_microbatch", waitLoneName, waitLoneBatch, p50),
		c.overBy("lone_p99_vs_microbatch", waitLoneName, waitLoneBatch, p99),
	}
	for i := range measures[3:] {
		measures[i+3].note("ours and other in ms")
	}
	return measures, nil
}

// waitingContender counts the requests that were decided while their caller
// waited.
func (f *deployment) waitingContender(name, what string, clients int, next func() load.Item) *contender {
	return &contender{
		name: name, what: what,
		run: func(ctx context.Context, long time.Duration) (s sample, err error) {
			target := f.target()
			target.Wait = waitSeconds
			r, err := load.Closed(ctx, target, clients, long, next)
			if err != nil {
				return s, err
			}
			if r.Accepted != r.Decided {
				return s, fmt.Errorf("%d of %d calls were not decided in %d s", r.Accepted-r.Decided, r.Accepted, waitSeconds)
			}
			return sample{count: r.Decided, elapsed: r.Elapsed, p50: r.Quantile(0.5), p99: r.Quantile(0.99)}, nil
		},
		check: f.checkRows,
	}
}
