package queues_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/audit"
	"github.com/holdfast/holdfast/internal/lanes"
	"github.com/holdfast/holdfast/internal/queues"
	"github.com/holdfast/holdfast/internal/testkit"
	"github.com/holdfast/holdfast/requests"
)

// busyPolicy is the hot lane's policy, which calls busy when it finds the slot
// leased.
type busyPolicy struct {
	queues.ClaimPolicy
	busy func()
}

func (p *busyPolicy) AcquireTx(ctx context.Context, tx pgx.Tx, stream lanes.Stream) (queues.Lease, error) {
	lease, err := p.ClaimPolicy.AcquireTx(ctx, tx, stream)
	if errors.Is(err, lanes.ErrBusy) {
		p.busy()
	}
	return lease, err
}

// A tick finds a queued request behind many that are finished above the mark, as
// direct decisions leave them. Once the mark has passed them, it finds no work.
func TestTickBehindFinishedRequests(t *testing.T) {
	t.Parallel()
	for _, name := range lanes.All() {
		b := testkit.New(t, name)
		b.Stock("shoe", 100)
		const decideSQL = `UPDATE reservation_requests SET status = 'failed', reason = 'out_of_stock' WHERE status = 'queued'`
		for range 60 {
			b.Submit("cart", "shoe", 1)
		}
		b.Exec(decideSQL)
		r := b.Submit("cart", "shoe", 1)
		lane := b.Lane(queues.LaneConfig{})
		b.Tick(lane)
		if b.Get(r).Status != requests.Done {
			t.Errorf("%s: the request behind the finished ones is %s", name, b.Get(r).Status)
		}
		for range 60 {
			b.Submit("cart", "shoe", 1)
		}
		b.Exec(decideSQL)
		b.Tick(lane)
		if n := b.Int(`SELECT count(*) FROM lane_slots WHERE low_water = (SELECT max(sequence) FROM reservation_requests)`); n != 1 {
			t.Errorf("%s: the mark is below finished requests", name)
		}
	}
}

// A process that is woken for a slot finds it leased. It tries again soon,
// because perhaps no other worker was notified (this one drained the slot
// last), or the transaction with the lease only moves the mark. No tick decides
// anything.
func TestBusySlotIsTriedAgain(t *testing.T) {
	t.Parallel()
	for name, drained := range map[string]bool{"drained last": true, "never drained": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := testkit.New(t, lanes.Hot)
			policy := &busyPolicy{ClaimPolicy: b.Lane(queues.LaneConfig{}).Policy()}
			b.Stock("shoe", 10)
			b.Tick(b.Lane(queues.LaneConfig{}))
			other := b.Begin()
			policy.busy = sync.OnceFunc(func() {
				if err := other.Rollback(t.Context()); err != nil {
					t.Error(err)
				}
			})
			lane, err := queues.NewLane(b.DB, discard, lanes.Hot, policy, queues.LaneConfig{TickEvery: time.Hour})
			b.Must(err)
			b.Run(lane)
			slot := int16(b.Int(`SELECT slot FROM hot_variants`))
			if drained {
				first := b.Submit("first", "shoe", 1)
				lane.Wake(slot)
				b.Until("the process has drained the slot", func() bool { return b.Get(first).Status == requests.Done })
			}
			b.Until("the process has ended its last drain", func() bool {
				_, err := lanes.LeaseTx(t.Context(), other, lanes.Stream{Lane: lanes.Hot, Slot: slot}, nil)
				if err != nil && !errors.Is(err, lanes.ErrBusy) {
					t.Fatal(err)
				}
				return err == nil
			})
			second := b.Submit("second", "shoe", 1)
			lane.Wake(slot)
			b.Until("the request is decided", func() bool { return b.Get(second).Status == requests.Done })
			b.CheckInvariants()
		})
	}
}

// If there are fewer permits than slots with work, tenants take turns. A tenant
// with a single hot variant is served while another one has many, and each slot
// has more work than one drain does.
func TestSlotsOfTenantsTakeTurns(t *testing.T) {
	t.Parallel()
	const variants, each, own = 50, 4, 5
	crowd := testkit.New(t, lanes.Hot)
	lone := testkit.On(t, crowd.DB, lanes.Hot)
	lane := crowd.Lane(queues.LaneConfig{TickEvery: time.Hour, Concurrency: 1, DrainConfig: queues.DrainConfig{Batch: 1}})
	crowd.Run(lane)
	slots := make(map[string]int16)
	admit := func(b *testkit.Fixture, n int, name string) {
		for range n {
			slots[name] = b.Submit("cart", name, 1).Slot
		}
	}
	names := make([]string, variants)
	for i := range names {
		names[i] = "v" + uuid.NewString()
		crowd.Stock(names[i], 1000)
		admit(crowd, 1, names[i])
	}
	lone.Stock("shoe", 1000)
	admit(lone, 1, "shoe")
	wake := func() {
		for _, name := range names {
			lane.Wake(slots[name])
		}
		lane.Wake(slots["shoe"]) // woken last
	}
	wake()
	decided := func(n int64) func() bool {
		return func() bool {
			return crowd.Int(`SELECT count(*) FROM reservations`) == n && crowd.Int(`SELECT count(*) FROM hot_variants WHERE state <> 'hot'`) == 0
		}
	}
	crowd.Until("the lane has served each slot", func() bool { wake(); return decided(variants + 1)() })

	pause := func(paused bool) {
		if err := lanes.Control(t.Context(), crowd.DB, lanes.Hot, lanes.Patch{Paused: &paused}, audit.Origin{}); err != nil {
			t.Fatal(err)
		}
	}
	pause(true)
	for _, name := range names {
		admit(crowd, each, name)
	}
	admit(lone, own, "shoe")
	pause(false)
	wake()
	crowd.Until("all are decided", decided((variants+1)+variants*each+own))
	const beforeSQL = `
		SELECT count(*)
		FROM audit_log a
		WHERE a.tenant_id = $1 AND a.action = 'reservation.held'
		  AND a.audit_id < (SELECT max(audit_id) FROM audit_log WHERE tenant_id = $2 AND action = 'reservation.held')`
	// The slot of the lone tenant is woken last.
	if n := crowd.Int(beforeSQL, crowd.Tenant, lone.Tenant) - variants; n > variants {
		t.Errorf("%d of the crowd's %d requests were decided before the lone tenant's last one, want at most one per variant", n, variants*each)
	}
	crowd.CheckInvariants()
}
