package inventory_test

import (
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/holdfast/holdfast/internal/inventory"
	"github.com/holdfast/holdfast/internal/pgtest"
	"github.com/holdfast/holdfast/internal/reservationrows"
	"github.com/holdfast/holdfast/reservations"
)

// While a sweep waits for the stock of a hot item it blocks no other
// transaction: all other due holds have expired, and no other stock is locked.
func TestSweepWaitsForOneAlone(t *testing.T) {
	t.Parallel()
	c := newCarts(t)
	for _, variant := range []string{"calm", "hot", "mild"} {
		c.stock(variant, 5)
	}
	calm, hot, mild := c.hold("a", "calm", 1), c.hold("a", "hot", 2), c.hold("a", "mild", 1)
	for _, id := range []any{calm, hot, mild} {
		c.exec(`UPDATE reservations SET expires_at = clock_timestamp() - interval '1 minute', held_at = held_at - interval '1 hour' WHERE reservation_id = $1`, id)
	}
	drain, err := c.db.Begin(t.Context())
	c.must(err)
	defer func() { _ = drain.Rollback(t.Context()) }()
	_, err = drain.Exec(t.Context(), `SELECT FROM inventory_stocks WHERE variant_id = 'hot' FOR NO KEY UPDATE`)
	c.must(err)

	swept := make(chan inventory.Sweep, 1)
	go func() {
		s, err := inventory.ExpireDue(t.Context(), c.db, 10)
		if err != nil {
			t.Error(err)
		}
		swept <- s
	}()
	pgtest.Until(t, "the sweep waits for the hot item", func() bool {
		return c.int(`SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`) > 0
	})
	c.wantHold(calm, reservations.Expired, reservationrows.TTL)
	c.wantHold(mild, reservations.Expired, reservationrows.TTL)
	c.wantHold(hot, reservations.Held, "")
	if n := c.int(`SELECT count(*) FROM (SELECT FROM inventory_stocks WHERE variant_id <> 'hot' FOR NO KEY UPDATE SKIP LOCKED) AS free`); n != 2 {
		t.Errorf("%d of the 2 other stocks are free", n)
	}
	c.must(drain.Rollback(t.Context()))
	if s := <-swept; s.Found != 3 || s.Expired != 3 {
		t.Errorf("%+v, want 3 found and expired", s)
	}
	c.wantHold(hot, reservations.Expired, reservationrows.TTL)
	c.sound()
}

// A sweep leaves out holds that are recently due if another transaction has
// locked their variant's stock. It does not wait, and reports no error. The
// next sweep ends them.
func TestSweepSkipsABusyVariant(t *testing.T) {
	t.Parallel()
	c := newCarts(t)
	c.stock("calm", 5)
	c.stock("hot", 5)
	calm, hot := c.hold("a", "calm", 1), c.hold("a", "hot", 2)
	c.lapse(calm)
	c.lapse(hot)
	drain := c.session()
	drain.exec(`SELECT FROM inventory_stocks WHERE variant_id = 'hot' FOR NO KEY UPDATE`)
	if s := c.sweep(); s.Found != 2 || s.Expired != 1 {
		t.Errorf("%+v, want 2 found and 1 expired", s)
	}
	c.wantHold(calm, reservations.Expired, reservationrows.TTL)
	c.wantHold(hot, reservations.Held, "")
	drain.end(nil)
	if s := c.sweep(); s.Expired != 1 {
		t.Errorf("once the stock is free: %+v", s)
	}
	c.sound()
}

// A variant whose counters do not cover its due holds is reported, and the
// holds of other variants expire. Only a manual change of the rows can cause
// such counters.
func TestSweepSkipsABrokenVariant(t *testing.T) {
	t.Parallel()
	c := newCarts(t)
	c.stock("broken", 5)
	c.stock("sound", 5)
	broken, sound := c.hold("a", "broken", 2), c.hold("a", "sound", 2)
	c.exec(`UPDATE reservations SET expires_at = clock_timestamp() - interval '1 second', held_at = held_at - interval '1 hour'`)
	c.exec(`UPDATE inventory_stocks SET reserved = 1 WHERE variant_id = 'broken'`)
	s, err := inventory.ExpireDue(t.Context(), c.db, 10)
	if err == nil || s.Found != 2 || s.Expired != 1 {
		t.Errorf("%+v, %v, want 2 found, 1 expired and an error", s, err)
	}
	c.wantHold(sound, reservations.Expired, reservationrows.TTL)
	c.wantHold(broken, reservations.Held, "")
	c.wantStock("sound", 5, 0)
}

// A pass leaves out a tenant with more broken variants than it skips, although
// that tenant's holds are the longest due. The holds of another tenant expire.
func TestSweepLeavesOutABrokenTenant(t *testing.T) {
	t.Parallel()
	c := newCarts(t)
	broken := uuid.New()
	const variants = inventory.TenantSkippedMax + 20
	c.exec(`INSERT INTO inventory_stocks (tenant_id, variant_id, stock, reserved) SELECT $1, 'v' || n, 5, 0 FROM generate_series(1, $2::integer) AS n`, broken, variants)
	c.exec(`INSERT INTO reservations
			(tenant_id, reservation_id, resource_kind, resource_key, holder_id, quantity, first_held_at, held_at, expires_at)
		SELECT $1, gen_random_uuid(), $2, 'v' || n, 'cart-' || n, 1, at, at, at + interval '1 minute'
		FROM generate_series(1, $3::integer) AS n, (SELECT clock_timestamp() - interval '1 hour' AS at) AS past`,
		broken, inventory.Kind, variants)
	c.stock("sound", 5)
	sound := c.hold("a", "sound", 2)
	c.lapse(sound)

	expiry := inventory.NewExpiry(c.db)
	const batch = 50
	for more := true; more; {
		s, err := expiry.Next(t.Context(), batch)
		if err != nil {
			t.Fatalf("the pass ended early: %v", err)
		}
		more = s.Found == batch
	}
	c.wantHold(sound, reservations.Expired, reservationrows.TTL)
	c.wantStock("sound", 5, 0)
	skipped := expiry.Skipped()
	if len(skipped) != inventory.TenantSkippedMax {
		t.Fatalf("%d variants were skipped, want %d", len(skipped), inventory.TenantSkippedMax)
	}
	if last := skipped[len(skipped)-1]; !last.Broken() || !strings.Contains(last.Err.Error(), "left out of this pass") {
		t.Errorf("the last variant skipped: %v, want that its tenant is left out", last.Err)
	}
}
