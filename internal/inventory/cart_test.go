package inventory_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/audit"
	"github.com/holdfast/holdfast/internal/inventory"
	"github.com/holdfast/holdfast/internal/reservationrows"
	"github.com/holdfast/holdfast/reservations"
)

func TestCheckout(t *testing.T) {
	t.Parallel()
	c := newCarts(t)
	c.stock("shoe", 10)
	c.stock("sock", 4)
	one, two, sock := c.hold("a", "shoe", 2), c.hold("a", "shoe", 3), c.hold("a", "sock", 4)
	others := c.hold("b", "shoe", 1)
	committed, err := c.checkout("a")
	c.must(err)
	if len(committed) != 3 {
		t.Errorf("%d committed, want 3", len(committed))
	}
	for _, r := range committed {
		if r.Status != reservations.Committed || r.EndedAt == nil {
			t.Errorf("%+v, want it committed", r)
		}
	}
	for _, id := range []uuid.UUID{one, two, sock} {
		c.wantHold(id, reservations.Committed, "")
	}
	c.wantHold(others, reservations.Held, "")
	c.wantStock("shoe", 5, 1)
	c.wantStock("sock", 0, 0)
	if _, err := c.checkout("a"); !errors.Is(err, inventory.ErrCartEmpty) {
		t.Errorf("a second checkout: %v, want ErrCartEmpty", err)
	}
	c.wantStock("shoe", 5, 1)
	c.sound()
}

func TestCheckoutOfNothing(t *testing.T) {
	t.Parallel()
	c := newCarts(t)
	c.stock("shoe", 1)
	held := c.hold("a", "shoe", 1)
	stranger := *c
	stranger.tenant = uuid.New()
	for name, who := range map[string]*carts{"b": c, "a": &stranger} {
		if _, err := who.checkout(name); !errors.Is(err, inventory.ErrCartEmpty) {
			t.Errorf("checkout of cart %s by %s: %v, want ErrCartEmpty", name, who.tenant, err)
		}
	}
	c.wantHold(held, reservations.Held, "")
}

// A checkout takes the stock of a backordered variant below zero. It also
// commits holds that were made before their variant became digital.
func TestCheckoutOfWhatIsNotThere(t *testing.T) {
	t.Parallel()
	c := newCarts(t)
	c.stock("sofa", 1)
	c.stock("song", 3)
	c.exec(`UPDATE inventory_stocks SET backorder = true WHERE variant_id = 'sofa'`)
	c.hold("a", "sofa", 4)
	c.hold("a", "song", 3)
	c.exec(`UPDATE inventory_stocks SET tracked = false, stock = 0 WHERE variant_id = 'song'`)
	_, err := c.checkout("a")
	c.must(err)
	c.wantStock("sofa", -3, 0)
	c.wantStock("song", -3, 0)
	c.sound()
}

