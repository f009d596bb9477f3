package main

import (
	"context"
	"net/http"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/cmd/internal/programtest"
	"github.com/holdfast/holdfast/internal/checkouts"
)

const (
	lockCheckoutsSQL = `SELECT FROM checkouts FOR UPDATE`
	lockStocksSQL    = `SELECT FROM inventory_stocks FOR UPDATE`
)

// A worker is killed after the payment service has answered, before the answer
// is recorded, and again after it is recorded, before the holds are committed.
// The next worker commits them. It calls the service again only if the answer
// was lost, with the same webhook-id.
func TestKilledAfterTheCallback(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		lock     string // what the worker waits for when it is killed
		status   checkouts.Status
		attempts []int // of the calls
	}{
		"before it is recorded":  {lockCheckoutsSQL, checkouts.Validating, []int{1, 2}},
		"before it is committed": {lockStocksSQL, checkouts.Finalizing, []int{1}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			shop := programtest.NewFixture(t)
			shop.Stock("ticket", 5)
			shop.Admit("ticket", 1)
			first := programtest.StartProcess(t, shop.CallbackEnv())
			shop.Await(programtest.Count{Done: 1, Held: 1})
			locked := make(chan pgx.Tx, 1)
			payments := programtest.ServePayments(t, func(call programtest.PaymentCall) (int, string) {
				if call.Attempt == 1 { // the worker has committed its claim
					obstacle, err := shop.DB.Begin(context.Background())
					if err == nil {
						_, err = obstacle.Exec(context.Background(), c.lock)
					}
					if err != nil {
						t.Error(err)
					}
					locked <- obstacle
				}
				return http.StatusOK, `{"result":"paid"}`
			})
			begun := shop.BeginCheckout("cart-ticket-0", payments.URL+"/paid")
			obstacle := <-locked
			defer func() { _ = obstacle.Rollback(context.Background()) }()
			shop.Until("the worker waits for the lock", func() bool { return shop.Int(waitingSQL) >= 1 })
			first.Signal(syscall.SIGKILL)
			if code := first.Wait(); code != -1 {
				t.Fatalf("exit code %d of a worker that was killed", code)
			}
			shop.Until("the dead worker's transactions have ended", func() bool { return shop.Int(waitingSQL) == 0 })
			if err := obstacle.Rollback(t.Context()); err != nil {
				t.Fatal(err)
			}
			if left := shop.Checkout(begun.CheckoutID); left.Status != c.status {
				t.Fatalf("the kill left it %s, want %s", left.Status, c.status)
			}

			second := programtest.StartProcess(t, shop.CallbackEnv())
			shop.Until("it is committed", func() bool { return shop.Checkout(begun.CheckoutID).Status == checkouts.Committed })
			second.Signal(syscall.SIGTERM)
			if code := second.Wait(); code != 0 {
				t.Errorf("exit code %d of the second worker; it logged:\n%s", code, second.Stderr)
			}
			var attempts []int
			for _, call := range payments.Calls() {
				attempts = append(attempts, call.Attempt)
				if call.ID != begun.CheckoutID.String() {
					t.Errorf("attempt %d has the webhook-id %s, want %s", call.Attempt, call.ID, begun.CheckoutID)
				}
			}
			if diff := cmp.Diff(c.attempts, attempts); diff != "" {
				t.Errorf("attempts (-want +got):\n%s", diff)
			}
			if n := shop.Int(`SELECT stock * 10 + reserved FROM inventory_stocks`); n != 40 {
				t.Errorf("stock and reserved are %d, want 4 and 0", n)
			}
			shop.Verify()
		})
	}
}
