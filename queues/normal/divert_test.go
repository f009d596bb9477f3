package normal_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/holdfast/holdfast/internal/lanes"
	"github.com/holdfast/holdfast/internal/queues"
	"github.com/holdfast/holdfast/internal/testkit"
	"github.com/holdfast/holdfast/requests"
)

// The streams of the normal lane: the shared one, and the one of diverted
// tenants.
const (
	shared   = 0
	diverted = 1
)

func divert(b *testkit.Fixture) {
	b.Exec(`INSERT INTO diverted_tenants (tenant_id, slot, why) VALUES ($1, $2, 'test')`, b.Tenant, diverted)
}

func restore(b *testkit.Fixture) {
	b.Exec(`DELETE FROM diverted_tenants`)
}

// A cart's requests for one variant are decided in their order even while its
// tenant is diverted and restored, whichever stream is drained first.
func TestDivertedKeepsCartOrder(t *testing.T) {
	t.Parallel()
	for name, routes := range map[string][]func(*testkit.Fixture){
		"diverted": {restore, divert},
		"restored": {divert, restore},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := testkit.New(t, lanes.Normal)
			b.Stock("shoe", 2)
			lane := b.Lane(queues.LaneConfig{ServeFor: 20 * time.Millisecond})
			routes[0](b)
			early := b.Submit("a", "shoe", 2)
			routes[1](b)
			// The mark of the later stream has passed the early request.
			b.Exec(`UPDATE lane_slots SET low_water = $1 WHERE lane = 'normal' AND slot = $2`, early.Sequence, diverted-early.Slot)
			late, other := b.Submit("a", "shoe", 1), b.Submit("b", "shoe", 1)
			if early.Slot == late.Slot || other.Slot != late.Slot {
				t.Fatalf("streams %d, %d and %d", early.Slot, late.Slot, other.Slot)
			}
			b.Exec(`UPDATE reservation_requests SET quantity = 3 WHERE request_id = $1`, other.RequestID) // rejected, whenever it is decided
			if _, err := lane.Serve(t.Context(), late.Slot); err != nil {
				t.Fatal(err)
			}
			b.Want(late, requests.Queued, "")
			b.Want(other, requests.Failed, requests.OutOfStock)
			b.Tick(lane)
			b.Want(early, requests.Done, "")
			b.Want(late, requests.Failed, requests.OutOfStock)
			b.CheckInvariants()
		})
	}
}

// Once a tenant is diverted, its neighbours wait neither behind its requests
// nor for its drains. All requests are decided.
func TestDivertedLeavesNeighboursAlone(t *testing.T) {
	t.Parallel()
	const flood = 300
	b := testkit.New(t, lanes.Normal)
	b.Stock("shoe", flood)
	divert(b)
	for i := range flood {
		b.Submit(fmt.Sprint("cart-", i), "shoe", 1)
	}
	flooding := b.Tenant
	b.Tenant = uuid.New()
	b.Stock("shoe", 1)
	neighbour := b.Submit("a", "shoe", 1)

	lane := b.Lane(queues.LaneConfig{Concurrency: 1, ServeFor: time.Hour})
	stock := b.Lock(`SELECT FROM inventory_stocks WHERE tenant_id = $1 FOR UPDATE`, flooding) // its drain waits for this lock, after some tries
	busy := make(chan error, 1)
	go func() { _, err := lane.Serve(context.WithoutCancel(t.Context()), diverted); busy <- err }()
	b.Blocked()
	if report, err := lane.Serve(t.Context(), shared); err != nil || report.Claimed != 1 {
		t.Errorf("claimed %d, %v, want the neighbour's one", report.Claimed, err)
	}
	b.Want(neighbour, requests.Done, "")
	if n := b.Int(`SELECT count(*) FROM reservation_requests WHERE status = 'queued'`); n != flood {
		t.Errorf("%d wait, want %d", n, flood)
	}
	stock.Release()
	if err := <-busy; err != nil {
		t.Error(err)
	}
	b.Tick(lane)
	if n := b.Int(`SELECT count(*) FROM reservation_requests WHERE status = 'queued'`); n != 0 {
		t.Errorf("%d are left", n)
	}
	b.CheckInvariants()
}

// When a variant moves to the hot lane, its requests move with it, from every
// stream.
func TestPinnedOutOfBothStreams(t *testing.T) {
	t.Parallel()
	b := testkit.New(t, lanes.Normal)
	b.Stock("shoe", 3)
	divert(b)
	first := b.Submit("a", "shoe", 1)
	restore(b)
	second := b.Submit("b", "shoe", 2)
	b.Pin("shoe")
	third := b.Submit("c", "shoe", 1)
	if report := b.Tick(b.Lane(queues.LaneConfig{})); report.Claimed != 0 {
		t.Errorf("the normal lane claimed %d requests of a variant on its way out", report.Claimed)
	}
	lane := b.HotLane(queues.LaneConfig{})
	b.Tick(lane)
	b.Want(first, requests.Done, "")
	b.Want(second, requests.Done, "")
	b.Want(third, requests.Failed, requests.OutOfStock)
	b.Until("the move is over", func() bool {
		b.Tick(lane)
		return b.Int(`SELECT count(*) FROM hot_variants WHERE state = 'hot'`) > 0
	})
	b.CheckInvariants()
}
