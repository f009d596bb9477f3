package demo

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/holdfast/holdfast/cmd/internal/replay/baskets"
)

// What normal carts do once they are full, one in each of these numbers.
const (
	normalCheckoutEvery = 8
	normalRemoveEvery   = 10 // takes its first item out again
	normalChangeEvery   = 6  // wants three of its first item
)

// runNormal starts customers one after another, at an even rate, until closing.
// Then it waits until they are done.
func (s *sale) runNormal(ctx context.Context, closing <-chan struct{}) error {
	const generated = 10_000 // then the carts repeat
	list := baskets.Generate(s.Seed, generated, s.Variants)
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(normalMax)
	next := time.Now()
	for n := 0; ; n++ {
		items := list.Baskets[n%generated].Items
		group.Go(func() error {
			if err := s.shop(ctx, n, items); err != nil {
				return fmt.Errorf("customer %d: %w", n, err)
			}
			return nil
		})
		next = next.Add(time.Duration(len(items)) * time.Second / time.Duration(s.Rate))
		timer := time.NewTimer(time.Until(next))
		select {
		case <-timer.C:
			continue
		case <-closing:
		case <-ctx.Done():
		}
		timer.Stop()
		return group.Wait()
	}
}

// shop does what one customer does: it adds each item once the one before is
// decided.
func (s *sale) shop(ctx context.Context, n int, items []string) error {
	cart := fmt.Sprintf("cart-%s-%d", s.run, n)
	for i, item := range items {
		t := &s.before
		if s.opened.Load() {
			t = &s.during
		}
		sent := time.Now()
		request, err := s.normalShop.Add(ctx, cart, item, 1, keyed(fmt.Sprintf("%s-add-%d", cart, i)))
		if err != nil {
			return err
		}
		t.accept(time.Since(sent))
		if request, err = s.normalShop.Wait(ctx, request.RequestID); err != nil {
			return err
		}
		t.decide(request, time.Since(sent))
	}
	switch {
	case n%normalCheckoutEvery == 1:
		sold, err := s.normalShop.Checkout(ctx, cart, keyed(cart+"-checkout"))
		for _, r := range sold {
			s.actions.soldNormal.Add(r.Quantity)
		}
		return err
	case n%normalRemoveEvery == 2:
		released, err := s.normalShop.Remove(ctx, cart, items[0], keyed(cart+"-remove"))
		s.actions.removedNormal.Add(released)
		return err
	case n%normalChangeEvery == 3:
		request, err := s.normalShop.Set(ctx, cart, items[0], 3, keyed(cart+"-change"))
		if err != nil {
			return err
		}
		if request, err = s.normalShop.Wait(ctx, request.RequestID); err == nil && request.Reservation != nil && request.Reservation.Quantity == 3 {
			s.actions.changed.Add(1)
		}
		return err
	}
	return nil
}
