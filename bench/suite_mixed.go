package main

import (
	"context"
	"fmt"
	"time"

	"github.com/holdfast/holdfast/bench/baselines"
)

const (
	mixedName = "holdfast, mixed sale"
	mixedSync = "synchronous, mixed sale"
	// mixedTTL is how long a hold lasts: the smallest HOLD_TTL.
	mixedTTL = time.Second
)

// mixed has 64 clients add one hot variant to carts, check carts out, remove
// the variant, and change its quantity. The holds that they do not end expire.
func (b *bench) mixed(ctx context.Context) ([]Measure, error) {
	all, err := b.newServicePair(ctx, mixedTTL)
	if err != nil {
		return nil, err
	}
	defer all.close()
	ours, theirs := &mix{countedService: all.ours}, &mix{countedService: all.theirs}
	c, err := b.compare(ctx, ours.contender(mixedName), theirs.contender(mixedSync))
	if err != nil {
		return nil, err
	}
	m := c.over("mixed_hot_vs_sync", mixedName, mixedSync)
	for _, contender := range []struct {
		name string
		*mix
	}{{"ours", ours}, {"other", theirs}} {
		if err := contender.describe(ctx, &m, contender.name); err != nil {
			return nil, err
		}
	}
	return []Measure{m}, b.verified(ctx, all)
}

// mix is a service with counts of its mixed calls.
type mix struct {
	*countedService
	adds, lapsed int64
}

// contender counts the calls that took effect: adds and changes that were
// granted, checkouts, and removals that released something.
func (x *mix) contender(name string) *contender {
	return &contender{
		name: name,
		run: func(ctx context.Context, long time.Duration) (s sample, err error) {
			mixers, all := make([]mixer, httpClients), make([]caller, httpClients)
			for i := range all {
				mixers[i].ttl = mixedTTL
				all[i] = &mixers[i]
			}
			r, sold, err := x.call(ctx, long, all)
			if err != nil {
				return s, err
			}
			for i := range mixers {
				x.adds += mixers[i].adds
				x.lapsed += mixers[i].lapsed
			}
			return sample{count: sold.Granted + sold.Committed + sold.Released, elapsed: r.Elapsed}, nil
		},
		check: x.agrees,
	}
}

// describe notes the calls of one contender in all repetitions.
func (x *mix) describe(ctx context.Context, m *Measure, name string) error {
	got, err := x.checkSold(ctx, x.sold)
	if err != nil {
		return err
	}
	m.note("%s: %s, %d holds expired, %d calls came too late for theirs", name, shares(x.sold, x.adds), got.Expired, x.lapsed)
	return nil
}

// shares is the mix that took effect, in percent.
func shares(sold baselines.Sold, adds int64) string {
	total := float64(max(sold.Granted+sold.Committed+sold.Released, 1))
	percent := func(n int64) float64 { return 100 * float64(n) / total }
	return fmt.Sprintf("%.0f %% adds, %.0f %% checkouts, %.0f %% removals, %.0f %% changes",
		percent(adds), percent(sold.Committed), percent(sold.Released), percent(sold.Granted-adds))
}
