package inventory_test

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/holdfast/holdfast/audit"
	"github.com/holdfast/holdfast/internal/inventory"
	"github.com/holdfast/holdfast/internal/pgtest"
	"github.com/holdfast/holdfast/internal/reservationrows"
	"github.com/holdfast/holdfast/reservations"
)

func TestExpireDue(t *testing.T) {
	t.Parallel()
	c := newCarts(t)
	c.stock("shoe", 9)
	c.stock("sock", 9)
	second, first, live := c.hold("a", "shoe", 2), c.hold("b", "sock", 3), c.hold("a", "shoe", 4)
	c.lapse(second)
	c.lapse(first)
	c.exec(`UPDATE reservations SET expires_at = expires_at - interval '1 minute' WHERE reservation_id = $1`, first)
	for i, want := range []struct {
		found, expired int
		ended          uuid.UUID
	}{{1, 1, first}, {1, 1, second}, {0, 0, uuid.Nil}} {
		s, err := inventory.ExpireDue(t.Context(), c.db, 1)
		c.must(err)
		if s.Found != want.found || s.Expired != want.expired || s.ScannedAt.IsZero() {
			t.Errorf("sweep %d: %+v, want found %d, expired %d", i, s, want.found, want.expired)
		}
		if want.ended != uuid.Nil {
			c.wantHold(want.ended, reservations.Expired, reservationrows.TTL)
		}
	}
	c.wantHold(live, reservations.Held, "")
	c.wantStock("shoe", 9, 4)
	c.wantStock("sock", 9, 0)
	records, err := audit.History(t.Context(), c.db, c.tenant, first)
	c.must(err)
	want := audit.Origin{Actor: audit.Job("expiry"), Reason: "ttl"}
	if diff := cmp.Diff(want, records[len(records)-1].Origin); diff != "" {
		t.Errorf("the expiry's origin (-want +got):\n%s", diff)
	}
	c.sound()
}

// Sweeps run all the time while a hold of one second exists. It ends at its
// deadline by the database's clock, and never before.
func TestNeverExpiresEarly(t *testing.T) {
	t.Parallel()
	c := newCarts(t)
	c.stock("candle", 1)
	c.exec(`UPDATE inventory_stocks SET hold_ttl_seconds = 1`)
	id := c.hold("a", "candle", 1)
	pgtest.Until(t, "the hold is expired", func() bool { return c.sweep().Expired > 0 })
	r := c.get(id)
	if r.EndedAt.Before(r.ExpiresAt) || r.ExpiresAt.Sub(r.HeldAt) != time.Second {
		t.Errorf("held %s, due %s, expired %s", r.HeldAt, r.ExpiresAt, r.EndedAt)
	}
	c.wantStock("candle", 1, 0)
}

// Many concurrent sweeps end each due hold once.
func TestSweepsSideBySide(t *testing.T) {
	t.Parallel()
	c := newCarts(t)
	const variants, holds = 5, 200
	c.exec(`INSERT INTO inventory_stocks (tenant_id, variant_id, stock, reserved) SELECT $1, 'v' || n, 1000, $3::integer / $2 FROM generate_series(1, $2) AS n`, c.tenant, variants, holds)
	c.exec(`INSERT INTO reservations
			(tenant_id, reservation_id, resource_kind, resource_key, holder_id, quantity, first_held_at, held_at, expires_at)
		SELECT $1, gen_random_uuid(), $2, 'v' || 1 + n % $3::integer, 'cart-' || n, 1, at, at, at + interval '1 minute'
		FROM generate_series(1, $4::integer) AS n, (SELECT clock_timestamp() - interval '1 hour' AS at) AS past`,
		c.tenant, inventory.Kind, variants, holds)
	var expired atomic.Int64
	var sweeps sync.WaitGroup
	for range 4 {
		sweeps.Go(func() {
			for {
				s, err := inventory.ExpireDue(t.Context(), c.db, 30)
				if err != nil {
					t.Error(err)
				}
				expired.Add(int64(s.Expired))
				if s.Found == 0 || err != nil {
					return
				}
			}
		})
	}
	sweeps.Wait()
	if n := expired.Load(); n != holds {
		t.Errorf("%d expired, want %d", n, holds)
	}
	if n := c.int(`SELECT sum(reserved) FROM inventory_stocks`); n != 0 {
		t.Errorf("%d still reserved", n)
	}
	if n := c.int(`SELECT count(*) FROM audit_log WHERE action = 'reservation.expired'`); n != holds {
		t.Errorf("%d audit rows, want %d", n, holds)
	}
}

// A due hold blocks no request, swept or not. A request that lacks units
// expires due holds, the longest due first and no more than it needs.
func TestHoldReclaimsDueHolds(t *testing.T) {
	t.Parallel()
	c := newCarts(t)
	c.stock("shoe", 6)
	var due []uuid.UUID
	for i := range 3 {
		id := c.hold("old", "shoe", 2)
		c.lapse(id)
		c.exec(`UPDATE reservations SET expires_at = expires_at - $2 * interval '1 minute' WHERE reservation_id = $1`, id, i)
		due = append(due, id)
	}
	if v := c.decide(c.add("new", "shoe", 7)); v != inventory.OutOfStock {
		t.Errorf("7 of 6: %s", v)
	}
	for _, id := range due {
		c.wantHold(id, reservations.Held, "") // no request needed its units
	}
	if v := c.decide(c.add("new", "shoe", 3)); v != inventory.Granted {
		t.Errorf("3 of 6: %s", v)
	}
	c.wantHold(due[2], reservations.Expired, reservationrows.TTL)
	c.wantHold(due[1], reservations.Expired, reservationrows.TTL)
	c.wantHold(due[0], reservations.Held, "")
	c.wantStock("shoe", 6, 5)
	c.sound()
}
