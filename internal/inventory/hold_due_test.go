package inventory_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/internal/inventory"
	"github.com/holdfast/holdfast/internal/reservationrows"
	"github.com/holdfast/holdfast/reservations"
)

// decideDue decides the requests in one transaction, which ends due holds too.
// It returns the outcomes and the number of holds that it ended.
func (c *carts) decideDue(requests ...inventory.HoldRequest) (outcomes []inventory.Outcome, expired int) {
	c.t.Helper()
	var holding *inventory.Holding
	c.must(c.in(func(tx pgx.Tx) (err error) {
		if holding, err = inventory.HoldEndingDueTx(c.t.Context(), tx, requests, inventory.Terms{TTL: holdTTL, LifetimeMax: lifetimeMax}); err != nil {
			return err
		}
		b := &pgx.Batch{}
		holding.Queue(b)
		return tx.SendBatch(c.t.Context(), b).Close()
	}))
	return holding.Outcomes, holding.Expired()
}

// lapsed makes a hold that has been due for the given time.
func (c *carts) lapsed(variant string, quantity int64, by time.Duration) uuid.UUID {
	c.t.Helper()
	id := c.hold("old", variant, quantity)
	c.exec(`UPDATE reservations SET held_at = held_at - interval '1 day', first_held_at = first_held_at - interval '1 day',
			expires_at = clock_timestamp() - $2::interval
		WHERE reservation_id = $1`, id, by)
	return id
}

// Due holds of the requested variants end although no request needs their
// units. Those of other variants do not. The record has the endings first.
func TestHoldEndingDueEndsWhatIsDue(t *testing.T) {
	t.Parallel()
	c := newCarts(t)
	for _, variant := range []string{"shoe", "sock", "hat"} {
		c.stock(variant, 100)
	}
	shoe, sock, hat := c.lapsed("shoe", 2, time.Minute), c.lapsed("sock", 3, time.Minute), c.lapsed("hat", 1, time.Minute)
	live := c.hold("b", "shoe", 1)
	request := c.add("new", "shoe", 1)
	outcomes, expired := c.decideDue(request, c.add("new", "sock", 1))
	if diff := cmp.Diff([]inventory.Outcome{inventory.Granted, inventory.Granted}, outcomes); diff != "" || expired != 2 {
		t.Errorf("%d expired, outcomes (-want +got):\n%s", expired, diff)
	}
	c.wantHold(shoe, reservations.Expired, reservationrows.TTL)
	c.wantHold(sock, reservations.Expired, reservationrows.TTL)
	c.wantHold(hat, reservations.Held, "")
	c.wantHold(live, reservations.Held, "")
	c.wantStock("shoe", 100, 2)
	c.wantStock("sock", 100, 1)
	if n := c.int(`
		SELECT count(*)
		FROM audit_log ending, audit_log made
		WHERE ending.target_id = $1 AND ending.action = 'reservation.expired' AND made.target_id = $2
		  AND ending.audit_id < made.audit_id`, shoe, request.RequestID); n != 1 {
		t.Error("the record has the hold before the ending that precedes it")
	}
	c.sound()
}

// Units of due holds count as available, whether the transaction ends those
// holds anyway or needs more of them.
func TestHoldEndingDueDecidesAsHoldTx(t *testing.T) {
	t.Parallel()
	c := newCarts(t)
	c.stock("shoe", 1000)
	c.exec(`UPDATE inventory_stocks SET reserved = 1000`)
	c.exec(`INSERT INTO reservations
			(tenant_id, reservation_id, resource_kind, resource_key, holder_id, quantity, first_held_at, held_at, expires_at)
		SELECT $1, gen_random_uuid(), $2, 'shoe', 'cart-' || n, 1, at, at, at + n * interval '1 millisecond'
		FROM generate_series(1, 1000) AS n, (SELECT clock_timestamp() - interval '1 hour' AS at) AS past`, c.tenant, inventory.Kind)
	requests := []inventory.HoldRequest{c.add("a", "shoe", 700), c.add("b", "shoe", 301), c.add("c", "shoe", 300), c.add("d", "shoe", 1)}
	outcomes, expired := c.decideDue(requests...)
	want := []inventory.Outcome{inventory.Granted, inventory.OutOfStock, inventory.Granted, inventory.OutOfStock}
	if diff := cmp.Diff(want, outcomes); diff != "" || expired != 1000 {
		t.Errorf("%d expired, want 1000; outcomes (-want +got):\n%s", expired, diff)
	}
	c.wantStock("shoe", 1000, 1000)
	if n := c.int(`SELECT count(*) FROM reservations WHERE status = 'held'`); n != 2 {
		t.Errorf("%d are held, want 2", n)
	}
}

// One transaction ends a bounded number of due holds, the longest due first,
// and the next one continues after them.
func TestHoldEndingDueGoesOn(t *testing.T) {
	t.Parallel()
	c := newCarts(t)
	c.stock("shoe", 5000)
	c.exec(`UPDATE inventory_stocks SET reserved = 1200`)
	c.exec(`INSERT INTO reservations
			(tenant_id, reservation_id, resource_kind, resource_key, holder_id, quantity, first_held_at, held_at, expires_at)
		SELECT $1, gen_random_uuid(), $2, 'shoe', 'cart-' || n, 1, at, at, at + n * interval '1 millisecond'
		FROM generate_series(1, 1200) AS n, (SELECT clock_timestamp() - interval '1 hour' AS at) AS past`, c.tenant, inventory.Kind)
	for i, want := range []int{500, 500, 200, 0} {
		if _, expired := c.decideDue(c.add("a", "shoe", 1)); expired != want {
			t.Errorf("transaction %d ended %d, want %d", i, expired, want)
		}
		if n := c.int(`
			SELECT count(*)
			FROM reservations ended, reservations due
			WHERE ended.status = 'expired' AND due.status = 'held' AND due.expires_at < ended.expires_at`); n != 0 {
			t.Errorf("transaction %d ended holds before others that were due longer", i)
		}
	}
	c.wantStock("shoe", 5000, 4)
}

// A due hold that another transaction has locked is skipped without a wait. So
// are those of a variant whose counters do not cover them: its requests are
// decided, and a sweep reports it.
func TestHoldEndingDueLeavesWhatItCannotEnd(t *testing.T) {
	t.Parallel()
	c := newCarts(t)
	c.stock("shoe", 100)
	c.stock("broken", 100)
	locked, free, broken := c.lapsed("shoe", 1, time.Minute), c.lapsed("shoe", 2, time.Second), c.lapsed("broken", 5, time.Minute)
	c.exec(`UPDATE inventory_stocks SET reserved = 4 WHERE variant_id = 'broken'`)
	s := c.session()
	s.exec(`SELECT FROM reservations WHERE reservation_id = $1 FOR NO KEY UPDATE`, locked)
	outcomes, expired := c.decideDue(c.add("new", "shoe", 1), c.add("new", "broken", 1))
	if diff := cmp.Diff([]inventory.Outcome{inventory.Granted, inventory.Granted}, outcomes); diff != "" || expired != 1 {
		t.Errorf("%d expired, outcomes (-want +got):\n%s", expired, diff)
	}
	c.wantHold(free, reservations.Expired, reservationrows.TTL)
	c.wantHold(broken, reservations.Held, "")
	s.end(nil)
	c.wantHold(locked, reservations.Held, "")
}
