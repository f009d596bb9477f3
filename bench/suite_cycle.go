package main

import (
	"context"
	"time"
)

const (
	cycleName = "holdfast, add and check out"
	cycleSync = "synchronous, add and check out"
)

// cycle has 64 clients add one hot variant to a cart, wait for the outcome, and
// check the cart out.
func (b *bench) cycle(ctx context.Context) ([]Measure, error) {
	all, err := b.newServicePair(ctx, 0)
	if err != nil {
		return nil, err
	}
	defer all.close()
	c, err := b.compare(ctx, cycleContender(all.ours, cycleName), cycleContender(all.theirs, cycleSync))
	if err != nil {
		return nil, err
	}
	return []Measure{c.over("cycle_hot_vs_sync", cycleName, cycleSync)}, b.verified(ctx, all)
}

// cycleContender counts the carts that were checked out.
func cycleContender(of *countedService, name string) *contender {
	return &contender{
		name: name,
		run: func(ctx context.Context, long time.Duration) (s sample, err error) {
			all := make([]caller, httpClients)
			for i := range all {
				all[i] = new(cycler)
			}
			r, sold, err := of.call(ctx, long, all)
			if err != nil {
				return s, err
			}
			return sample{count: sold.Committed, elapsed: r.Elapsed}, nil
		},
		check: of.agrees,
	}
}
