package admission_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/internal/admission"
	"github.com/holdfast/holdfast/internal/carts"
	"github.com/holdfast/holdfast/internal/inventory"
	"github.com/holdfast/holdfast/internal/lanes"
	"github.com/holdfast/holdfast/internal/pgtest"
	"github.com/holdfast/holdfast/internal/queues"
	"github.com/holdfast/holdfast/internal/requestrows"
	"github.com/holdfast/holdfast/internal/testkit"
	"github.com/holdfast/holdfast/queues/hot"
	"github.com/holdfast/holdfast/requests"
	"github.com/holdfast/holdfast/reservations"
	"github.com/holdfast/holdfast/verify"
)

// market is a few carts and variants that many goroutines use concurrently.
type market struct {
	t        *testing.T
	b        *testkit.Fixture
	in       *admission.Intake
	lanes    []*queues.Lane
	carts    []string
	variants []string
}

const marketLifetime = 10 * time.Second

func newMarket(t *testing.T) *market {
	t.Helper()
	m := &market{t: t, b: newNormal(t), carts: []string{"a", "b", "c", "d", "e", "f"}, variants: []string{"shoe", "sock", "hat", "sofa"}}
	for i, v := range m.variants {
		patch := inventory.StockPatch{Stock: new(int64(12)), HoldTTLSeconds: new(int32(2)), Backorder: new(v == "sofa")}
		if i%2 == 0 {
			patch.MaxPerCart = new(int32(7))
		}
		_, err := inventory.Set(t.Context(), m.b.DB, m.b.Tenant, v, patch, shopper)
		pgtest.Must(t, err)
	}
	pgtest.Must(t, lanes.Pin(t.Context(), m.b.DB, m.b.Inserter, m.b.Tenant, "shoe"))
	config := queues.LaneConfig{DrainConfig: queues.DrainConfig{Batch: 10, Terms: inventory.Terms{TTL: time.Second, LifetimeMax: marketLifetime}}}
	fast, err := hot.NewLane(m.b.DB, discard, config)
	pgtest.Must(t, err)
	m.lanes = []*queues.Lane{fast, m.b.Lane(config), m.b.Lane(config)}
	m.in = m.b.Intake(admission.IntakeConfig{GroupMax: 5, QueueMax: 100})
	return m
}

// lapseOneSQL makes one of the cart's holds due at once.
const lapseOneSQL = `
WITH one AS MATERIALIZED (
    SELECT tenant_id, reservation_id
    FROM reservations
    WHERE holder_id = $1 AND status = 'held' AND expires_at > clock_timestamp()
    ORDER BY random()
    LIMIT 1
    FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE reservations r
SET expires_at = clock_timestamp()
FROM one
WHERE r.tenant_id = one.tenant_id AND r.reservation_id = one.reservation_id`

// move runs one verb at random and returns its error.
func (m *market) move(ctx context.Context) error {
	cart, variant := m.carts[rand.IntN(len(m.carts))], m.variants[rand.IntN(len(m.variants))]
	inTx := func(fn func(tx pgx.Tx) error) error { return pgx.BeginFunc(ctx, m.b.DB, fn) }
	switch n := rand.IntN(20); {
	case n < 8:
		s := requestrows.Submission{TenantID: m.b.Tenant, Kind: []requests.Kind{requests.Add, requests.Set}[n%2], CartID: cart, VariantID: variant, Quantity: 1 + rand.Int32N(4)}
		_, err := m.in.Submit(ctx, s)
		return err
	case n < 13:
		_, err := m.lanes[rand.IntN(len(m.lanes))].Tick(ctx)
		return err
	case n < 14:
		_, err := carts.Checkout(ctx, m.b.DB, m.b.Tenant, cart, shopper)
		return err
	case n < 15:
		_, err := carts.Remove(ctx, m.b.DB, m.b.Tenant, cart, []string{"", variant}[rand.IntN(2)], reservations.CartRemoved, shopper)
		return err
	case n < 16:
		return pgtest.Lapse(ctx, m.b.DB, lapseOneSQL, cart)
	case n < 17:
		return inTx(func(tx pgx.Tx) error {
			_, err := inventory.ExtendCartTx(ctx, tx, m.b.Tenant, cart, 300*time.Millisecond, marketLifetime, shopper)
			return err
		})
	case n < 18:
		_, err := inventory.ExpireDue(ctx, m.b.DB, 1+rand.IntN(10))
		return err
	case n < 19:
		_, err := inventory.Adjust(ctx, m.b.DB, m.b.Tenant, variant, 1+rand.Int64N(3), shopper)
		return err
	}
	return m.byID(ctx, cart)
}

