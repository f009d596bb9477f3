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
	addsBeside         = "holdfast, adds beside checkouts"
	// besideClients are how many clients add, and how many check out beside them.
	besideClients = 32
	// checkoutShare is the part of a repetition's time that each of the suite's eight sides has, one in so many.
	checkoutShare = 4
)

// checkout has clients check out carts that hold a unit already.
func (b *bench) checkout(ctx context.Context) ([]Measure, error) {
	all, err := b.newContenders(ctx, 0)
	if err != nil {
		return nil, err
	}
	defer all.close()
	beside := &besideAdds{bench: b, front: all.front, contender: all.ours}
	c, err := b.compare(ctx,
		b.checkoutSide(all.ours, checkoutHot, httpClients, true),
		b.checkoutSide(all.theirs, checkoutHotSync, httpClients, true),
		b.checkoutSide(all.ours, checkoutSpread, httpClients, false),
		b.checkoutSide(all.theirs, checkoutSpreadSync, httpClients, false),
		beside.side(addsAlone, 0),
		beside.side(addsBeside, besideClients),
		b.checkoutSide(all.ours, checkoutLone, 1, true),
		b.checkoutSide(all.theirs, checkoutLoneSync, 1, true),
	)
	if err != nil {
		return nil, err
	}
	adds := c.over("adds_beside_checkout", addsBeside, addsAlone)
	beside.describe(&adds)
	lone := c.overBy("lone_checkout_p50_vs_sync", checkoutLone, checkoutLoneSync, func(s sample) float64 { return milliseconds(s.p50) })
	lone.note("ours and other in ms")
	return []Measure{
		c.over("checkout_hot_vs_sync", checkoutHot, checkoutHotSync),
		c.over("checkout_spread_vs_sync", checkoutSpread, checkoutSpreadSync),
		adds,
		lone,
	}, b.verified(ctx, all)
}

// checkoutSide counts checkouts that were answered, each of another cart.
func (b *bench) checkoutSide(of *contender, name string, clients int, hot bool) *side {
	return &side{
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

// besideAdds has clients add the hot variant, alone and beside others that check it out.
type besideAdds struct {
	*bench
	front     *front
	contender *contender
	// checkouts are how many checkouts were answered per second meanwhile, in each repetition.
	checkouts []float64
	ranOut    bool
}

// side counts adds from the first call until the last one that was accepted is decided.
func (a *besideAdds) side(name string, checkouts int) *side {
	return &side{
		name: name,
		prepare: func(ctx context.Context) error {
			if checkouts == 0 {
				return nil
			}
			// twice as many as were checked out in the last repetition, so that some are left at the end
			return a.contender.stock(ctx, 2*a.work(name, a.long/checkoutShare), true)
		},
		run: func(ctx context.Context, long time.Duration) (s sample, err error) {
			before, err := reservedOf(ctx, a.front.db, a.front.tenant)
			if err != nil {
				return s, err
			}
			began := time.Now()
			added, committed, err := a.load(ctx, name, long/checkoutShare, checkouts)
			if err != nil {
				return s, err
			}
			if err := awaitReserved(ctx, a.front.db, a.front.tenant, before+added-committed); err != nil {
				return s, err
			}
			a.contender.sold.Granted += added
			return sample{count: added, elapsed: time.Since(began)}, nil
		},
		check: a.contender.agrees,
	}
}

// load returns how many adds were accepted, and how many carts were checked out meanwhile.
func (a *besideAdds) load(outer context.Context, name string, long time.Duration, checkouts int) (added, committed int64, err error) {
	g, ctx := errgroup.WithContext(outer)
	g.Go(func() error {
		r, err := load.Closed(ctx, a.front.target(), besideClients, long, toHot)
		if err == nil {
			added = r.Accepted
		}
		return err
	})
	if checkouts > 0 {
		g.Go(func() error {
			r, sold, err := a.contender.call(ctx, long, checkouters(checkouts, &a.contender.hot))
			if err != nil {
				return err
			}
			s := sample{count: sold.Committed, elapsed: r.Elapsed}
			a.note(name, s)
			a.checkouts = append(a.checkouts, s.rate())
			a.ranOut = a.ranOut || a.contender.hot.count() == 0
			committed = sold.Committed
			return nil
		})
	}
	err = g.Wait()
	return added, committed, err
}

// describe adds to the measure what was checked out meanwhile.
func (a *besideAdds) describe(m *Measure) {
	m.note("%d clients add, and %d check out: %.0f carts/s", besideClients, besideClients, median(a.checkouts[len(a.checkouts)-a.reps:]))
	if a.ranOut {
		m.invalid("invalid: the carts ran out before the adds ended")
	}
}
