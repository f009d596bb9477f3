package main

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/holdfast/holdfast/client"
	"github.com/holdfast/holdfast/cmd/internal/programtest"
)

// Each method of the Go client does what it says, at a running service.
func TestClient(t *testing.T) {
	t.Parallel()
	shop := programtest.NewFixture(t)
	s := ready(t, programtest.Start(t, run, shop.Env(), "run").Stdout)
	c, err := client.New(client.Config{URLs: []string{s.url}, Key: s.key})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	b := buyer{t, ctx, c}
	b.stocks()
	b.carts()
	b.reservations()
	b.payments()
	shop.Verify()
}

// buyer calls a service through the client.
type buyer struct {
	t   *testing.T
	ctx context.Context
	c   *client.Client
}

func (b buyer) must(err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
}

// add puts hats into a cart under the cart's key.
func (b buyer) add(cart string, quantity int32) client.Request {
	b.t.Helper()
	r, err := b.c.Add(b.ctx, cart, "hat", quantity, &client.CallOpts{IdempotencyKey: cart, Wait: 10 * time.Second})
	b.must(err)
	r, err = b.c.Wait(b.ctx, r.RequestID, time.Minute)
	b.must(err)
	if r.Status != "done" || r.Reservation == nil || r.Reservation.Quantity != int64(quantity) || r.Reservation.Status != "held" {
		b.t.Fatalf("add: %+v", r)
	}
	return r
}

func (b buyer) stocks() {
	stock, err := b.c.SetStock(b.ctx, "hat", client.StockPatch{Stock: new(int64(10)), Tracked: new(true)}, nil)
	b.must(err)
	if stock.VariantID != "hat" || stock.Available != 10 || !stock.Tracked || stock.CurrentLane == "" {
		b.t.Errorf("set: %+v", stock)
	}
	stock, err = b.c.AdjustStock(b.ctx, "hat", -2, &client.CallOpts{Reason: "counted"})
	b.must(err)
	if stock.Stock != 8 {
		b.t.Errorf("adjusted: %+v", stock)
	}
	_, err = b.c.SetStock(b.ctx, "shirt", client.StockPatch{Stock: new(int64(1))}, nil)
	b.must(err)
	stocks, err := b.c.Stocks(b.ctx, 1, "")
	b.must(err)
	last, err := b.c.Stocks(b.ctx, 1, stocks.NextCursor)
	b.must(err)
	if len(stocks.Items) != 1 || stocks.NextCursor == "" || len(last.Items) != 1 || last.Items[0].VariantID != "shirt" || last.NextCursor != "" {
		b.t.Errorf("the pages: %+v, %+v", stocks, last)
	}
}

func (b buyer) carts() {
	first := b.add("one", 1)
	if again := b.add("one", 1); again.RequestID != first.RequestID {
		b.t.Errorf("repeated: %s, want %s", again.RequestID, first.RequestID)
	}
	set, err := b.c.Set(b.ctx, "one", "hat", 3, nil)
	b.must(err)
	set, err = b.c.Wait(b.ctx, set.RequestID, time.Minute)
	b.must(err)
	cart, err := b.c.Cart(b.ctx, "one", 0, "")
	b.must(err)
	if set.Reservation == nil || len(cart.Reservations) != 2 || cart.Reservations[0].Quantity != 3 {
		b.t.Errorf("changed: %+v, the cart %+v", set, cart)
	}
	held, err := b.c.Extend(b.ctx, "one", time.Minute, nil)
	b.must(err)
	if len(held) != 1 || !held[0].ExpiresAt.After(set.Reservation.ExpiresAt) {
		b.t.Errorf("extended: %+v", held)
	}
	sold, err := b.c.Checkout(b.ctx, "one", nil)
	b.must(err)
	if len(sold) != 1 || sold[0].Status != "committed" {
		b.t.Errorf("checked out: %+v", sold)
	}
	_, err = b.c.Checkout(b.ctx, "one", nil)
	if refused, ok := errors.AsType[*client.Error](err); !ok || refused.Status != http.StatusConflict || refused.Code != "cart_empty" {
		b.t.Errorf("an empty cart: %v", err)
	}

	b.add("two", 1)
	released, err := b.c.Remove(b.ctx, "two", "hat", "", nil)
	b.must(err)
	everything, err := b.c.Remove(b.ctx, "two", "", "", nil)
	b.must(err)
	if released.Released != 1 || everything.Released != 0 {
		b.t.Errorf("removed %+v and %+v, want 1 and 0", released, everything)
	}
}

func (b buyer) reservations() {
	for cart, end := range map[string]func(id string) (client.Reservation, error){
		"committed": func(id string) (client.Reservation, error) { return b.c.Commit(b.ctx, id, nil) },
		"released":  func(id string) (client.Reservation, error) { return b.c.Release(b.ctx, id, "abandoned", nil) },
	} {
		id := b.add(cart, 1).Reservation.ReservationID
		longer, err := b.c.ExtendHold(b.ctx, id, time.Minute, nil)
		b.must(err)
		ended, err := end(id)
		b.must(err)
		read, err := b.c.Reservation(b.ctx, id)
		b.must(err)
		if longer.Status != "held" || ended.Status != cart || read.Status != cart || read.EndedAt == nil {
			b.t.Errorf("%s: extended %+v, ended %+v, read %+v", cart, longer, ended, read)
		}
	}
}

func (b buyer) payments() {
	for cart, status := range map[string]string{"paid": "committed", "unpaid": "compensated"} {
		b.add(cart, 1)
		begun, err := b.c.BeginCheckout(b.ctx, cart, "order-"+cart, "", nil)
		b.must(err)
		_, err = b.c.RecordPayment(b.ctx, begun.CheckoutID, cart == "paid", nil)
		b.must(err)
		ended, err := b.c.WaitCheckout(b.ctx, begun.CheckoutID, time.Minute)
		b.must(err)
		if begun.Status != "validating" || ended.Status != status || ended.CartID != cart {
			b.t.Errorf("%s: begun %+v, ended %+v", cart, begun, ended)
		}
	}
}
