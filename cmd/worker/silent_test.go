package main

import (
	"net/http"
	"testing"

	"github.com/holdfast/holdfast/cmd/internal/programtest"
	"github.com/holdfast/holdfast/internal/checkouts"
	"github.com/holdfast/holdfast/internal/pgtest"
)

// behindWire returns a worker that connects to its database through a proxy,
// once it has decided a request in each lane.
func behindWire(t *testing.T, more ...string) (*programtest.Fixture, *pgtest.Wire, *programtest.Inside) {
	t.Helper()
	shop := programtest.NewFixture(t)
	shop.Stock("shirt", 100)
	shop.Stock("ticket", 100)
	shop.Pin("ticket")
	wire := pgtest.NewWire(t, shop.URL)
	worker := programtest.Start(t, run, shop.Env(append(more, "DATABASE_URL", wire.URL)...))
	shop.Admit("shirt", 5)
	shop.Admit("ticket", 5)
	shop.Await(programtest.Count{Done: 10, Held: 10})
	return shop, wire, worker
}

// A worker all of whose connections became silent opens others.
func TestSilentConnections(t *testing.T) {
	t.Parallel()
	shop, wire, worker := behindWire(t)
	wire.Silence()
	shop.Admit("shirt", 5)
	shop.Admit("ticket", 5)
	wire.Speak()
	shop.Await(programtest.Count{Done: 20, Held: 20})
	if err := worker.Stop(); err != nil {
		t.Errorf("stop: %v", err)
	}
	shop.Verify()
}

// A worker that is stopped while its database is silent ends in time, without
// an error.
func TestStoppedWhileSilent(t *testing.T) {
	t.Parallel()
	_, wire, worker := behindWire(t, "STOP_WITHIN", "3s")
	wire.Silence()
	before := wire.Sent()
	pgtest.Until(t, "it has sent a query to the silent database", func() bool { return wire.Sent() > before })
	if err := worker.Stop(); err != nil {
		t.Errorf("stop: %v", err)
	}
}

// A worker that is stopped while the database is silent about the answer of a
// payment service ends in time, too. The next worker commits the checkout.
func TestStoppedWhileSilentAboutAPayment(t *testing.T) {
	t.Parallel()
	const callback = "60s" // longer than the test waits for the stop
	env := []string{"CHECKOUT_CALLBACK_SECRET", programtest.CallbackSecret, "CHECKOUT_CALLBACK_PRIVATE", "true"}
	shop, wire, worker := behindWire(t, append(env, "STOP_WITHIN", "3s", "CHECKOUT_CALLBACK_TIMEOUT", callback)...)
	called, answer := make(chan struct{}, 10), make(chan struct{})
	payments := programtest.ServePayments(t, func(programtest.PaymentCall) (int, string) {
		called <- struct{}{}
		<-answer
		return http.StatusOK, `{"result":"paid"}`
	})
	begun := shop.BeginCheckout("cart-shirt-0", payments.URL)
	<-called
	wire.Silence()
	close(answer)
	before := wire.Sent()
	pgtest.Until(t, "it asks the silent database", func() bool { return wire.Sent() > before })
	if err := worker.Stop(); err != nil {
		t.Errorf("stop: %v", err)
	}
	next := programtest.Start(t, run, shop.CallbackEnv())
	shop.Int(`WITH due AS (UPDATE checkouts SET next_attempt_at = clock_timestamp() RETURNING 1) SELECT count(*) FROM due`)
	shop.Until("it is committed", func() bool { return shop.Checkout(begun.CheckoutID).Status == checkouts.Committed })
	if err := next.Stop(); err != nil {
		t.Errorf("stop: %v", err)
	}
}
