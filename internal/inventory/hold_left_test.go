package inventory_test

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/internal/inventory"
	"github.com/holdfast/holdfast/internal/reservationrows"
	"github.com/holdfast/holdfast/reservations"
)

// A hold of a cart that another transaction has locked is not waited for. Only
// the requests whose outcome depends on it are left: those of the cart for a
// variant with a limit, and those that change its quantity.
func TestLockedHoldIsLeft(t *testing.T) {
	t.Parallel()
	type verb = func(context.Context, pgx.Tx, []inventory.HoldRequest, inventory.Terms) (*inventory.Holding, error)
	for name, hold := range map[string]verb{"HoldTx": inventory.HoldTx, "HoldUnlockedTx": inventory.HoldUnlockedTx} {
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
				inventory.LockedHold, inventory.Granted, inventory.LockedHold, inventory.LockedHold, inventory.Granted, inventory.LockedHold,
				inventory.Untracked, inventory.ExpiredInQueue,
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

// lockDue makes a due hold of the cart for one unit, and locks it in another
// session.
func (c *carts) lockDue(cart, variant string) *session {
	c.t.Helper()
	id := c.hold(cart, variant, 1)
	c.lapse(id)
	s := c.session()
	s.exec(`SELECT FROM reservations WHERE reservation_id = $1 FOR UPDATE`, id)
	return s
}

// A locked due hold is not waited for. Requests that fit without its unit are
// granted, in their order; the first one that does not fit is left, and so is
// the next request of its cart. Later ones are rejected: the unit is one. Other
// due holds are expired as usual.
func TestLockedDueHoldIsLeft(t *testing.T) {
	t.Parallel()
	type verb = func(context.Context, pgx.Tx, []inventory.HoldRequest, inventory.Terms) (*inventory.Holding, error)
	for name, hold := range map[string]verb{"HoldTx": inventory.HoldTx, "HoldUnlockedTx": inventory.HoldUnlockedTx, "HoldEndingDueTx": inventory.HoldEndingDueTx} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCarts(t)
			c.stock("shoe", 4)
			expired := c.hold("free", "shoe", 2)
			c.lapse(expired)
			other := c.lockDue("stuck", "shoe")
			decide := func(requests ...inventory.HoldRequest) (outcomes []inventory.Outcome) {
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
				return outcomes
			}
			waits, next := c.add("d", "shoe", 1), c.add("d", "shoe", 1)
			got := decide(c.add("a", "shoe", 2), c.add("b", "shoe", 3), c.add("c", "shoe", 1), waits, next, c.add("e", "shoe", 1))
			want := []inventory.Outcome{inventory.Granted, inventory.OutOfStock, inventory.Granted, inventory.LockedDue, inventory.LockedDue, inventory.OutOfStock}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("outcomes (-want +got):\n%s", diff)
			}
			c.wantHold(expired, reservations.Expired, reservationrows.TTL)
			c.wantStock("shoe", 4, 4)
			other.end(nil)
			if diff := cmp.Diff([]inventory.Outcome{inventory.Granted, inventory.OutOfStock}, decide(waits, next)); diff != "" {
				t.Errorf("outcomes once the lock is free (-want +got):\n%s", diff)
			}
			c.sound()
		})
	}
}

// ExpireVariant and a sweep leave a locked due hold, and expire the others of
// its variant. They wait for nothing: the lock is there until they have ended.
func TestLockedDueHoldStopsNoExpiry(t *testing.T) {
	t.Parallel()
	for name, expire := range map[string]func(c *carts) (int, error){
		"variant": func(c *carts) (int, error) {
			return inventory.ExpireVariant(t.Context(), c.db, inventory.Ref{TenantID: c.tenant, VariantID: "shoe"}, 2)
		},
		"sweep": func(c *carts) (int, error) {
			s, err := inventory.ExpireDue(t.Context(), c.db, 10)
			return s.Expired, err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCarts(t)
			c.stock("shoe", 9)
			stuck := c.lockDue("stuck", "shoe")
			var others []uuid.UUID
			for range 2 {
				id := c.hold("a", "shoe", 1)
				c.lapse(id)
				others = append(others, id)
			}
			if n, err := expire(c); err != nil || n != 2 {
				t.Errorf("%d expired, %v, want the 2 that are not locked", n, err)
			}
			for _, id := range others {
				c.wantHold(id, reservations.Expired, reservationrows.TTL)
			}
			c.wantStock("shoe", 9, 1)
			stuck.end(nil)
			if n, err := expire(c); err != nil || n != 1 {
				t.Errorf("%d expired, %v, want the one that was locked", n, err)
			}
			c.sound()
		})
	}
}

// Other transactions have locked as many holds with one deadline as a batch
// reads. The pass goes on with the holds behind them.
func TestSweepGoesOnBehindLockedHolds(t *testing.T) {
	t.Parallel()
	c := newCarts(t)
	c.stock("shoe", 9)
	c.stock("sock", 9)
	for range 3 {
		c.lapse(c.hold("stuck", "shoe", 1))
	}
	c.exec(`UPDATE reservations SET expires_at = (SELECT min(expires_at) - interval '1 hour' FROM reservations)`)
	stuck := c.session()
	stuck.exec(`SELECT FROM reservations FOR UPDATE`)
	free := c.hold("free", "sock", 1)
	c.lapse(free)
	expiry, expired := inventory.NewExpiry(c.db), 0
	for range 6 {
		s, err := expiry.Next(t.Context(), 3)
		c.must(err)
		expired += s.Expired
	}
	if expired != 1 {
		t.Errorf("%d expired, want the one that is not locked", expired)
	}
	c.wantHold(free, reservations.Expired, reservationrows.TTL)
	stuck.end(nil)
	if s := c.sweep(); s.Expired != 3 {
		t.Errorf("%d expired once the locks are gone, want 3", s.Expired)
	}
	c.sound()
}
