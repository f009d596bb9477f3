package inventory_test

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/inventory"
)

// A hold of a cart that another transaction has locked is not waited for. Only
// the requests whose outcome depends on it are left: those of the cart for a
// variant with a limit, and those that change its quantity.
func TestLockedHoldIsLeft(t *testing.T) {
	t.Parallel()
	type verb = func(context.Context, pgx.Tx, []inventory.HoldRequest, inventory.Terms) (*inventory.Holding, error)
	for name, hold := range map[string]verb{"HoldStockTx": inventory.HoldStockTx, "HoldUnlockedTx": inventory.HoldUnlockedTx} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCarts(t)
			for _, variant := range []string{"limited", "shoe", "book"} {
				c.stock(variant, 100)
				c.hold("a", variant, 1)
			}
			c.exec(`UPDATE inventory_stocks SET max_per_cart = 5 WHERE variant_id = 'limited'`)
			c.exec(`UPDATE inventory_stocks SET tracked = false WHERE variant_id = 'book'`)
			other, err := c.db.Begin(t.Context())
			c.must(err)
			defer func() { _ = other.Rollback(context.WithoutCancel(t.Context())) }()
			_, err = other.Exec(t.Context(), `SELECT FROM reservations WHERE tenant_id = $1 FOR UPDATE`, c.tenant)
			c.must(err)
			requests := []inventory.HoldRequest{
				c.add("a", "limited", 1), c.add("b", "limited", 1), c.set("a", "shoe", 2), c.add("a", "shoe", 1), c.set("b", "shoe", 2), c.set("a", "book", 3), c.set("b", "book", 3),
			}
			stale := c.set("a", "shoe", 4)
			stale.Stale = true
			requests = append(requests, stale)
			var outcomes []inventory.Outcome
			c.must(c.in(func(tx pgx.Tx) error {
				holding, err := hold(t.Context(), tx, requests, inventory.Terms{TTL: holdTTL, LifetimeMax: lifetimeMax})
				if err != nil {
					return err
				}
				outcomes = holding.Outcomes
				b := &pgx.Batch{}
				holding.Queue(b)
				return tx.SendBatch(t.Context(), b).Close()
			}))
			want := []inventory.Outcome{
				inventory.Locked, inventory.Granted, inventory.Locked, inventory.Locked, inventory.Granted, inventory.Locked, inventory.Untracked,
				inventory.ExpiredInQueue,
			}
			if diff := cmp.Diff(want, outcomes); diff != "" {
				t.Errorf("outcomes (-want +got):\n%s", diff)
			}
			if n := c.int(`SELECT sum(reserved) FROM inventory_stocks`); n != 3+1+2 {
				t.Errorf("reserved %d, want 6", n)
			}
		})
	}
}
