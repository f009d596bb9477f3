package inventory_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/inventory"
	"github.com/holdfast/holdfast/reservations"
)

// session is one transaction that is left open.
type session struct {
	t  testing.TB
	tx pgx.Tx
}

func (c *carts) session() *session {
	c.t.Helper()
	tx, err := c.db.Begin(c.t.Context())
	c.must(err)
	c.t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	return &session{c.t, tx}
}

func (s *session) exec(sql string, args ...any) {
	s.t.Helper()
	if _, err := s.tx.Exec(s.t.Context(), sql, args...); err != nil {
		s.t.Fatal(err)
	}
}

// end commits, or rolls back after an error, as callers do.
func (s *session) end(err error) {
	s.t.Helper()
	done := s.tx.Commit
	if err != nil {
		done = s.tx.Rollback
	}
	if err := done(s.t.Context()); err != nil {
		s.t.Error(err)
	}
}

// behind runs the move in a session of its own and returns once it waits for a lock, or is over; its error comes by the
// channel, when the session has ended.
func (c *carts) behind(move func(tx pgx.Tx) error) <-chan error {
	c.t.Helper()
	s := c.session()
	var pid uint32
	c.must(s.tx.QueryRow(c.t.Context(), `SELECT pg_backend_pid()`).Scan(&pid))
	over := make(chan error, 1)
	go func() {
		err := move(s.tx)
		s.end(err)
		over <- err
	}()
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline) && len(over) == 0; {
		if c.int(`SELECT count(*) FROM pg_stat_activity WHERE pid = $1 AND wait_event_type = 'Lock'`, pid) > 0 {
			break
		}
	}
	return over
}

// pass waits until the hold's deadline has passed on the database's clock.
func (c *carts) pass(id uuid.UUID) {
	c.t.Helper()
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); {
		if c.int(`SELECT count(*) FROM reservations WHERE reservation_id = $1 AND expires_at <= clock_timestamp()`, id) == 1 {
			return
		}
	}
	c.t.Fatal("the deadline never passed")
}

// soon gives a hold a deadline that is near.
func (c *carts) soon(id uuid.UUID) {
	c.t.Helper()
	c.exec(`UPDATE reservations SET expires_at = clock_timestamp() + interval '400 milliseconds' WHERE reservation_id = $1`, id)
}

// moves are what can happen to the hold of a cart on the variant of the same name.
var moves = map[string]func(c *carts, tx pgx.Tx, name string, id uuid.UUID) error{
	"checkout": func(c *carts, tx pgx.Tx, name string, _ uuid.UUID) error {
		_, err := inventory.CheckoutTx(c.t.Context(), tx, c.tenant, name, shopper)
		return err
	},
	"release cart": func(c *carts, tx pgx.Tx, name string, _ uuid.UUID) error {
		_, err := inventory.ReleaseCartTx(c.t.Context(), tx, c.tenant, name, "", reservations.CartRemoved, shopper)
		return err
	},
	"extend cart": func(c *carts, tx pgx.Tx, name string, _ uuid.UUID) error {
		_, err := inventory.ExtendCartTx(c.t.Context(), tx, c.tenant, name, time.Minute, lifetimeMax, shopper)
		return err
	},
	"commit": func(c *carts, tx pgx.Tx, _ string, id uuid.UUID) error {
		_, err := inventory.CommitTx(c.t.Context(), tx, c.tenant, id, shopper)
		return err
	},
	"release": func(c *carts, tx pgx.Tx, _ string, id uuid.UUID) error {
		_, err := inventory.ReleaseTx(c.t.Context(), tx, c.tenant, id, reservations.PaymentFailed, shopper)
		return err
	},
	"extend": func(c *carts, tx pgx.Tx, _ string, id uuid.UUID) error {
		_, err := inventory.ExtendTx(c.t.Context(), tx, c.tenant, id, time.Minute, lifetimeMax, shopper)
		return err
	},
	"sweep": func(c *carts, tx pgx.Tx, _ string, _ uuid.UUID) error {
		_, err := inventory.ExpireDueTx(c.t.Context(), tx, 1000)
		return err
	},
	"set quantity": func(c *carts, tx pgx.Tx, name string, _ uuid.UUID) error {
		return asked(askTx(c.t.Context(), tx, c.set(name, name, 4)))
	},
	"other takes 3": func(c *carts, tx pgx.Tx, name string, _ uuid.UUID) error {
		return asked(askTx(c.t.Context(), tx, c.add("rival of "+name, name, 3)))
	},
	"other takes 4": func(c *carts, tx pgx.Tx, name string, _ uuid.UUID) error {
		return asked(askTx(c.t.Context(), tx, c.add("rival of "+name, name, 4)))
	},
}