// byID runs a verb on one reservation of the cart, in any status.
func (m *market) byID(ctx context.Context, cart string) error {
	c, err := requestrows.ViewCart(ctx, m.b.DB, m.b.Tenant, cart, 0, "")
	if err != nil || len(c.Reservations) == 0 {
		return err
	}
	id := c.Reservations[rand.IntN(min(5, len(c.Reservations)))].ReservationID
	switch rand.IntN(3) {
	case 0:
		_, err = inventory.Commit(ctx, m.b.DB, m.b.Tenant, id, shopper)
	case 1:
		_, err = inventory.Release(ctx, m.b.DB, m.b.Tenant, id, reservations.PaymentFailed, shopper)
	default:
		_, err = inventory.Extend(ctx, m.b.DB, m.b.Tenant, id, 200*time.Millisecond, marketLifetime, shopper)
	}
	return err
}

// isAnswer reports whether the shop may return the error.
func isAnswer(err error) bool {
	for _, answer := range []error{
		inventory.ErrCartEmpty, inventory.ErrHoldExpired, inventory.ErrBelowReserved, requestrows.ErrRequestsPending, reservations.ErrLifetimeExceeded,
	} {
		if errors.Is(err, answer) {
			return true
		}
	}
	_, conflict := errors.AsType[*reservations.ConflictError](err)
	return err == nil || conflict
}

// All verbs run concurrently over shared carts and variants, and holds expire
// all the time. There is no deadlock and no error that the shop may not return.
// Afterwards every invariant holds.
func TestEverythingAtOnce(t *testing.T) {
	t.Parallel()
	m := newMarket(t)
	var running sync.WaitGroup
	for range 12 {
		running.Go(func() {
			for range 80 {
				if err := m.move(t.Context()); !isAnswer(err) {
					t.Error(err)
				}
			}
		})
	}
	running.Wait()
	pgtest.Until(t, "everything is decided", func() bool {
		for _, lane := range m.lanes {
			m.b.Tick(lane)
		}
		return m.b.Int(`SELECT count(*) FROM reservation_requests WHERE status IN ('queued', 'processing')`) == 0
	})
	if n := m.b.Int(`SELECT count(*) FROM reservation_requests WHERE attempts > 0`); n != 0 {
		t.Errorf("%d requests were retried", n)
	}
	for _, sort := range []string{"committed", "released", "expired", "extended"} {
		if m.b.Int(`SELECT count(*) FROM audit_log WHERE action = 'reservation.' || $1`, sort) == 0 {
			t.Errorf("nothing was %s, so the test proves nothing", sort)
		}
	}
	if n := m.b.Int(`SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()`); n != 0 {
		t.Errorf("%d deadlocks", n)
	}
	m.b.CheckInvariants()
	report, err := verify.Run(t.Context(), m.b.DB, verify.Config{LifetimeMax: marketLifetime})
	pgtest.Must(t, err)
	for _, check := range report.Checks {
		byHand := check.Name == "record_agrees" || check.Name == "record_chained" // the test moves deadlines without a verb
		if check.Broken > 0 && !byHand {
			t.Errorf("%s: %d rows, such as %s", check.Name, check.Broken, check.Sample[0])
		}
	}
}

// Many carts try to buy the last units of a variant whose holds keep expiring.
// Each unit is sold once: P1 and P5 under load.
func TestLastUnits(t *testing.T) {
	t.Parallel()
	b := newHot(t).With("plan_cache_mode", "force_custom_plan") // as in the programs, because the tables grow from nothing
	b.Stock("candle", 4)
	b.Exec(`UPDATE inventory_stocks SET hold_ttl_seconds = 1`)
	served := []*queues.Lane{b.Lane(queues.LaneConfig{}), b.Lane(queues.LaneConfig{})}
	in := b.Intake(admission.IntakeConfig{})
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	for i := range 8 {
		running.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				cart := fmt.Sprintf("cart-%d-%d", i, n)
				err := buy(ctx, b, in, served[i%2], cart, rand.IntN(2) == 0) // holds that are not paid for expire
				if ctx.Err() == nil && !isAnswer(err) {
					t.Error(err)
				}
			}
		})
	}
	pgtest.Until(t, "all are sold", func() bool { return b.Int(`SELECT stock FROM inventory_stocks`) == 0 })
	stop()
	running.Wait()
	b.Tick(served[0])
	if n := b.Int(`SELECT count(*) FROM reservations WHERE status = 'committed'`); n != 4 {
		t.Errorf("%d sold of 4", n)
	}
	b.CheckInvariants()
}

// buy adds one candle to the cart, waits for the decision and, if pay is set,
// checks out.
func buy(ctx context.Context, b *testkit.Fixture, in *admission.Intake, lane *queues.Lane, cart string, pay bool) error {
	r, err := in.Submit(ctx, requestrows.Submission{TenantID: b.Tenant, CartID: cart, VariantID: "candle", Quantity: 1})
	for err == nil && !r.Status.Finished() {
		if _, err := lane.Serve(ctx, r.Slot); err != nil && !errors.Is(err, lanes.ErrBusy) {
			return err
		}
		var v requests.View
		v, err = requestrows.Get(ctx, b.DB, b.Tenant, r.RequestID)
		r = v.Request
	}
	if err != nil || !pay {
		return err
	}
	_, err = carts.Checkout(ctx, b.DB, b.Tenant, cart, shopper)
	return err
}
