package traffic

import (
	"context"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast/holdfast/client"
)

// What buyers do, one in each of these numbers of buyers or holds.
const (
	doubleEvery   = 50 // clicks twice
	checkoutEvery = 2  // checks out at once
	removeEvery   = 40 // removes the item, while half of the buyers have not arrived yet
	secondEvery   = 80 // asks for a second one when all are gone
)

// What normal carts do once they are full, one in each of these numbers.
const (
	normalCheckoutEvery = 8
	normalRemoveEvery   = 10 // takes its first item out again
	normalChangeEvery   = 6  // wants three of its first item
)

// actions are what buyers did in the sale.
type actions struct {
	holds        atomic.Int64 // of the hot variant
	soldOutAfter atomic.Int64 // nanoseconds from the first buyer to the first that received out_of_stock; 0 before
	keepersMu    sync.Mutex
	keepers      []string // carts that will ask for a second unit
	// secondsRefused are those of them that failed as out of stock while the
	// first unit was kept.
	secondsRefused int
}

// rush yields the buyers of the hot variant. Half of the remaining buyers
// arrive in each quarter of For.
func (s *sale) rush(yield func(customer) bool) {
	decay := float64(s.For) / 4 / math.Ln2
	all := 1 - math.Exp(-float64(s.For)/decay)
	for i := range s.Buyers {
		cart := fmt.Sprintf("buyer-%s-%d", s.run, i)
		buyer := customer{
			cart: cart, items: []string{s.variant}, twice: i%doubleEvery == 0,
			arrives: time.Duration(-decay * math.Log(1-all*float64(i)/float64(s.Buyers))),
			then:    func(ctx context.Context, last client.Request) error { return s.afterHot(ctx, cart, last) },
		}
		if !yield(buyer) {
			return
		}
	}
}

// afterHot does what a buyer does after the outcome.
func (s *sale) afterHot(ctx context.Context, cart string, last client.Request) error {
	if last.Reservation == nil {
		s.soldOutAfter.CompareAndSwap(0, int64(time.Since(s.opened)))
		return nil
	}
	n := s.holds.Add(1)
	switch {
	case n%removeEvery == 0 && s.buyers.arrived.Load() < int64(s.Buyers)/2:
		return s.buyers.remove(ctx, cart, s.variant)
	case n%checkoutEvery == 0:
		return s.buyers.checkout(ctx, cart)
	case n%secondEvery == 1:
		s.keepersMu.Lock()
		s.keepers = append(s.keepers, cart)
		s.keepersMu.Unlock()
	}
	return nil
}

// carts returns the normal carts, which arrive at an even rate until the sale
// is over.
func (s *sale) carts(over *atomic.Bool) func(yield func(customer) bool) {
	const generated, seed = 10_000, 1 // then the carts repeat
	list := generate(seed, generated, s.Variants)
	return func(yield func(customer) bool) {
		arrives := time.Duration(0)
		for n := 0; !over.Load(); n++ {
			cart, items := fmt.Sprintf("cart-%s-%d", s.run, n), list.baskets[n%generated].items
			next := customer{
				cart: cart, items: items, arrives: arrives,
				then: func(ctx context.Context, _ client.Request) error { return s.afterNormal(ctx, n, cart, items[0]) },
			}
			if !yield(next) {
				return
			}
			arrives += time.Duration(len(items)) * time.Second / time.Duration(s.Rate)
		}
	}
}

// afterNormal does what a normal customer does with a full cart.
func (s *sale) afterNormal(ctx context.Context, n int, cart, first string) error {
	switch {
	case n%normalCheckoutEvery == 1:
		return s.normal.checkout(ctx, cart)
	case n%normalRemoveEvery == 2:
		return s.normal.remove(ctx, cart, first)
	case n%normalChangeEvery == 3:
		changed, err := s.normal.set(ctx, cart, first, 3)
		if err == nil && changed.Reservation != nil && changed.Reservation.Quantity == 3 {
			s.normal.changed.Add(1)
		}
		return err
	}
	return nil
}

// askForSeconds lets buyers that kept their unit request a second one after all
// units are gone. Each request fails as out of stock, and the buyer keeps the
// first unit.
func (s *sale) askForSeconds(ctx context.Context) error {
	for _, cart := range s.keepers {
		request, err := s.buyers.set(ctx, cart, s.variant, 2)
		if err != nil {
			return fmt.Errorf("cart %s: %w", cart, err)
		}
		after, err := s.buyers.api.Cart(ctx, cart, 0, "")
		if err != nil {
			return fmt.Errorf("cart %s: %w", cart, err)
		}
		if request.Reason == outOfStock && len(after.Reservations) == 1 && after.Reservations[0].Status == "held" && after.Reservations[0].Quantity == 1 {
			s.secondsRefused++
		}
	}
	return nil
}
