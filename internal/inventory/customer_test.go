package inventory_test

import (
	"testing"

	"github.com/holdfast/holdfast/audit"
	"github.com/holdfast/holdfast/internal/inventory"
)

// limit sets how many units a customer may have of a variant.
func (c *carts) limit(variant string, most, period int32) {
	c.t.Helper()
	patch := inventory.StockPatch{Stock: new(int64(100)), Sale: &inventory.Sale{MaxPerCustomer: &most, CustomerPeriodSeconds: &period}}
	_, err := inventory.Set(c.t.Context(), c.db, c.tenant, variant, patch, audit.Origin{Actor: shopper.Actor, CorrelationID: "limit"})
	c.must(err)
}

func (c *carts) want(request inventory.HoldRequest, customer string, want inventory.Outcome) {
	c.t.Helper()
	request.CustomerID = customer
	if got := c.decide(request); got != want {
		c.t.Errorf("%d units of cart %s for customer %q are %s, want %s", request.Quantity, request.CartID, customer, got, want)
	}
}

// A change of quantity makes the units those of its customer.
func TestCustomerTakesOverCart(t *testing.T) {
	t.Parallel()
	c := newCarts(t)
	c.limit("shirt", 2, 0)
	c.want(c.add("a", "shirt", 2), "ann", inventory.Granted)
	c.want(c.add("b", "shirt", 2), "", inventory.Granted)
	c.want(c.set("b", "shirt", 2), "ann", inventory.LimitExceeded)
	c.want(c.set("b", "shirt", 1), "ann", inventory.LimitExceeded)
	c.want(c.set("b", "shirt", 1), "", inventory.Granted)
	c.sound()
}

// A hold from before the period is not a base from which a change of quantity
// can start.
func TestCustomerRaisesOldHold(t *testing.T) {
	t.Parallel()
	c := newCarts(t)
	c.limit("shirt", 2, 60)
	first := c.add("a", "shirt", 2)
	c.want(first, "ann", inventory.Granted)
	c.exec(`UPDATE reservations SET first_held_at = first_held_at - interval '2 min', held_at = held_at - interval '2 min' WHERE reservation_id = $1`, first.RequestID)
	for _, quantity := range []int64{4, 6, 8} {
		c.want(c.set("a", "shirt", quantity), "ann", inventory.LimitExceeded)
	}
	c.want(c.set("a", "shirt", 2), "ann", inventory.Granted)
	c.want(c.add("b", "shirt", 1), "ann", inventory.LimitExceeded)
	if n := c.int(`SELECT sum(quantity) FROM reservations WHERE status = 'held'`); n != 2 {
		t.Errorf("the customer holds %d units, want 2", n)
	}
}

// A hold whose extension is not committed yet counts, although its deadline is
// past for all other transactions.
func TestCustomerExtends(t *testing.T) {
	t.Parallel()
	for _, customer := range []string{"ann", ""} {
		c := newCarts(t)
		c.limit("shirt", 2, 0)
		held := c.add("a", "shirt", 2)
		c.want(held, customer, inventory.Granted)
		c.lapse(held.RequestID)
		tx, err := c.db.Begin(t.Context())
		c.must(err)
		_, err = tx.Exec(t.Context(), `UPDATE reservations SET expires_at = clock_timestamp() + interval '10 min' WHERE reservation_id = $1`, held.RequestID)
		c.must(err)
		c.want(c.add("a", "shirt", 1), customer, inventory.LimitExceeded)
		c.must(tx.Rollback(t.Context()))
		c.want(c.add("a", "shirt", 1), customer, inventory.Granted)
	}
}
