package hot_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/holdfast/holdfast/internal/lanes"
	"github.com/holdfast/holdfast/internal/queues"
	"github.com/holdfast/holdfast/internal/testkit"
	"github.com/holdfast/holdfast/requests"
)

// Several variants fail all their requests, so that the breaker of the lane
// opens again and again. The slot of another variant soon gets a probe, however
// many slots the others have.
func TestBrokenSlotsLeaveProbesToOthers(t *testing.T) {
	t.Parallel()
	const broken, good = 10, 3
	b := testkit.New(t, lanes.Hot)
	for i := range broken {
		b.Stock(fmt.Sprint("broken-", i), 1000)
	}
	b.Stock("good", 1000)
	b.Exec(`ALTER TABLE reservations ADD CONSTRAINT wrong CHECK (resource_key NOT LIKE 'broken%') NOT VALID`)
	for i := range 10 * broken {
		b.Submit(fmt.Sprint("cart-", i), fmt.Sprint("broken-", i%broken), 1)
	}
	b.Run(b.Lane(queues.LaneConfig{TickEvery: 200 * time.Millisecond}))
	b.Until("the breaker is open", func() bool {
		return b.Int(`SELECT count(*) FROM reservation_requests WHERE status = 'processing'`) >= 12
	})
	for i := range good { // without probes of its own the slot waits for minutes
		r := b.Submit(fmt.Sprint("good-", i), "good", 1)
		b.Until("a request of another variant is decided", func() bool { return b.Get(r).Status == requests.Done })
	}
	b.CheckInvariants()
}

// The breaker of a variant that moves to the hot lane stops the slot that
// decides its requests, though they were admitted to another one. They stay
// queued.
func TestBreakerOfMovingVariant(t *testing.T) {
	t.Parallel()
	b := testkit.New(t, lanes.Hot)
	b.Stock("first", 1000) // has slot 0, the number of the normal lane's stream
	b.Exec(`INSERT INTO inventory_stocks (tenant_id, variant_id, stock) VALUES ($1, 'broken', 1000)`, b.Tenant)
	b.Exec(`ALTER TABLE reservations ADD CONSTRAINT wrong CHECK (resource_key <> 'broken') NOT VALID`)
	const asked = 100
	for i := range asked {
		b.Submit(fmt.Sprint("cart-", i), "broken", 1)
	}
	b.Pin("broken")
	if slot := b.Int(`SELECT slot FROM hot_variants WHERE variant_id = 'broken'`); slot == 0 {
		t.Fatal("the moving variant has slot 0")
	}
	lane := b.Lane(queues.LaneConfig{})
	b.Until("the breaker has opened, and probes have failed", func() bool {
		b.Tick(lane) // drains the slot until nothing is left, unless its breaker is open
		return b.Int(`SELECT count(*) FROM reservation_requests WHERE status = 'processing'`) >= 9
	})
	if n := b.Int(`SELECT count(*) FROM reservation_requests WHERE status = 'queued'`); n < asked*3/4 {
		t.Errorf("%d of %d requests are still queued: the breaker did not stop their slot", n, asked)
	}
}
