package normal_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/internal/lanetest"
	"github.com/holdfast/holdfast/queues"
	"github.com/holdfast/holdfast/queues/normal"
	"github.com/holdfast/holdfast/requests"
)

// Requests whose stock another transaction has locked are left, and keep no other request of their batch waiting. They are
// decided once it ends, those of a cart in their order.
func TestLockedStockIsLeft(t *testing.T) {
	t.Parallel()
	b := lanetest.New(t, requests.Normal, normal.NewLane)
	b.Stock("shoe", 2)
	b.Stock("sock", 10)
	lane := b.Lane(queues.LaneConfig{ServeFor: 50 * time.Millisecond, TickEvery: 50 * time.Millisecond})
	checkout := b.LockStock("shoe")
	first, second := b.Submit("a", "shoe", 2), b.Submit("a", "shoe", 1)
	other, unknown := b.Submit("b", "sock", 1), b.Submit("b", "no-such", 1)
	if _, err := lane.Tick(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.Want(other, requests.Done, "")
	b.Want(unknown, requests.Failed, requests.UnknownVariant)
	b.Want(first, requests.Queued, "")
	b.Want(second, requests.Queued, "")
	if n := b.Int(`SELECT count(*) FROM reservation_requests WHERE attempts > 0`); n != 0 {
		t.Errorf("%d requests were counted an attempt", n)
	}
	if err := checkout.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.Until(lane, second)
	b.Want(first, requests.Done, "")
	b.Want(second, requests.Failed, requests.OutOfStock)
	b.Sound()
}

// A stock that is always locked, by transactions that follow each other, is waited for in the end, and other requests are
// decided meanwhile.
func TestLockedStockIsWaitedFor(t *testing.T) {
	t.Parallel()
	b := lanetest.New(t, requests.Normal, normal.NewLane)
	b.Stock("shoe", 2)
	b.Stock("sock", 1000)
	checkout := b.LockStock("shoe")
	starved := b.Submit("a", "shoe", 1)
	lane := b.Lane(queues.LaneConfig{TickEvery: 20 * time.Millisecond})
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { _ = lane.Run(ctx); close(ended) }()
	defer func() { stop(); <-ended }()
	b.Blocked() // a drain waits for the lock
	other := b.Submit("b", "sock", 1)
	b.Eventually("another request is decided meanwhile", func() bool { return b.Get(other).Status == requests.Done })
	b.Want(starved, requests.Queued, "")
	next := make(chan error, 1)
	go func() { // queues behind the drain for the lock
		next <- pgx.BeginFunc(ctx, b.DB, func(tx pgx.Tx) error {
			_, err := tx.Exec(ctx, `UPDATE inventory_stocks SET stock = stock WHERE tenant_id = $1 AND variant_id = 'shoe'`, b.Tenant)
			return err
		})
	}()
	if err := checkout.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-next; err != nil {
		t.Fatal(err)
	}
	b.Eventually("the starved request is decided", func() bool { return b.Get(starved).Status == requests.Done })
	b.Sound()
}