// An expired hold of a cart, swept or not, blocks its checkout until the
// variant is removed from the cart or added again. After that the checkout
// commits the other holds of the cart.
func TestCheckoutAfterExpiry(t *testing.T) {
	t.Parallel()
	remedies := map[string]func(c *carts, lost uuid.UUID) error{
		"nothing": func(*carts, uuid.UUID) error { return nil },
		"removes another variant": func(c *carts, _ uuid.UUID) error {
			_, err := c.release("a", "hat", reservations.CartRemoved)
			return err
		},
		"adds another variant": func(c *carts, _ uuid.UUID) error { c.hold("a", "hat", 1); return nil },
		"another cart adds it": func(c *carts, _ uuid.UUID) error { c.hold("b", "shoe", 1); return nil },
		"removes it": func(c *carts, _ uuid.UUID) error {
			_, err := c.release("a", "shoe", reservations.CartRemoved)
			return err
		},
		"adds it again":          func(c *carts, _ uuid.UUID) error { c.hold("a", "shoe", 1); return nil },
		"sets its quantity":      func(c *carts, _ uuid.UUID) error { c.decide(c.set("a", "shoe", 2)); return nil },
		"adds it, expired again": func(c *carts, _ uuid.UUID) error { c.lapse(c.hold("a", "shoe", 1)); return nil },
		"adds it, removes it": func(c *carts, _ uuid.UUID) error {
			c.hold("a", "shoe", 1)
			_, err := c.release("a", "shoe", reservations.Abandoned)
			return err
		},
		"requests too many": func(c *carts, _ uuid.UUID) error { c.decide(c.add("a", "shoe", 1000)); return nil },
	}
	cleared := map[string]bool{"removes it": true, "adds it again": true, "sets its quantity": true, "adds it, removes it": true}
	for _, swept := range []bool{true, false} {
		db := newCarts(t)
		for name, remedy := range remedies {
			t.Run(fmt.Sprintf("%s, swept %t", name, swept), func(t *testing.T) {
				c := db.apart(t)
				for _, variant := range []string{"shoe", "sock", "hat"} {
					c.stock(variant, 5)
				}
				lost, kept := c.hold("a", "shoe", 1), c.hold("a", "sock", 1)
				c.lapse(lost)
				if swept && c.sweep().Expired == 0 {
					t.Fatal("the sweep did not end the due hold")
				}
				c.must(remedy(c, lost))
				_, err := c.checkout("a")
				if !cleared[name] {
					if !errors.Is(err, inventory.ErrHoldExpired) {
						t.Errorf("%v, want ErrHoldExpired", err)
					}
					c.wantHold(kept, reservations.Held, "")
					c.wantStock("sock", 5, 1)
				} else {
					c.must(err)
					c.wantHold(kept, reservations.Committed, "")
					c.wantStock("sock", 4, 0)
				}
				if got := c.get(lost).Status; got == reservations.Committed {
					t.Error("a hold was committed past its deadline")
				}
				c.sound()
			})
		}
	}
}

// Two holds of one variant: the second was made before the first expired, so
// the variant does not count as added again.
func TestCheckoutAfterPartialExpiry(t *testing.T) {
	t.Parallel()
	c := newCarts(t)
	c.stock("shoe", 5)
	lost, kept := c.hold("a", "shoe", 1), c.hold("a", "shoe", 2)
	c.exec(`UPDATE reservations SET held_at = held_at - interval '1 hour', first_held_at = first_held_at - interval '1 hour'`)
	c.exec(`UPDATE reservations SET expires_at = clock_timestamp() - interval '1 second' WHERE reservation_id = $1`, lost)
	for range 2 { // before the sweep, then after it
		if _, err := c.checkout("a"); !errors.Is(err, inventory.ErrHoldExpired) {
			t.Errorf("%v, want ErrHoldExpired", err)
		}
		c.sweep()
	}
	c.hold("a", "shoe", 1)
	_, err := c.checkout("a")
	c.must(err)
	c.wantHold(kept, reservations.Committed, "")
	c.wantStock("shoe", 2, 0)
}

// A cart of many reservations is committed, extended and released as a whole.
func TestCartOfManyHolds(t *testing.T) {
	t.Parallel()
	c := newCarts(t)
	c.stock("shoe", 5000)
	c.stock("sock", 5000)
	const many = 1001
	c.exec(`INSERT INTO reservations
			(tenant_id, reservation_id, resource_kind, resource_key, holder_id, quantity, first_held_at, held_at, expires_at)
		SELECT $1, lpad(to_hex(cart * 10000 + n), 32, '0')::uuid, $2, CASE n WHEN $3 THEN 'sock' ELSE 'shoe' END, 'cart-' || cart, 1,
		       now, now, now + interval '1 minute'
		FROM generate_series(0, 2) AS cart, generate_series(1, $3) AS n, (SELECT clock_timestamp() AS now) AS clock`,
		c.tenant, inventory.Kind, many) // the socks are last
	c.exec(`UPDATE inventory_stocks s SET reserved = (SELECT count(*) FROM reservations r WHERE r.resource_key = s.variant_id)`)
	extended, err := c.extend("cart-0", time.Minute)
	if c.must(err); len(extended) != many {
		t.Errorf("extended %d of %d", len(extended), many)
	}
	committed, err := c.checkout("cart-1")
	if c.must(err); len(committed) != many {
		t.Errorf("committed %d of %d", len(committed), many)
	}
	released, err := c.release("cart-2", "", reservations.Abandoned)
	if c.must(err); len(released) != many {
		t.Errorf("released %d of %d", len(released), many)
	}
	c.wantStock("shoe", int64(5000-many+1), int64(many-1))
	c.wantStock("sock", 4999, 1)
}

