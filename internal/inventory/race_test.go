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

	"github.com/holdfast/holdfast/internal/inventory"
	"github.com/holdfast/holdfast/internal/pgtest"
	"github.com/holdfast/holdfast/reservations"
)

// session is one open transaction.
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

// end commits or, after an error, rolls back, as callers do.
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

// behind runs the operation in a separate session. It returns once the session
// waits for a lock or has ended. The channel receives the error when the
// session has ended.
func (c *carts) behind(operation func(tx pgx.Tx) error) <-chan error {
	c.t.Helper()
	s := c.session()
	var pid uint32
	c.must(s.tx.QueryRow(c.t.Context(), `SELECT pg_backend_pid()`).Scan(&pid))
	over := make(chan error, 1)
	go func() {
		err := operation(s.tx)
		s.end(err)
		over <- err
	}()
	pgtest.Until(c.t, "the session waits for a lock or has ended", func() bool {
		return len(over) > 0 || c.int(`SELECT count(*) FROM pg_stat_activity WHERE pid = $1 AND wait_event_type = 'Lock'`, pid) > 0
	})
	return over
}

// waitUntilDue waits until the hold's deadline has passed on the database's
// clock.
func (c *carts) waitUntilDue(id uuid.UUID) {
	c.t.Helper()
	pgtest.Until(c.t, "the deadline has passed", func() bool {
		return c.int(`SELECT count(*) FROM reservations WHERE reservation_id = $1 AND expires_at <= clock_timestamp()`, id) == 1
	})
}

// soon moves the deadline of a hold to the near future.
func (c *carts) soon(id uuid.UUID) {
	c.t.Helper()
	c.exec(`UPDATE reservations SET expires_at = clock_timestamp() + interval '400 milliseconds' WHERE reservation_id = $1`, id)
}

// operations are the operations on the hold of a cart on the variant of the
// same name.
var operations = map[string]func(c *carts, tx pgx.Tx, name string, id uuid.UUID) error{
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
		_, _, err := inventory.ReleaseTx(c.t.Context(), tx, c.tenant, id, reservations.PaymentFailed, shopper)
		return err
	},
	"extend": func(c *carts, tx pgx.Tx, _ string, id uuid.UUID) error {
		_, err := inventory.ExtendTx(c.t.Context(), tx, c.tenant, id, time.Minute, lifetimeMax, shopper)
		return err
	},
	"sweep": func(c *carts, tx pgx.Tx, name string, _ uuid.UUID) error {
		s, err := inventory.ExpireDueTx(c.t.Context(), tx, 1000)
		if err == nil && s.Expired < s.Found {
			c.waitForHolds(tx, name)
			_, err = inventory.ExpireDueTx(c.t.Context(), tx, 1000)
		}
		return err
	},
	"set quantity": func(c *carts, tx pgx.Tx, name string, _ uuid.UUID) error {
		return c.decideAtLast(tx, c.set(name, name, 4))
	},
	"other takes 3": func(c *carts, tx pgx.Tx, name string, _ uuid.UUID) error {
		return c.decideAtLast(tx, c.add("other of "+name, name, 3))
	},
	"other takes 4": func(c *carts, tx pgx.Tx, name string, _ uuid.UUID) error {
		return c.decideAtLast(tx, c.add("other of "+name, name, 4))
	},
}

// decideAtLast decides the request. If it is left because another transaction
// has locked a hold, it waits for that lock and decides again: a drain does so
// by trying again.
func (c *carts) decideAtLast(tx pgx.Tx, a inventory.HoldRequest) error {
	v, err := decideTx(c.t.Context(), tx, a)
	if err == nil && !v.Decided() {
		c.waitForHolds(tx, a.VariantID)
		v, err = decideTx(c.t.Context(), tx, a)
	}
	if err == nil && v.Rejected() {
		return outcomeError(v)
	}
	return err
}

// waitForHolds waits until no other transaction has locked a hold of the
// variant.
func (c *carts) waitForHolds(tx pgx.Tx, variant string) {
	_, err := tx.Exec(c.t.Context(), `SELECT FROM reservations WHERE tenant_id = $1 AND resource_key = $2 AND status = 'held' FOR NO KEY UPDATE`, c.tenant, variant)
	if err != nil {
		c.t.Error(err)
	}
}

// outcomeError is the outcome of a rejected request, as an error.
type outcomeError inventory.Outcome

func (v outcomeError) Error() string { return string(v) }

// errorText is the text of an error without ids.
func errorText(err error) string {
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

// aftermath is the errors of two operations and the rows after them.
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
	return aftermath{errorText(first), errorText(second), r.Status, r.ReleaseReason, s.Stock, s.Reserved, c.int(heldSQL, name, "%", c.tenant), c.int(heldSQL, name, name, c.tenant)}
}