// verdictError is a verdict where an error is expected.
type verdictError inventory.Verdict

func (v verdictError) Error() string { return string(v) }

func asked(v inventory.Verdict, err error) error {
	if err == nil && v.Rejected() {
		return verdictError(v)
	}
	return err
}

// said puts an error in few words that don't depend on ids.
func said(err error) string {
	if conflict, ok := errors.AsType[*reservations.ConflictError](err); ok && !errors.Is(err, inventory.ErrHoldExpired) {
		return "is " + string(conflict.Actual)
	}
	for _, known := range []error{inventory.ErrCartEmpty, inventory.ErrHoldExpired, reservations.ErrNotFound} {
		if errors.Is(err, known) {
			return known.Error()
		}
	}
	if err != nil {
		return err.Error()
	}
	return "done"
}

// aftermath is what two moves leave behind.
type aftermath struct {
	First, Second   string
	Status          reservations.Status
	Reason          reservations.ReleaseReason
	Stock, Reserved int64
	Held, InCart    int64
}

func (c *carts) aftermath(name string, id uuid.UUID, first, second error) aftermath {
	c.t.Helper()
	s, err := inventory.Get(c.t.Context(), c.db, c.tenant, name)
	c.must(err)
	r := c.get(id)
	const heldSQL = `SELECT coalesce(sum(quantity), 0) FROM reservations WHERE tenant_id = $3 AND resource_key = $1 AND status = 'held' AND holder_id LIKE $2`
	return aftermath{said(first), said(second), r.Status, r.ReleaseReason, s.Stock, s.Reserved, c.int(heldSQL, name, "%", c.tenant), c.int(heldSQL, name, name, c.tenant)}
}

// Two moves at the same moment: the second one starts while the first one's transaction is open. What they say and leave
// behind is what they would one after the other, in one order or, where the second need not wait, in the other.
func TestMovesAtOnce(t *testing.T) {
	t.Parallel()
	names := slices.Sorted(maps.Keys(moves))
	for _, due := range []bool{false, true} {
		db := newCarts(t)
		db.hurry()
		for _, first := range names {
			t.Run(fmt.Sprintf("due %t, %s first", due, first), func(t *testing.T) {
				c := db.apart(t)
				for _, second := range names {
					raced := c.twoMoves(first, second, due, true)
					inOrder := c.twoMoves(first, second, due, false)
					if cmp.Equal(inOrder, raced) {
						continue
					}
					reversed := c.twoMoves(second, first, due, false)
					reversed.First, reversed.Second = reversed.Second, reversed.First
					if !cmp.Equal(reversed, raced) {
						t.Errorf("%s at once with %s: %+v\none after the other: %+v\nthe other way round: %+v", first, second, raced, inOrder, reversed)
					}
				}
				c.sound()
			})
		}
	}
}

func (c *carts) twoMoves(first, second string, due, atOnce bool) aftermath {
	c.t.Helper()
	name := fmt.Sprintf("%s, %s, at once %t", first, second, atOnce)
	c.stock(name, 5)
	id := c.hold(name, name, 2)
	if due {
		c.lapse(id)
	}
	s := c.session()
	firstErr := moves[first](c, s.tx, name, id)
	if !atOnce {
		s.end(firstErr)
		secondErr := c.in(func(tx pgx.Tx) error { return moves[second](c, tx, name, id) })
		return c.aftermath(name, id, firstErr, secondErr)
	}
	over := c.behind(func(tx pgx.Tx) error { return moves[second](c, tx, name, id) })
	s.end(firstErr)
	return c.aftermath(name, id, firstErr, <-over)
}

// A hold whose extension is not committed yet passes its old deadline: neither a sweep nor a buyer who falls short may
// take it, and whoever else works on it waits to see.
func TestExtendAgainstItsOldDeadline(t *testing.T) {
	t.Parallel()
	for rival, want := range map[string]string{
		"sweep": "done", "other takes 4": string(inventory.OutOfStock), "checkout": "done", "commit": "done", "release": "done",
		"set quantity": "done", "extend": "done",
	} {
		t.Run(rival, func(t *testing.T) {
			t.Parallel()
			c := newCarts(t)
			c.stock("a", 5)
			id := c.hold("a", "a", 2)
			c.soon(id)
			s := c.session()
			if _, err := inventory.ExtendTx(t.Context(), s.tx, c.tenant, id, time.Minute, lifetimeMax, shopper); err != nil {
				t.Fatal(err)
			}
			c.pass(id)
			over := c.behind(func(tx pgx.Tx) error { return moves[rival](c, tx, "a", id) })
			s.end(nil)
			if got := said(<-over); got != want {
				t.Errorf("%s: %s, want %s", rival, got, want)
			}
			if got := c.get(id); got.Status == reservations.Expired {
				t.Errorf("expired at %s, although it was extended to %s", got.EndedAt, got.ExpiresAt)
			}
			c.sound()
		})
	}
}