func TestReleaseCart(t *testing.T) {
	t.Parallel()
	db := newCarts(t)
	for _, reason := range reservationrows.ReleaseReasons {
		t.Run(string(reason), func(t *testing.T) {
			c := db.apart(t)
			c.stock("shoe", 9)
			c.stock("sock", 9)
			due, shoe, sock, others := c.hold("a", "shoe", 1), c.hold("a", "shoe", 2), c.hold("a", "sock", 3), c.hold("b", "shoe", 4)
			c.lapse(due)
			released, err := c.release("a", "shoe", reason)
			if c.must(err); len(released) != 1 || released[0].ReservationID != shoe {
				t.Errorf("released %+v, want the one hold that is not due", released)
			}
			c.wantHold(due, reservations.Expired, reservationrows.TTL)
			c.wantHold(shoe, reservations.Released, reason)
			c.wantHold(sock, reservations.Held, "")
			c.wantStock("shoe", 9, 4)
			released, err = c.release("a", "", reason)
			if c.must(err); len(released) != 1 {
				t.Errorf("%d released, want 1", len(released))
			}
			c.wantHold(sock, reservations.Released, reason)
			c.wantHold(others, reservations.Held, "")
			released, err = c.release("a", "", reason)
			if c.must(err); len(released) != 0 {
				t.Errorf("%d released of an empty cart", len(released))
			}
			records, err := audit.History(t.Context(), c.db, c.tenant, shoe)
			c.must(err)
			want := shopper
			want.Reason = string(reason)
			if diff := cmp.Diff(want, records[len(records)-1].Origin); diff != "" {
				t.Errorf("the release's origin (-want +got):\n%s", diff)
			}
			c.sound()
		})
	}
}

// An invalid release reason is rejected before anything is written.
func TestReleaseForNoReason(t *testing.T) {
	t.Parallel()
	c := newCarts(t)
	c.stock("shoe", 1)
	id := c.hold("a", "shoe", 1)
	for _, reason := range []reservations.ReleaseReason{"", reservationrows.TTL, "whim", `"}`} {
		if _, err := c.release("a", "", reason); invalidField(err) != "reason" {
			t.Errorf("release of a cart for %q: %v, want an error of the reason", reason, err)
		}
		if _, err := inventory.Release(t.Context(), c.db, c.tenant, id, reason, shopper); invalidField(err) != "reason" {
			t.Errorf("release for %q: %v, want an error of the reason", reason, err)
		}
	}
	c.wantHold(id, reservations.Held, "")
}

