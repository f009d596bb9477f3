package inventory_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/internal/inventory"
	"github.com/holdfast/holdfast/internal/unitrows"
	"github.com/holdfast/holdfast/reservations"
)

// seats adds n units to the block: s1, s2 and so on.
func (c *carts) seats(block string, n int) {
	c.t.Helper()
	units := make([]inventory.NewUnit, n)
	for i := range units {
		units[i].UnitID = fmt.Sprintf("s%d", i+1)
	}
	c.must(c.in(func(tx pgx.Tx) error {
		_, err := inventory.AddUnitsTx(c.t.Context(), tx, c.tenant, block, units, shopper)
		return err
	}))
}

// wantUnits checks the statuses of a block's units, one letter for each: active,
// pending or inactive.
func (c *carts) wantUnits(block, want string) {
	c.t.Helper()
	units, err := unitrows.List(c.t.Context(), c.db, unitrows.Block{TenantID: c.tenant, Block: block}, "", 1000)
	c.must(err)
	letters := map[unitrows.Status]byte{unitrows.Active: 'a', unitrows.PendingInactive: 'p', unitrows.Inactive: 'i'}
	var got []byte
	for _, u := range units {
		got = append(got, letters[u.Status])
	}
	if string(got) != want {
		c.t.Errorf("block %s has units %s, want %s", block, got, want)
	}
}

// The units of a hold follow it through its life: a hold takes them, a release
// and an expiry give them back, a commit takes them for good.
func TestUnitsFollowTheirHold(t *testing.T) {
	t.Parallel()
	c := newCarts(t)
	c.seats("hall", 6)
	named := c.add("a", "hall", 2)
	named.UnitIDs = []string{"s5", "s2"}
	neighbours := c.add("b", "hall", 2)
	neighbours.Contiguous = true
	anyTwo := c.add("c", "hall", 2)
	for _, request := range []inventory.HoldRequest{named, neighbours, anyTwo} {
		if outcome := c.decide(request); outcome != inventory.Granted {
			t.Fatalf("%+v: %s", request, outcome)
		}
	}
	if outcome := c.decide(c.add("d", "hall", 1)); outcome != inventory.OutOfStock {
		t.Errorf("a seventh unit of six: %s", outcome)
	}
	for request, want := range map[*inventory.HoldRequest][]string{&named: {"s2", "s5"}, &neighbours: {"s3", "s4"}, &anyTwo: {"s1", "s6"}} {
		if got := c.get(request.RequestID).UnitIDs; !slices.Equal(got, want) {
			t.Errorf("units %v, want %v", got, want)
		}
	}
	c.wantUnits("hall", "pppppp")
	if _, err := c.checkout("a"); err != nil {
		t.Fatal(err)
	}
	if _, err := c.release("b", "", reservations.CartRemoved); err != nil {
		t.Fatal(err)
	}
	c.lapse(anyTwo.RequestID)
	c.wantUnits("hall", "piaaip")
	c.wantStock("hall", 4, 2)
	again := c.add("e", "hall", 2)
	again.UnitIDs = []string{"s1", "s6"}
	if outcome := c.decide(again); outcome != inventory.Granted {
		t.Errorf("units of a due hold: %s", outcome)
	}
	c.wantUnits("hall", "piaaip")
	c.wantStock("hall", 4, 2)
	if outcome := c.decide(c.set("e", "hall", 3)); outcome != inventory.Granted {
		t.Errorf("one more unit: %s", outcome)
	}
	c.wantUnits("hall", "pipaip")
	if outcome := c.decide(c.set("e", "hall", 1)); outcome != inventory.Granted {
		t.Errorf("fewer units: %s", outcome)
	}
	c.wantUnits("hall", "piaaia")
	c.sound()
}

// A due hold whose row another transaction has locked does not make the normal
// lane wait. Who wants its units is decided later, and gets them.
func TestUnitsOfALockedDueHold(t *testing.T) {
	t.Parallel()
	c := newCarts(t)
	c.seats("hall", 2)
	late := c.add("a", "hall", 1)
	if outcome := c.decide(late); outcome != inventory.Granted {
		t.Fatal(outcome)
	}
	c.lapse(late.RequestID)
	rival, err := c.db.Begin(t.Context())
	c.must(err)
	_, err = rival.Exec(t.Context(), `SELECT FROM reservations WHERE reservation_id = $1 FOR UPDATE`, late.RequestID)
	c.must(err)
	unlocked := func(request inventory.HoldRequest) (outcome inventory.Outcome) {
		c.must(c.in(func(tx pgx.Tx) error {
			holding, err := inventory.HoldUnlockedTx(t.Context(), tx, []inventory.HoldRequest{request}, inventory.Terms{TTL: time.Minute, LifetimeMax: lifetimeMax})
			if err != nil {
				return err
			}
			outcome = holding.Outcomes[0]
			b := &pgx.Batch{}
			holding.Queue(b)
			return tx.SendBatch(t.Context(), b).Close()
		}))
		return outcome
	}
	named := c.add("b", "hall", 1)
	named.UnitIDs = []string{"s1"}
	if outcome := unlocked(named); outcome != inventory.LockedDue {
		t.Errorf("the unit of a locked due hold: %s", outcome)
	}
	if outcome := unlocked(c.add("c", "hall", 1)); outcome != inventory.Granted {
		t.Errorf("another unit of the block: %s", outcome)
	}
	c.must(rival.Rollback(t.Context()))
	if outcome := unlocked(named); outcome != inventory.Granted {
		t.Errorf("the unit once the lock is free: %s", outcome)
	}
	c.sound()
}
