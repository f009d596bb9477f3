package normal_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/internal/admission"
	"github.com/holdfast/holdfast/internal/lanes"
	"github.com/holdfast/holdfast/internal/queues"
	"github.com/holdfast/holdfast/internal/requestrows"
	"github.com/holdfast/holdfast/internal/testkit"
	"github.com/holdfast/holdfast/requests"
)

// Requests whose stock another transaction has locked are left out, and other
// requests of their batch do not wait for them. They are decided once that
// transaction ends, those of a cart in their order.
func TestLockedStockIsSkipped(t *testing.T) {
	t.Parallel()
	b := testkit.New(t, lanes.Normal)
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
		t.Errorf("an attempt was counted for %d requests", n)
	}
	checkout.Release()
	b.TickUntil(lane, second)
	b.Want(first, requests.Done, "")
	b.Want(second, requests.Failed, requests.OutOfStock)
	b.CheckInvariants()
}

// After some tries a drain waits for a stock that consecutive transactions keep
// locked. Other requests are decided meanwhile.
func TestLockedStockIsWaitedFor(t *testing.T) {
	t.Parallel()
	b := testkit.New(t, lanes.Normal)
	b.Stock("shoe", 2)
	b.Stock("sock", 1000)
	checkout := b.LockStock("shoe")
	starved := b.Submit("a", "shoe", 1)
	lane := b.Lane(queues.LaneConfig{TickEvery: 20 * time.Millisecond})
	b.Run(lane)
	b.Blocked() // a drain waits for the lock
	other := b.Submit("b", "sock", 1)
	b.Until("another request is decided meanwhile", func() bool { return b.Get(other).Status == requests.Done })
	b.Want(starved, requests.Queued, "")
	next := make(chan error, 1)
	go func() { // waits for the lock behind the drain
		next <- pgx.BeginFunc(t.Context(), b.DB, func(tx pgx.Tx) error {
			_, err := tx.Exec(t.Context(), `UPDATE inventory_stocks SET stock = stock WHERE tenant_id = $1 AND variant_id = 'shoe'`, b.Tenant)
			return err
		})
	}()
	checkout.Release()
	if err := <-next; err != nil {
		t.Fatal(err)
	}
	b.Until("the starved request is decided", func() bool { return b.Get(starved).Status == requests.Done })
	b.CheckInvariants()
}

// More stocks are locked than the number of variants that a process leaves out.
// Requests for a free stock are still decided. Once the locks are released all
// requests are decided, including those beyond the bound. No tick decides
// anything, and no attempt is counted.
func TestManyLockedStocks(t *testing.T) {
	t.Parallel()
	const variants = 1020
	b := testkit.New(t, lanes.Normal)
	b.Exec(`
		INSERT INTO inventory_stocks (tenant_id, variant_id, stock)
		SELECT $1, 'locked-' || n, 1 FROM generate_series(1, $2::integer) AS n`, b.Tenant, variants)
	b.Stock("free", 10)
	checkout := b.Lock(`SELECT FROM inventory_stocks WHERE tenant_id = $1 AND variant_id LIKE 'locked-%' FOR UPDATE`, b.Tenant)
	in := b.Intake(admission.IntakeConfig{QueueMax: 2 * variants})
	var callers sync.WaitGroup
	for i := range variants {
		callers.Go(func() {
			s := requestrows.Submission{TenantID: b.Tenant, CartID: fmt.Sprint("cart-", i), VariantID: fmt.Sprint("locked-", i+1), Quantity: 1}
			if _, err := in.Submit(t.Context(), s); err != nil {
				t.Error(err)
			}
		})
	}
	callers.Wait()
	lane := b.Lane(queues.LaneConfig{TickEvery: time.Hour})
	b.Run(lane)
	for i := range 5 {
		free := b.Submit(fmt.Sprint("free-", i), "free", 1)
		lane.Wake(free.Slot)
		b.Until("a request for a free stock is decided", func() bool { return b.Get(free).Status == requests.Done })
	}
	if n := b.Int(`SELECT count(*) FROM reservation_requests WHERE status = 'queued'`); n != variants {
		t.Errorf("%d requests are queued, want the %d whose stocks are locked", n, variants)
	}
	checkout.Release()
	b.Until("all are decided", func() bool {
		return b.Int(`SELECT count(*) FROM reservation_requests WHERE status = 'done'`) == variants+5
	})
	if n := b.Int(`SELECT count(*) FROM reservation_requests WHERE attempts > 0`); n != 0 {
		t.Errorf("an attempt was counted for %d requests", n)
	}
	b.CheckInvariants()
}
