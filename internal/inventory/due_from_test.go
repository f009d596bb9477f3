package inventory_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/internal/inventory"
	"github.com/holdfast/holdfast/reservations"
)

// wantDueFrom fails the test unless the due_from of the variant is the deadline
// of the hold, or infinity for the zero id.
func (c *carts) wantDueFrom(when, variant string, id uuid.UUID) {
	c.t.Helper()
	if n := c.int(`
		SELECT count(*)
		FROM inventory_stocks
		WHERE tenant_id = $1 AND variant_id = $2
		  AND due_from = coalesce((SELECT expires_at FROM reservations WHERE reservation_id = $3), 'infinity')`, c.tenant, variant, id); n != 1 {
		var from string
		c.must(c.db.QueryRow(c.t.Context(), `SELECT due_from::text FROM inventory_stocks WHERE variant_id = $1`, variant).Scan(&from))
		c.t.Errorf("%s: due_from of %s is %s, want the deadline of %s", when, variant, from, id)
	}
}

// holdFor makes a hold that lasts for the given time.
func (c *carts) holdFor(cart, variant string, ttl time.Duration) uuid.UUID {
	c.t.Helper()
	a := c.add(cart, variant, 1)
	c.must(c.in(func(tx pgx.Tx) error {
		holding, err := inventory.HoldTx(c.t.Context(), tx, []inventory.HoldRequest{a}, inventory.Terms{TTL: ttl, LifetimeMax: lifetimeMax})
		if err != nil {
			return err
		}
		b := &pgx.Batch{}
		holding.Queue(b)
		return tx.SendBatch(c.t.Context(), b).Close()
	}))
	return a.RequestID
}

// Each ending of a variant moves its due_from to the first deadline of a hold
// that is held, and a hold with an earlier deadline moves it back. Other
// variants, and kinds with the same key, do not count.
func TestDueFrom(t *testing.T) {
	t.Parallel()
	c := newCarts(t)
	c.stock("shoe", 100)
	c.stock("sock", 100)
	c.exec(`INSERT INTO reservations (tenant_id, reservation_id, resource_kind, resource_key, holder_id, quantity, first_held_at, held_at, expires_at)
		SELECT $1, gen_random_uuid(), 'other', 'shoe', 'cart', 1, at, at, at FROM (SELECT clock_timestamp() - interval '1 hour') AS past (at)`, c.tenant)
	sock := c.holdFor("z", "sock", time.Minute)
	first, second := c.holdFor("a", "shoe", time.Hour), c.holdFor("b", "shoe", 2*time.Hour-time.Second)
	if _, err := c.checkout("a"); err != nil {
		t.Fatal(err)
	}
	c.wantHold(first, reservations.Committed, "")
	c.wantDueFrom("after a checkout", "shoe", second)
	earlier := c.holdFor("c", "shoe", 10*time.Minute)
	c.wantDueFrom("after a hold with an earlier deadline", "shoe", earlier)
	later := c.holdFor("d", "shoe", time.Hour)
	c.wantDueFrom("after a hold with a later deadline", "shoe", earlier)
	for _, cart := range []string{"c", "b", "d"} {
		_, err := c.release(cart, "", reservations.Abandoned)
		c.must(err)
		switch cart {
		case "c":
			c.wantDueFrom("after a release", "shoe", later)
		case "b":
			c.wantDueFrom("after the release of the last deadline", "shoe", later)
		default:
			c.wantDueFrom("with nothing held", "shoe", uuid.Nil)
		}
	}
	if n := c.int(`SELECT count(*) FROM inventory_stocks WHERE variant_id = 'sock' AND due_from = '-infinity'`); n != 1 {
		t.Error("an ending has moved the due_from of another variant")
	}
	if _, err := c.extend("z", time.Minute); err != nil {
		t.Fatal(err)
	}
	c.lapse(sock)
	if s := c.sweep(); s.Expired != 1 {
		t.Errorf("a sweep ended %d, want 1", s.Expired)
	}
	c.wantDueFrom("after a sweep", "sock", uuid.Nil)
	c.exec(`DELETE FROM reservations WHERE resource_kind = 'other'`)
	c.sound()
}

