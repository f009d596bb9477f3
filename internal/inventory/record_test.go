package inventory_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/internal/inventory"
	"github.com/holdfast/holdfast/internal/reservationrows"
	"github.com/holdfast/holdfast/reservations"
)

// decideAll decides the requests together, as a drain does.
func (c *carts) decideAll(requests ...inventory.HoldRequest) []inventory.Outcome {
	c.t.Helper()
	var outcomes []inventory.Outcome
	c.must(c.in(func(tx pgx.Tx) error {
		holding, err := inventory.HoldTx(c.t.Context(), tx, requests, inventory.Terms{TTL: holdTTL, LifetimeMax: lifetimeMax})
		if err != nil {
			return err
		}
		outcomes = holding.Outcomes
		b := &pgx.Batch{}
		holding.Queue(b)
		return tx.SendBatch(c.t.Context(), b).Close()
	}))
	return outcomes
}

// record returns the actions on a variant in the order of the audit ids, each
// with its units.
func (c *carts) record(variant string) []string {
	c.t.Helper()
	rows, err := c.db.Query(c.t.Context(), `SELECT substr(action, length('reservation.') + 1) || ' ' || quantity
		FROM audit_log WHERE tenant_id = $1 AND resource_key = $2 ORDER BY audit_id`, c.tenant, variant)
	c.must(err)
	actions, err := pgx.CollectRows(rows, pgx.RowTo[string])
	c.must(err)
	return actions
}

// The record of a changed quantity has the release first, then the hold, even
// for holds of the same batch. The expiries of a batch come before all other
// rows.
func TestReplacedIsRecordedFirst(t *testing.T) {
	t.Parallel()
	c := newCarts(t)
	c.stock("shoe", 5)
	c.lapse(c.hold("old", "shoe", 1))
	first := c.hold("a", "shoe", 3)
	if diff := cmp.Diff([]inventory.Outcome{inventory.Granted, inventory.Granted, inventory.Granted},
		c.decideAll(c.set("a", "shoe", 4), c.add("b", "shoe", 1), c.set("a", "shoe", 2))); diff != "" {
		t.Fatalf("outcomes (-want +got):\n%s", diff)
	}
	c.wantHold(first, reservations.Released, reservationrows.Replaced)
	want := []string{"held 1", "held 3", "expired 1", "released 3", "held 4", "held 1", "released 4", "held 2"}
	if diff := cmp.Diff(want, c.record("shoe")); diff != "" {
		t.Errorf("record (-want +got):\n%s", diff)
	}
	c.wantStock("shoe", 5, 3)
	c.sound()
}

// A reader that sums the record in its order never counts more units than the
// stock, whatever the mix of changes.
func TestRecordNeverShowsMoreThanStock(t *testing.T) {
	t.Parallel()
	c := newCarts(t)
	c.hurry()
	const stock = 12
	c.stock("shoe", stock)
	random := rand.New(rand.NewPCG(7, 11))
	cart := func() string { return fmt.Sprint("cart-", random.IntN(4)) }
	for range 60 {
		var requests []inventory.HoldRequest
		for range 1 + random.IntN(6) {
			request := c.set
			if random.IntN(4) == 0 {
				request = c.add
			}
			requests = append(requests, request(cart(), "shoe", 1+random.Int64N(5)))
		}
		outcomes := c.decideAll(requests...)
		switch i := random.IntN(len(requests)); random.IntN(4) {
		case 0:
			_, err := c.release(cart(), "shoe", reservations.CartRemoved)
			c.must(err)
		case 1:
			if outcomes[i] == inventory.Granted {
				c.exec(`UPDATE reservations SET held_at = held_at - interval '1 day', first_held_at = first_held_at - interval '1 day',
					expires_at = clock_timestamp() WHERE reservation_id = $1 AND status = 'held'`, requests[i].RequestID)
			}
		}
	}
	held, full := int64(0), 0
	for i, step := range c.record("shoe") {
		var action string
		var units int64
		_, err := fmt.Sscan(step, &action, &units)
		c.must(err)
		if action == "held" {
			held += units
		} else {
			held -= units
		}
		if held < 0 || held > stock {
			t.Fatalf("after %d rows of the record %d units of %d are held", i+1, held, stock)
		}
		if held == stock {
			full++
		}
	}
	if full == 0 {
		t.Error("the variant never sold out")
	}
	c.sound()
}
