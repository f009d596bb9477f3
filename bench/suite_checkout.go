package main

import (
	"context"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/holdfast/holdfast/bench/load"
)

const (
	checkoutHot        = "holdfast, checkouts of one variant"
	checkoutHotSync    = "synchronous, checkouts of one variant"
	checkoutSpread     = "holdfast, checkouts of many variants"
	checkoutSpreadSync = "synchronous, checkouts of many variants"
	checkoutLone       = "holdfast, one caller that checks out"
	checkoutLoneSync   = "synchronous, one caller that checks out"
	addsAlone          = "holdfast, adds alone"
	addsConcurrent     = "holdfast, adds during checkouts"
	// concurrentClients is how many clients add, and how many check out at the
	// same time.
	concurrentClients = 32
	// checkoutShare divides a repetition's time among the suite's eight
	// contenders.
	checkoutShare = 4
)

// checkout has clients check out carts that hold a unit already.
func (b *bench) checkout(ctx context.Context) ([]Measure, error) {
	all, err := b.newServicePair(ctx, 0)
	if err != nil {
		return nil, err
	}
	defer all.close()
	concurrent := &concurrentAdds{bench: b, deployment: all.deployment, service: all.ours}
	c, err := b.compare(ctx,
		b.checkoutContender(all.ours, checkoutHot, httpClients, true),
		b.checkoutContender(all.theirs, checkoutHotSync, httpClients, true),
		b.checkoutContender(all.ours, checkoutSpread, httpClients, false),
		b.checkoutContender(all.theirs, checkoutSpreadSync, httpClients, false),
		concurrent.contender(addsAlone, 0),
		concurrent.contender(addsConcurrent, concurrentClients),
		b.checkoutContender(all.ours, checkoutLone, 1, true),
		b.checkoutContender(all.theirs, checkoutLoneSync, 1, true),
	)
	if err != nil {
		return nil, err
	}
	adds := c.over("adds_beside_checkout", addsConcurrent, addsAlone)
	concurrent.describe(&adds)
	lone := c.overBy("lone_checkout_p50_vs_sync", checkoutLone, checkoutLoneSync, func(s sample) float64 { return milliseconds(s.p50) })
	lone.note("ours and other in ms")
	return []Measure{
		c.over("checkout_hot_vs_sync", checkoutHot, checkoutHotSync),
		c.over("checkout_spread_vs_sync", checkoutSpread, checkoutSpreadSync),
		adds,
		lone,
	}, b.verified(ctx, all)
}

// checkoutContender counts answered checkouts, each of another cart.
func (b *bench) checkoutContender(of *countedService, name string, clients int, hot bool) *contender {
	return &contender{
		name: name,
		prepare: func(ctx context.Context) error {
			return of.stock(ctx, b.work(name, b.long/checkoutShare), hot)
		},
		run: func(ctx context.Context, long time.Duration) (s sample, err error) {
			r, sold, err := of.call(ctx, long/checkoutShare, checkouters(clients, of.carts(hot)))
			if err != nil {
				return s, err
			}
			s = sample{count: sold.Committed, elapsed: r.Elapsed, p50: r.Quantile(0.5), p99: r.Quantile(0.99)}
			b.note(name, s)
			return s, nil
		},
		check: of.agrees,
	}
}

func checkouters(n int, from *carts) []caller {
	all := make([]caller, n)
	for i := range all {
		all[i] = &checkouter{carts: from}
	}
	return all
}

// concurrentAdds has clients add the hot variant, alone and while other clients
// check it out.
type concurrentAdds struct {
	*bench
	deployment *deployment
	service    *countedService
	// checkouts are how many checkouts were answered per second meanwhile, in
	// each repetition.
	checkouts []float64
	ranOut    bool
}

// contender counts adds from the first call until the last accepted one is
// decided.
func (a *concurrentAdds) contender(name string, checkouts int) *contender {
	return &contender{
		name: name,
		prepare: func(ctx context.Context) error {
			if checkouts == 0 {
				return nil
			}
			// Twice as many carts as the last repetition checked out, so that
			// some are left at the end.
			return a.service.stock(ctx, 2*a.work(name, a.long/checkoutShare), true)
		},
		run: func(ctx context.Context, long time.Duration) (s sample, err error) {
			before, err := reservedOf(ctx, a.deployment.db, a.deployment.tenant)
			if err != nil {
				return s, err
			}
			began := time.Now()
			added, committed, err := a.load(ctx, name, long/checkoutShare, checkouts)
			if err != nil {
				return s, err
			}
			if err := awaitReserved(ctx, a.deployment.db, a.deployment.tenant, before+added-committed); err != nil {
				return s, err
			}
			a.service.sold.Granted += added
			return sample{count: added, elapsed: time.Since(began)}, nil
		},
		check: a.service.agrees,
	}
}

// load returns how many adds were accepted, and how many carts were checked out
// meanwhile.
func (a *concurrentAdds) load(outer context.Context, name string, long time.Duration, checkouts int) (added, committed int64, err error) {
	g, ctx := errgroup.WithContext(outer)
	g.Go(func() error {
		r, err := load.Closed(ctx, a.deployment.target(), concurrentClients, long, toHot)
		if err == nil {
			added = r.Accepted
		}
		return err
	})
	if checkouts > 0 {
		g.Go(func() error {
			r, sold, err := a.service.call(ctx, long, checkouters(checkouts, &a.service.hot))
			if err != nil {
				return err
			}
			s := sample{count: sold.Committed, elapsed: r.Elapsed}
			a.note(name, s)
			a.checkouts = append(a.checkouts, s.rate())
			a.ranOut = a.ranOut || a.service.hot.count() == 0
			committed = sold.Committed
			return nil
		})
	}
	err = g.Wait()
	return added, committed, err
}

// describe adds to the measure what was checked out meanwhile.
func (a *concurrentAdds) describe(m *Measure) {
	m.note("%d clients add, and %d check out: %.0f carts/s", concurrentClients, concurrentClients, median(a.checkouts[len(a.checkouts)-a.reps:]))
	if a.ranOut {
		m.invalid("invalid: the carts ran out before the adds ended")
	}
}
