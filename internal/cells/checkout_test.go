package cells_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/holdfast/holdfast"
	"github.com/holdfast/holdfast/internal/cells"
	"github.com/holdfast/holdfast/internal/checkouts"
	"github.com/holdfast/holdfast/internal/pgtest"
	"github.com/holdfast/holdfast/internal/sleep"
)

// slowPayments answers after a moment.
type slowPayments struct {
	mu    sync.Mutex
	asked map[uuid.UUID]int
}

// Validate accepts every payment.
func (p *slowPayments) Validate(ctx context.Context, c checkouts.Checkout) (checkouts.Result, error) {
	p.mu.Lock()
	p.asked[c.CheckoutID]++
	p.mu.Unlock()
	return checkouts.ResultPaid, sleep.For(ctx, 50*time.Millisecond)
}

// A tenant moves while some of its checkouts wait for their payments and others
// are asked about at a payment service. Each ends as it would have without the
// move, and none takes its units twice.
func TestMoveDuringCheckouts(t *testing.T) {
	t.Parallel()
	payments := &slowPayments{asked: map[uuid.UUID]int{}}
	w := newWorldWith(t, holdfast.Config{NoDetector: true, Checkouts: checkouts.Config{Validator: payments, AttemptTimeout: time.Second}})
	ctx, shop := t.Context(), w.in("eu")
	_, err := shop.SetStock(ctx, "shirt", holdfast.StockPatch{Stock: new(int64(1000))}, nil)
	pgtest.Must(t, err)
	begin := func(cart, callback string) uuid.UUID {
		t.Helper()
		_, err := shop.Add(ctx, cart, "shirt", 2, &holdfast.CallOpts{Wait: 10 * time.Second})
		pgtest.Must(t, err)
		c, err := shop.BeginCheckout(ctx, cart, "order of "+cart, callback, &holdfast.CallOpts{IdempotencyKey: cart})
		pgtest.Must(t, err)
		return c.CheckoutID
	}
	waiting := []uuid.UUID{begin("a", ""), begin("b", ""), begin("c", "")}
	asked := map[string]uuid.UUID{}
	for i := range 30 {
		cart := fmt.Sprint("asked-", i)
		asked[cart] = begin(cart, "https://payments.example/paid")
	}
	paid, err := shop.RecordPayment(ctx, waiting[0], true, nil)
	if err != nil || paid.Status != checkouts.Committed {
		t.Fatalf("%+v, %v", paid, err)
	}
	_, err = w.move("us", cells.MoveConfig{})
	pgtest.Must(t, err)
	shop = w.in("us")
	paid, err = shop.RecordPayment(ctx, waiting[1], true, nil)
	if err != nil || paid.Status != checkouts.Committed {
		t.Errorf("paid after the move: %+v, %v", paid, err)
	}
	refused, err := shop.RecordPayment(ctx, waiting[2], false, nil)
	if err != nil || refused.Status != checkouts.Compensated {
		t.Errorf("refused after the move: %+v, %v", refused, err)
	}
	for cart, id := range asked {
		pgtest.Until(t, "the checkout is committed", func() bool {
			c, err := shop.GetCheckout(ctx, id)
			pgtest.Must(t, err)
			return c.Status == checkouts.Committed
		})
		again, err := shop.BeginCheckout(ctx, cart, "order of "+cart, "https://payments.example/paid", &holdfast.CallOpts{IdempotencyKey: cart})
		if err != nil || again.CheckoutID != id {
			t.Errorf("%s again: %s, %v, want %s", cart, again.CheckoutID, err, id)
		}
	}
	stock, err := shop.Stock(ctx, "shirt")
	if want := int64(1000 - 2*(len(asked)+2)); err != nil || stock.Stock != want || stock.Reserved != 0 {
		t.Errorf("%d units, %d of them reserved, %v, want %d and 0", stock.Stock, stock.Reserved, err, want)
	}
	w.check("us")
}
