package inventory_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/audit"
	"github.com/holdfast/holdfast/internal/inventory"
	"github.com/holdfast/holdfast/internal/pgtest"
	"github.com/holdfast/holdfast/internal/reservationrows"
	"github.com/holdfast/holdfast/reservations"
)

const (
	holdTTL     = 15 * time.Minute
	lifetimeMax = 2 * time.Hour
)

// carts is the fixture of the tests of carts. It has a database and a tenant,
// and methods that make holds and set deadlines.
type carts struct {
	t      testing.TB
	db     *pgxpool.Pool
	tenant uuid.UUID
}

func newCarts(t testing.TB) *carts {
	t.Helper()
	return &carts{t, pgtest.New(t), uuid.New()}
}

// apart returns the same database with another tenant, for another test.
func (c *carts) apart(t testing.TB) *carts {
	return &carts{t, c.db, uuid.New()}
}

// hurry turns off synchronous_commit, for tests of locks with hundreds of small
// transactions.
func (c *carts) hurry() {
	c.t.Helper()
	c.exec(fmt.Sprintf(`ALTER DATABASE %q SET synchronous_commit = off`, c.db.Config().ConnConfig.Database))
	c.db.Reset()
}

var shopper = audit.Origin{Actor: audit.User("hf_shop00"), CorrelationID: "c-7"}

func (c *carts) must(err error) {
	c.t.Helper()
	pgtest.Must(c.t, err)
}

func (c *carts) exec(sql string, args ...any) {
	c.t.Helper()
	pgtest.Exec(c.t, c.db, sql, args...)
}

func (c *carts) int(sql string, args ...any) int64 {
	c.t.Helper()
	return pgtest.Int(c.t, c.db, sql, args...)
}

// stock makes a variant.
func (c *carts) stock(variant string, stock int64) {
	c.t.Helper()
	c.exec(`INSERT INTO inventory_stocks (tenant_id, variant_id, stock) VALUES ($1, $2, $3)`, c.tenant, variant, stock)
}

// decide decides and writes the request in a separate transaction.
func (c *carts) decide(a inventory.HoldRequest) inventory.Outcome {
	c.t.Helper()
	var result inventory.Outcome
	c.must(c.in(func(tx pgx.Tx) (err error) {
		result, err = decideTx(c.t.Context(), tx, a)
		return err
	}))
	return result
}

func decideTx(ctx context.Context, tx pgx.Tx, a inventory.HoldRequest) (inventory.Outcome, error) {
	holding, err := inventory.HoldTx(ctx, tx, []inventory.HoldRequest{a}, inventory.Terms{TTL: holdTTL, LifetimeMax: lifetimeMax})
	if err != nil {
		return "", err
	}
	b := &pgx.Batch{}
	holding.Queue(b)
	return holding.Outcomes[0], tx.SendBatch(ctx, b).Close()
}

func (c *carts) add(cart, variant string, quantity int64) inventory.HoldRequest {
	return inventory.HoldRequest{TenantID: c.tenant, RequestID: uuid.Must(uuid.NewV7()), CartID: cart, VariantID: variant, Quantity: quantity, Origin: shopper}
}

func (c *carts) set(cart, variant string, quantity int64) inventory.HoldRequest {
	a := c.add(cart, variant, quantity)
	a.Replace = true
	return a
}

// hold makes a hold and returns its id.
func (c *carts) hold(cart, variant string, quantity int64) uuid.UUID {
	c.t.Helper()
	a := c.add(cart, variant, quantity)
	if v := c.decide(a); v != inventory.Granted {
		c.t.Fatalf("%d × %s for cart %s: %s", quantity, variant, cart, v)
	}
	return a.RequestID
}

// lapse makes a hold due: afterwards it was made a day ago and has been due for
// a second.
func (c *carts) lapse(id uuid.UUID) {
	c.t.Helper()
	c.exec(`UPDATE reservations
		SET first_held_at = first_held_at - interval '1 day', held_at = held_at - interval '1 day', expires_at = clock_timestamp() - interval '1 second'
		WHERE reservation_id = $1`, id)
}

