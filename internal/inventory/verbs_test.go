package inventory_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/internal/inventory"
	"github.com/holdfast/holdfast/internal/reservationrows"
	"github.com/holdfast/holdfast/reservations"
)

// byID are calls of the verbs on one reservation.
var byID = map[string]func(c *carts, id uuid.UUID) error{
	"commit": func(c *carts, id uuid.UUID) error {
		_, err := inventory.Commit(c.t.Context(), c.db, c.tenant, id, shopper)
		return err
	},
	"release": func(c *carts, id uuid.UUID) error {
		_, err := inventory.Release(c.t.Context(), c.db, c.tenant, id, reservations.PaymentFailed, shopper)
		return err
	},
	"extend": func(c *carts, id uuid.UUID) error {
		_, err := inventory.Extend(c.t.Context(), c.db, c.tenant, id, time.Minute, lifetimeMax, shopper)
		return err
	},
}

// A verb by id applies to a live hold only. It does not change a hold that has
// ended, and returns a conflict.
func TestVerbsByID(t *testing.T) {
	t.Parallel()
	type end struct {
		status reservations.Status
		reason reservations.ReleaseReason
	}
	live, committed, released, expired := end{reservations.Held, ""}, end{reservations.Committed, ""},
		end{reservations.Released, reservations.PaymentFailed}, end{reservations.Expired, reservationrows.TTL}
	ways := map[string]func(c *carts, id uuid.UUID){ // functions that bring the hold into the state that the verb finds
		"live":      func(*carts, uuid.UUID) {},
		"due":       func(c *carts, id uuid.UUID) { c.lapse(id) },
		"committed": func(c *carts, id uuid.UUID) { c.must(byID["commit"](c, id)) },
		"released":  func(c *carts, id uuid.UUID) { c.must(byID["release"](c, id)) },
		"expired":   func(c *carts, id uuid.UUID) { c.lapse(id); c.sweep() },
	}
	db := newCarts(t)
	for _, tc := range []struct {
		found, verb string
		conflict    reservations.Status // "": no conflict
		want        end
		stock       int64
		reserved    int64
	}{
		{"live", "commit", "", committed, 3, 0},
		{"live", "release", "", released, 5, 0},
		{"live", "extend", "", live, 5, 2},
		{"due", "commit", reservations.Expired, live, 5, 2},
		{"due", "release", reservations.Expired, expired, 5, 0},
		{"due", "extend", reservations.Expired, live, 5, 2},
		{"committed", "commit", reservations.Committed, committed, 3, 0},
		{"committed", "release", reservations.Committed, committed, 3, 0},
		{"committed", "extend", reservations.Committed, committed, 3, 0},
		{"released", "commit", reservations.Released, released, 5, 0},
		{"released", "release", reservations.Released, released, 5, 0},
		{"released", "extend", reservations.Released, released, 5, 0},
		{"expired", "commit", reservations.Expired, expired, 5, 0},
		{"expired", "release", reservations.Expired, expired, 5, 0},
		{"expired", "extend", reservations.Expired, expired, 5, 0},
	} {
		t.Run(fmt.Sprintf("%s %s", tc.verb, tc.found), func(t *testing.T) {
			c := db.apart(t)
			c.stock("shoe", 5)
			id := c.hold("a", "shoe", 2)
			ways[tc.found](c, id)
			before := c.int(`SELECT count(*) FROM audit_log`)
			err := byID[tc.verb](c, id)
			conflict, isConflict := errors.AsType[*reservations.ConflictError](err)
			switch {
			case tc.conflict == "":
				c.must(err)
			case !isConflict || conflict.Actual != tc.conflict || conflict.ID != id || conflict.Expected != reservations.Held:
				t.Errorf("%v, want a conflict with %s", err, tc.conflict)
			}
			c.wantHold(id, tc.want.status, tc.want.reason)
			c.wantStock("shoe", tc.stock, tc.reserved)
			writes := int64(0)
			if tc.conflict == "" || tc.found == "due" && tc.verb == "release" { // a release of a due hold records the expiry
				writes = 1
			}
			if wrote := c.int(`SELECT count(*) FROM audit_log`) - before; wrote != writes {
				t.Errorf("%d audit rows written, want %d", wrote, writes)
			}
			c.sound()
		})
	}
}