// Two concurrent operations: the second one starts while the transaction of the
// first is open. Their results and the rows are as if they ran one after the
// other: in this order or, if the second did not wait, in the other.
func TestOperationsAtOnce(t *testing.T) {
	t.Parallel()
	names := slices.Sorted(maps.Keys(operations))
	for _, due := range []bool{false, true} {
		db := newCarts(t)
		db.hurry()
		for _, first := range names {
			t.Run(fmt.Sprintf("due %t, %s first", due, first), func(t *testing.T) {
				c := db.apart(t)
				for _, second := range names {
					raced := c.twoOperations(first, second, due, true)
					inOrder := c.twoOperations(first, second, due, false)
					if cmp.Equal(inOrder, raced) {
						continue
					}
					reversed := c.twoOperations(second, first, due, false)
					reversed.First, reversed.Second = reversed.Second, reversed.First
					if !cmp.Equal(reversed, raced) {
						t.Errorf("%s concurrent with %s: %+v\none after the other: %+v\nin the other order: %+v", first, second, raced, inOrder, reversed)
					}
				}
				c.sound()
			})
		}
	}
}

func (c *carts) twoOperations(first, second string, due, atOnce bool) aftermath {
	c.t.Helper()
	name := fmt.Sprintf("%s, %s, concurrent %t", first, second, atOnce)
	c.stock(name, 5)
	id := c.hold(name, name, 2)
	if due {
		c.lapse(id)
	}
	s := c.session()
	firstErr := operations[first](c, s.tx, name, id)
	if !atOnce {
		s.end(firstErr)
		secondErr := c.in(func(tx pgx.Tx) error { return operations[second](c, tx, name, id) })
		return c.aftermath(name, id, firstErr, secondErr)
	}
	over := c.behind(func(tx pgx.Tx) error { return operations[second](c, tx, name, id) })
	s.end(firstErr)
	return c.aftermath(name, id, firstErr, <-over)
}

// A hold passes its old deadline while its extension is not committed yet.
// Neither a sweep nor a request that needs its units may expire it, and every
// other verb on it waits for the extension.
func TestExtendAgainstItsOldDeadline(t *testing.T) {
	t.Parallel()
	for other, want := range map[string]string{
		"sweep": "done", "other takes 4": string(inventory.OutOfStock), "checkout": "done", "commit": "done", "release": "done",
		"set quantity": "done", "extend": "done",
	} {
		t.Run(other, func(t *testing.T) {
			t.Parallel()
			c := newCarts(t)
			c.stock("a", 5)
			id := c.hold("a", "a", 2)
			c.soon(id)
			s := c.session()
			if _, err := inventory.ExtendTx(t.Context(), s.tx, c.tenant, id, time.Minute, lifetimeMax, shopper); err != nil {
				t.Fatal(err)
			}
			c.waitUntilDue(id)
			over := c.behind(func(tx pgx.Tx) error { return operations[other](c, tx, "a", id) })
			s.end(nil)
			if got := errorText(<-over); got != want {
				t.Errorf("%s: %s, want %s", other, got, want)
			}
			if got := c.get(id); got.Status == reservations.Expired {
				t.Errorf("expired at %s, although it was extended to %s", got.EndedAt, got.ExpiresAt)
			}
			c.sound()
		})
	}
}

// A verb that waits for a lock past the deadline finds the hold due.
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
			over := c.behind(func(tx pgx.Tx) error { return operations[verb](c, tx, "a", id) })
			pgtest.Until(t, "the deadline has passed", func() (passed bool) { // only this session sees the row so far
				c.must(s.tx.QueryRow(t.Context(), `SELECT expires_at <= clock_timestamp() FROM reservations`).Scan(&passed))
				return passed
			})
			s.end(nil)
			if got := errorText(<-over); got != want {
				t.Errorf("%s, want %s", got, want)
			}
			c.wantHold(id, reservations.Held, "")
			c.wantStock("a", 5, 2)
		})
	}
}

// A cart gets another hold, with a lower id, while its extension waits for
// locks, and a checkout waits for the holds that the extension has locked. Both
// release their locks and start again, whichever is first, and neither waits for
// the other for ever.
func TestExtendCartAgainstCheckout(t *testing.T) {
	t.Parallel()
	c := newCarts(t)
	c.stock("shoe", 9)
	early := c.add("a", "shoe", 1) // requested first, so its id is the lowest, but held last
	c.hold("a", "shoe", 2)
	last := c.hold("a", "shoe", 3)
	gate := c.session()
	gate.exec(`SELECT FROM reservations WHERE reservation_id = $1 FOR UPDATE`, last)
	extended := c.behind(func(tx pgx.Tx) error { return operations["extend cart"](c, tx, "a", last) })
	if v := c.decide(early); v != inventory.Granted {
		t.Fatal(v)
	}
	checkedOut := c.behind(func(tx pgx.Tx) error { return operations["checkout"](c, tx, "a", last) })
	gate.end(nil)
	if err := <-checkedOut; err != nil {
		t.Errorf("checkout: %v", err)
	}
	if err := <-extended; err != nil && !errors.Is(err, inventory.ErrCartEmpty) {
		t.Errorf("extend: %v, want no error or ErrCartEmpty", err)
	}
	c.wantStock("shoe", 3, 0)
	c.sound()
}