func (c *carts) sweep() inventory.Sweep {
	c.t.Helper()
	s, err := inventory.ExpireDue(c.t.Context(), c.db, 100)
	c.must(err)
	return s
}

func (c *carts) in(fn func(tx pgx.Tx) error) error {
	return pgx.BeginFunc(c.t.Context(), c.db, fn)
}

func (c *carts) checkout(cart string) (committed []reservations.Reservation, err error) {
	err = c.in(func(tx pgx.Tx) error {
		committed, err = inventory.CheckoutTx(c.t.Context(), tx, c.tenant, cart, shopper)
		return err
	})
	return committed, err
}

func (c *carts) release(cart, variant string, reason reservations.ReleaseReason) (released []reservations.Reservation, err error) {
	err = c.in(func(tx pgx.Tx) error {
		released, err = inventory.ReleaseCartTx(c.t.Context(), tx, c.tenant, cart, variant, reason, shopper)
		return err
	})
	return released, err
}

func (c *carts) extend(cart string, by time.Duration) (extended []reservations.Reservation, err error) {
	err = c.in(func(tx pgx.Tx) error {
		extended, err = inventory.ExtendCartTx(c.t.Context(), tx, c.tenant, cart, by, lifetimeMax, shopper)
		return err
	})
	return extended, err
}

// get reads the stored reservation. There a hold past its deadline is held
// until its expiry is recorded.
func (c *carts) get(id uuid.UUID) reservations.Reservation {
	c.t.Helper()
	var locked []reservations.Reservation
	c.must(c.in(func(tx pgx.Tx) (err error) {
		locked, _, err = reservationrows.LockTx(c.t.Context(), tx, []reservationrows.Ref{{TenantID: c.tenant, ReservationID: id}})
		return err
	}))
	if len(locked) != 1 {
		c.t.Fatalf("%d reservations have the id %s", len(locked), id)
	}
	return locked[0]
}

// wantHold fails the test unless the reservation has the status and the reason.
func (c *carts) wantHold(id uuid.UUID, status reservations.Status, reason reservations.ReleaseReason) {
	c.t.Helper()
	if r := c.get(id); r.Status != status || r.ReleaseReason != reason {
		c.t.Errorf("hold of %d × %s by cart %s: %s %q, want %s %q", r.Quantity, r.ResourceKey, r.HolderID, r.Status, r.ReleaseReason, status, reason)
	}
}

// wantStock fails the test unless the variant has these counters.
func (c *carts) wantStock(variant string, stock, reserved int64) {
	c.t.Helper()
	s, err := inventory.Get(c.t.Context(), c.db, c.tenant, variant)
	c.must(err)
	if s.Stock != stock || s.Reserved != reserved {
		c.t.Errorf("%s: stock %d, reserved %d, want %d and %d", variant, s.Stock, s.Reserved, stock, reserved)
	}
}

// sound fails the test unless every counter matches the holds and every
// transition has its audit row.
func (c *carts) sound() {
	c.t.Helper()
	if n := c.int(`
		SELECT count(*)
		FROM inventory_stocks s
		WHERE s.reserved <> (SELECT coalesce(sum(r.quantity), 0) FROM reservations r
		                     WHERE r.tenant_id = s.tenant_id AND r.resource_kind = $1 AND r.resource_key = s.variant_id AND r.status = 'held')
		   OR (s.reserved > s.stock AND NOT s.backorder AND s.tracked)`, inventory.Kind); n != 0 {
		c.t.Errorf("%d variants whose counters do not match their holds", n)
	}
	if n := c.int(`
		SELECT count(*)
		FROM reservations r
		WHERE (SELECT count(*) FROM audit_log a WHERE a.target_id = r.reservation_id AND a.action = 'reservation.held') <> 1
		   OR (SELECT count(*) FROM audit_log a WHERE a.target_id = r.reservation_id
		       AND a.action IN ('reservation.committed', 'reservation.released', 'reservation.expired')) <> (r.status <> 'held')::int`); n != 0 {
		c.t.Errorf("%d holds without their one audit row for each transition", n)
	}
}