// A release in the caller's transaction records an expiry there. The expiry
// exists if the transaction commits. After the conflict the transaction is
// usable.
func TestReleaseTxRecordsAnExpiry(t *testing.T) {
	t.Parallel()
	c := newCarts(t)
	c.stock("shoe", 5)
	id := c.hold("a", "shoe", 2)
	c.lapse(id)
	errUndo := errors.New("undo")
	for _, commits := range []bool{false, true} {
		err := c.in(func(tx pgx.Tx) error {
			r, conflict, err := inventory.ReleaseTx(t.Context(), tx, c.tenant, id, reservations.Operator, shopper)
			if err != nil || conflict == nil || conflict.Actual != reservations.Expired || r.Status != "" {
				t.Errorf("%+v, %v, %v, want a conflict with expired", r, conflict, err)
			}
			if _, err := tx.Exec(t.Context(), `SELECT 1`); err != nil {
				t.Errorf("the transaction after the conflict: %v", err)
			}
			if !commits {
				return errUndo
			}
			return nil
		})
		if commits {
			c.must(err)
		}
	}
	c.wantHold(id, reservations.Expired, reservationrows.TTL)
	c.wantStock("shoe", 5, 0)
	c.sound()
}

// A reservation of another tenant, of another kind, or that does not exist is
// not found. The error does not show which of these is the case.
func TestVerbsByForeignID(t *testing.T) {
	t.Parallel()
	c := newCarts(t)
	c.stock("shoe", 5)
	theirs, seat := c.hold("a", "shoe", 2), uuid.New()
	c.exec(`INSERT INTO reservations
		(tenant_id, reservation_id, resource_kind, resource_key, holder_id, quantity, first_held_at, held_at, expires_at)
		VALUES ($1, $2, 'hall.seat', 'shoe', 'a', 1, clock_timestamp(), clock_timestamp(), clock_timestamp() + interval '1 hour')`, c.tenant, seat)
	stranger := *c
	stranger.tenant = uuid.New()
	for name, verb := range byID {
		for what, err := range map[string]error{
			"another tenant's": verb(&stranger, theirs), "of another kind": verb(c, seat), "missing": verb(c, uuid.New()),
		} {
			if !errors.Is(err, reservations.ErrNotFound) {
				t.Errorf("%s one %s: %v, want ErrNotFound", name, what, err)
			}
		}
	}
	for _, id := range []uuid.UUID{theirs, seat} {
		c.wantHold(id, reservations.Held, "")
	}
	if released, err := c.release("a", "", reservations.Operator); err != nil || len(released) != 1 {
		t.Errorf("released %d of the cart, %v; want its one hold of a variant", len(released), err)
	}
	c.lapse(seat)
	if swept := c.sweep(); swept.Found != 0 {
		t.Errorf("a sweep found %d holds, want none: the seat is of another kind", swept.Found)
	}
	c.wantHold(seat, reservations.Held, "")
}

// Extend moves the current deadline, but never past the cap, which counts from
// the first hold.
func TestExtendCap(t *testing.T) {
	t.Parallel()
	c := newCarts(t)
	c.stock("shoe", 1)
	id := c.hold("a", "shoe", 1)
	first := c.get(id)
	for _, tc := range []struct {
		by  time.Duration
		err error
	}{
		{2 * time.Hour, reservations.ErrLifetimeExceeded},
		{105*time.Minute + time.Microsecond, reservations.ErrLifetimeExceeded},
		{time.Hour, nil},
		{time.Hour, reservations.ErrLifetimeExceeded},
		{45 * time.Minute, nil},
		{1<<63 - 1, reservations.ErrLifetimeExceeded},
	} {
		before := c.get(id).ExpiresAt
		r, err := inventory.Extend(t.Context(), c.db, c.tenant, id, tc.by, lifetimeMax, shopper)
		if !errors.Is(err, tc.err) {
			t.Errorf("by %s: %v, want %v", tc.by, err, tc.err)
		}
		want := before
		if tc.err == nil {
			want = before.Add(tc.by)
			if !r.ExpiresAt.Equal(want) {
				t.Errorf("by %s: returned %s, want %s", tc.by, r.ExpiresAt, want)
			}
		}
		if got := c.get(id).ExpiresAt; !got.Equal(want) {
			t.Errorf("by %s: expires at %s, want %s", tc.by, got, want)
		}
	}
	if got := c.get(id).ExpiresAt.Sub(first.FirstHeldAt); got != lifetimeMax {
		t.Errorf("the lifetime is %s, want %s", got, lifetimeMax)
	}
	c.sound()
}