// A verb that waited past the deadline finds the hold due.
func TestDeadlinePassesWhileWaiting(t *testing.T) {
	t.Parallel()
	for verb, want := range map[string]string{
		"checkout": inventory.ErrHoldExpired.Error(), "commit": "is expired", "extend": "is expired", "extend cart": inventory.ErrHoldExpired.Error(),
	} {
		t.Run(verb, func(t *testing.T) {
			t.Parallel()
			c := newCarts(t)
			c.stock("a", 5)
			id := c.hold("a", "a", 2)
			s := c.session()
			s.exec(`SELECT FROM inventory_stocks FOR NO KEY UPDATE`)
			s.exec(`SELECT FROM reservations FOR NO KEY UPDATE`)
			s.exec(`UPDATE reservations SET expires_at = clock_timestamp() + interval '400 milliseconds'`)
			over := c.behind(func(tx pgx.Tx) error { return moves[verb](c, tx, "a", id) })
			for passed := false; !passed; { // only the session itself sees the new deadline yet
				c.must(s.tx.QueryRow(t.Context(), `SELECT expires_at <= clock_timestamp() FROM reservations`).Scan(&passed))
			}
			s.end(nil)
			if got := said(<-over); got != want {
				t.Errorf("%s, want %s", got, want)
			}
			c.wantHold(id, reservations.Held, "")
			c.wantStock("a", 5, 2)
		})
	}
}

// A drain holds one of the cart's reservations and wants another one's due units, while the cart is being extended: the
// extension, which takes no stock's lock, must not wait with a due hold in its hands.
func TestExtendCartAgainstReclaim(t *testing.T) {
	t.Parallel()
	c := newCarts(t)
	c.stock("shoe", 3)
	c.stock("sock", 9)
	blocker, due := c.hold("z", "shoe", 1), c.hold("a", "shoe", 2) // in the order of their ids
	live := c.hold("a", "sock", 1)
	c.lapse(blocker)
	c.lapse(due)
	gate := c.session()
	gate.exec(`SELECT FROM reservations WHERE reservation_id = $1 FOR UPDATE`, blocker)
	// the drain locks the live hold, because its quantity changes, and then waits at the gate on its way to the due one
	drained := c.behind(func(tx pgx.Tx) error {
		asks := []inventory.Ask{c.set("a", "sock", 2), c.add("b", "shoe", 3)}
		holding, err := inventory.HoldTx(t.Context(), tx, asks, inventory.Terms{TTL: holdTTL, LifetimeMax: lifetimeMax})
		if err != nil {
			return err
		}
		b := &pgx.Batch{}
		holding.Queue(b)
		return tx.SendBatch(t.Context(), b).Close()
	})
	extended := c.behind(func(tx pgx.Tx) error { return moves["extend cart"](c, tx, "a", live) })
	gate.end(nil)
	if err := <-drained; err != nil {
		t.Errorf("drain: %v", err)
	}
	if err := <-extended; err != nil {
		t.Errorf("extend: %v; want what the drain left of the cart extended", err)
	}
	c.wantHold(due, reservations.Expired, reservations.TTL)
	c.wantHold(live, reservations.Released, reservations.Replaced)
	c.sound()
}

// A cart gets another hold, of a lower id, while its extension waits for locks; a checkout has that one and waits for the
// others. The extension must begin anew, not wait for it with those in its hands.
func TestExtendCartAgainstCheckout(t *testing.T) {
	t.Parallel()
	c := newCarts(t)
	c.stock("shoe", 9)
	early := c.add("a", "shoe", 1) // asked for first, held last
	c.hold("a", "shoe", 2)
	last := c.hold("a", "shoe", 3)
	gate := c.session()
	gate.exec(`SELECT FROM reservations WHERE reservation_id = $1 FOR UPDATE`, last)
	extended := c.behind(func(tx pgx.Tx) error { return moves["extend cart"](c, tx, "a", last) })
	if v := c.ask(early); v != inventory.Granted {
		t.Fatal(v)
	}
	checkedOut := c.behind(func(tx pgx.Tx) error { return moves["checkout"](c, tx, "a", last) })
	gate.end(nil)
	if err := <-checkedOut; err != nil {
		t.Errorf("checkout: %v", err)
	}
	if err := <-extended; !errors.Is(err, inventory.ErrCartEmpty) {
		t.Errorf("extend: %v, want ErrCartEmpty", err)
	}
	c.wantStock("shoe", 3, 0)
	c.sound()
}