// A due hold is found although thousands ended after the deadlines before it,
// were it made before or after them.
func TestDueFromBeforeWhatHasEnded(t *testing.T) {
	t.Parallel()
	c := newCarts(t)
	c.stock("shoe", 1)
	lost := c.hold("old", "shoe", 1)
	c.lapse(lost)
	for i := range 3 {
		c.exec(`INSERT INTO reservations (tenant_id, reservation_id, resource_kind, resource_key, holder_id, quantity, status, first_held_at, held_at, expires_at, ended_at)
			SELECT $1, gen_random_uuid(), $2, 'shoe', 'cart', 1, 'committed', at, at, at + n / 5000 * interval '1 minute' + interval '1 minute', at
			FROM generate_series(1, 11000) AS n, (SELECT clock_timestamp() - $3 * interval '1 day') AS past (at)`, c.tenant, inventory.Kind, i+1)
	}
	next := c.hold("new", "shoe", 1) // reclaims the unit of the due hold
	c.wantHold(lost, reservations.Expired, "ttl")
	for range 4 { // each ending passes a bounded number
		_, err := c.release("new", "", reservations.Abandoned)
		c.must(err)
		next = c.hold("new", "shoe", 1)
	}
	_, err := c.release("new", "", reservations.Abandoned)
	c.must(err)
	c.wantHold(next, reservations.Released, reservations.Abandoned)
	c.wantDueFrom("after six endings", "shoe", uuid.Nil)
}

// A checkout may shorten the deadlines of holds, to before the due_from of their
// variants.
func TestCheckoutMovesDueFromBack(t *testing.T) {
	t.Parallel()
	c := newCarts(t)
	c.stock("shoe", 10)
	other, held := c.hold("other", "shoe", 1), c.hold("cart", "shoe", 1)
	_, err := c.release("other", "", reservations.Abandoned)
	c.must(err)
	c.wantHold(other, reservations.Released, reservations.Abandoned)
	c.wantDueFrom("before the checkout", "shoe", held)
	checkout := uuid.Must(uuid.NewV7())
	c.must(c.in(func(tx pgx.Tx) error {
		_, err := inventory.LockCartTx(t.Context(), tx, c.tenant, "cart", checkout, time.Minute, shopper)
		return err
	}))
	c.wantDueFrom("in the checkout", "shoe", held)
	if n := c.int(`SELECT count(*) FROM reservations WHERE reservation_id = $1 AND expires_at < clock_timestamp() + interval '2 minutes'`, held); n != 1 {
		t.Error("the checkout has not shortened the deadline")
	}
}

// Whatever order holds are made and ended in, no hold is before the due_from of
// its variant, and every due hold is found.
func TestDueFromAtRandom(t *testing.T) {
	t.Parallel()
	for seed := range uint64(4) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			c := newCarts(t)
			c.stock("shoe", 20)
			random := rand.New(rand.NewPCG(seed, 26))
			for step := range 150 {
				cart := fmt.Sprint("cart-", random.IntN(6))
				switch random.IntN(6) {
				case 0, 1, 2:
					ttl := time.Duration(1+random.IntN(3000)) * time.Millisecond * 5
					a := c.add(cart, "shoe", int64(1+random.IntN(3)))
					c.must(c.in(func(tx pgx.Tx) error {
						holding, err := inventory.HoldEndingDueTx(t.Context(), tx, []inventory.HoldRequest{a}, inventory.Terms{TTL: ttl, LifetimeMax: lifetimeMax})
						if err != nil {
							return err
						}
						b := &pgx.Batch{}
						holding.Queue(b)
						return tx.SendBatch(t.Context(), b).Close()
					}))
				case 3:
					_, _ = c.checkout(cart) // an empty cart, or an expired hold
				case 4:
					_, err := c.release(cart, "", reservations.Abandoned)
					c.must(err)
				default:
					c.sweep()
				}
				if n := c.int(`SELECT count(*) FROM reservations r JOIN inventory_stocks s ON s.variant_id = r.resource_key
					WHERE r.status = 'held' AND r.expires_at < s.due_from`); n != 0 {
					t.Fatalf("step %d: %d holds are before due_from", step, n)
				}
			}
			c.sound()
		})
	}
}