func TestExtendCart(t *testing.T) {
	t.Parallel()
	c := newCarts(t)
	c.stock("shoe", 9)
	c.stock("sock", 9)
	shoe, sock, others := c.hold("a", "shoe", 1), c.hold("a", "sock", 1), c.hold("b", "shoe", 1)
	before := []reservations.Reservation{c.get(shoe), c.get(sock), c.get(others)}
	extended, err := c.extend("a", 10*time.Minute)
	if c.must(err); len(extended) != 2 {
		t.Errorf("%d extended, want 2", len(extended))
	}
	for i, want := range []time.Duration{10 * time.Minute, 10 * time.Minute, 0} {
		if got := c.get(before[i].ReservationID).ExpiresAt.Sub(before[i].ExpiresAt); got != want {
			t.Errorf("hold %d was extended by %s, want %s", i, got, want)
		}
	}
	// 25 of 120 minutes have passed; one of the holds is older than the other.
	c.exec(`UPDATE reservations SET first_held_at = first_held_at - interval '1 minute' WHERE reservation_id = $1`, sock)
	if _, err := c.extend("a", 95*time.Minute); !errors.Is(err, reservations.ErrLifetimeExceeded) {
		t.Errorf("past the cap of one: %v, want ErrLifetimeExceeded", err)
	}
	if got := c.get(shoe).ExpiresAt.Sub(before[0].ExpiresAt); got != 10*time.Minute {
		t.Errorf("one of them was extended by %s", got)
	}
	_, err = c.extend("a", 94*time.Minute)
	c.must(err) // exactly up to the cap
	_, err = c.extend("a", time.Microsecond)
	if !errors.Is(err, reservations.ErrLifetimeExceeded) {
		t.Errorf("past the cap: %v, want ErrLifetimeExceeded", err)
	}
	for _, by := range []time.Duration{0, -time.Second} {
		if _, err := c.extend("b", by); invalidField(err) != "seconds" {
			t.Errorf("by %s: %v, want the seconds blamed", by, err)
		}
		if _, err := inventory.Extend(t.Context(), c.db, c.tenant, others, by, lifetimeMax, shopper); invalidField(err) != "seconds" {
			t.Errorf("by %s: %v, want the seconds blamed", by, err)
		}
	}
	if _, err := c.extend("nobody", time.Minute); !errors.Is(err, inventory.ErrCartEmpty) {
		t.Errorf("an empty cart: %v, want ErrCartEmpty", err)
	}
	c.lapse(sock)
	if _, err := c.extend("a", time.Second); !errors.Is(err, inventory.ErrHoldExpired) {
		t.Errorf("with a due hold: %v, want ErrHoldExpired", err)
	}
	if n := c.int(`SELECT count(*) FROM audit_log WHERE action = 'reservation.extended'`); n != 4 {
		t.Errorf("%d audit rows of extensions, want 4", n)
	}
	c.sound()
}

// A hold that replaces another one, with a new quantity, keeps the lifetime of
// the first hold.
func TestReplaceKeepsLifetime(t *testing.T) {
	t.Parallel()
	c := newCarts(t)
	c.stock("shoe", 9)
	old := c.hold("a", "shoe", 2)
	c.exec(`UPDATE reservations SET first_held_at = first_held_at - interval '110 minutes', held_at = held_at - interval '110 minutes'`)
	first := c.get(old).FirstHeldAt
	next := c.set("a", "shoe", 5)
	if v := c.decide(next); v != inventory.Granted {
		t.Fatal(v)
	}
	c.wantHold(old, reservations.Released, reservationrows.Replaced)
	r := c.get(next.RequestID)
	if !r.FirstHeldAt.Equal(first) || !r.ExpiresAt.Equal(first.Add(lifetimeMax)) || r.Quantity != 5 {
		t.Errorf("%+v, want 5 held until %s", r, first.Add(lifetimeMax))
	}
	c.wantStock("shoe", 9, 5)
	c.sound()
}

// A verb in the caller's transaction has no effect after a rollback.
func TestVerbsJoinTheCaller(t *testing.T) {
	t.Parallel()
	c := newCarts(t)
	c.stock("shoe", 3)
	id := c.hold("a", "shoe", 3)
	changedMind := errors.New("changed its mind")
	err := c.in(func(tx pgx.Tx) error {
		if _, err := inventory.CheckoutTx(t.Context(), tx, c.tenant, "a", shopper); err != nil {
			return err
		}
		return changedMind
	})
	if !errors.Is(err, changedMind) {
		t.Fatal(err)
	}
	c.wantHold(id, reservations.Held, "")
	c.wantStock("shoe", 3, 3)
	c.sound()
}
