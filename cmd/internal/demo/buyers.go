package demo

import (
	"context"
	"fmt"
	"math"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/holdfast/holdfast/client"
	"github.com/holdfast/holdfast/internal/sleep"
)

// What buyers do, one in each of these numbers of buyers or holds.
const (
	doubleEvery   = 50 // clicks twice
	checkoutEvery = 2  // checks out at once
	removeEvery   = 40 // removes the item, while half of the buyers have not arrived yet
	secondEvery   = 80 // asks for a second one when all are gone
)

// runBuyers starts the buyers and waits until each of them has an outcome.
func (s *sale) runBuyers(ctx context.Context, began time.Time) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(buyersMax)
	for i := range s.Buyers {
		if err := sleep.For(ctx, time.Until(began.Add(s.arrival(i)))); err != nil {
			break // the context ended, which also ends the buyers already started
		}
		s.arrived.Add(1)
		group.Go(func() error {
			if err := s.buy(ctx, i, began); err != nil {
				return fmt.Errorf("buyer %d: %w", i, err)
			}
			return nil
		})
	}
	return group.Wait()
}

// arrival is when a buyer arrives after the sale opens: half of the remaining
// buyers arrive in each quarter of For.
func (s *sale) arrival(i int) time.Duration {
	decay := float64(s.For) / 4 / math.Ln2
	all := 1 - math.Exp(-float64(s.For)/decay)
	return time.Duration(-decay * math.Log(1-all*float64(i)/float64(s.Buyers)))
}

// buy does what one buyer does.
func (s *sale) buy(ctx context.Context, i int, began time.Time) error {
	cart := fmt.Sprintf("buyer-%s-%d", s.run, i)
	sent := time.Now()
	request, err := s.buyersShop.Add(ctx, cart, s.variant, 1, keyed(cart+"-add"))
	if err != nil {
		return err
	}
	s.hot.accept(time.Since(sent))
	if i%doubleEvery == 0 {
		again, err := s.buyersShop.Add(ctx, cart, s.variant, 1, keyed(cart+"-add"))
		if err != nil {
			return err
		}
		s.actions.doubles.Add(1)
		if again.RequestID != request.RequestID {
			s.actions.split.Add(1)
		}
	}
	if request, err = s.buyersShop.Wait(ctx, request.RequestID); err != nil {
		return err
	}
	if n := s.hot.decide(request, time.Since(sent)); n > 0 {
		return s.afterHold(ctx, cart, n)
	}
	s.soldOutAfter.CompareAndSwap(0, int64(time.Since(began)))
	return nil
}

// afterHold does what a buyer does after the sale's n-th hold.
func (s *sale) afterHold(ctx context.Context, cart string, n int64) error {
	switch {
	case n%removeEvery == 0 && s.arrived.Load() < int64(s.Buyers)/2:
		released, err := s.buyersShop.Remove(ctx, cart, s.variant, keyed(cart+"-remove"))
		s.actions.removedHot.Add(released)
		return err
	case n%checkoutEvery == 0:
		sold, err := s.buyersShop.Checkout(ctx, cart, keyed(cart+"-checkout"))
		for _, r := range sold {
			s.actions.soldHot.Add(r.Quantity)
		}
		return err
	case n%secondEvery == 1:
		s.keepersMu.Lock()
		s.keepers = append(s.keepers, cart)
		s.keepersMu.Unlock()
	}
	return nil
}

// askForSeconds lets buyers that kept their unit request a second one after all
// units are gone. Each request fails as out of stock, and the buyer keeps the
// first unit.
func (s *sale) askForSeconds(ctx context.Context) error {
	for _, cart := range s.keepers {
		request, err := s.buyersShop.Set(ctx, cart, s.variant, 2, keyed(cart+"-second"))
		if err != nil {
			return fmt.Errorf("cart %s: %w", cart, err)
		}
		if request, err = s.buyersShop.Wait(ctx, request.RequestID); err != nil {
			return fmt.Errorf("cart %s: %w", cart, err)
		}
		after, err := s.buyersShop.Cart(ctx, cart)
		if err != nil {
			return fmt.Errorf("cart %s: %w", cart, err)
		}
		s.actions.seconds++
		if request.Reason == outOfStock && len(after.Reservations) == 1 && after.Reservations[0].Status == "held" && after.Reservations[0].Quantity == 1 {
			s.actions.secondsRefused++
		}
	}
	return nil
}

// keyed are the options of a call with an idempotency key.
func keyed(key string) *client.CallOpts { return &client.CallOpts{IdempotencyKey: key} }
