package carts_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/audit"
	"github.com/holdfast/holdfast/internal/carts"
	"github.com/holdfast/holdfast/internal/inventory"
	"github.com/holdfast/holdfast/internal/lanes"
	"github.com/holdfast/holdfast/internal/queues"
	"github.com/holdfast/holdfast/internal/requestrows"
	"github.com/holdfast/holdfast/internal/testkit"
	"github.com/holdfast/holdfast/requests"
	"github.com/holdfast/holdfast/reservations"
)

// twins are two databases of one tenant. In the first one verbs are made in
// groups, in the second one as single calls.
type twins struct {
	t      *testing.T
	random *rand.Rand
	b      [2]*testkit.Fixture
	lanes  [2]*queues.Lane
	holds  []uuid.UUID // ids of the requested holds
	calls  int
}

func newTwins(t *testing.T, seed uint64) *twins {
	t.Helper()
	w := &twins{t: t, random: rand.New(rand.NewPCG(seed, 1<<33))}
	for i := range w.b {
		w.b[i] = testkit.New(t, lanes.Normal)
		w.b[i].Tenant = w.b[0].Tenant
		w.lanes[i] = w.b[i].Lane(queues.LaneConfig{DrainConfig: queues.DrainConfig{
			Terms: inventory.Terms{TTL: modelTTL, LifetimeMax: modelLifetimeMax},
		}})
		for n, v := range modelVariants {
			patch := inventory.StockPatch{Stock: new(int64(120)), Backorder: new(v == "sofa")}
			if n == 1 {
				patch.MaxPerCart = new(int32(7))
			}
			_, err := inventory.Set(t.Context(), w.b[i].DB, w.b[i].Tenant, v, patch, audit.Origin{})
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	return w
}

// add admits some requests, and in some cases has them decided.
func (w *twins) add() {
	for range 3 + w.random.IntN(8) {
		s := requestrows.Submission{
			RequestID: requestrows.NewID(), Kind: oneOf(w.random, []requests.Kind{requests.Add, requests.Set}),
			CartID: oneOf(w.random, modelCarts), VariantID: oneOf(w.random, modelVariants), Quantity: 1 + w.random.Int32N(3),
		}
		w.holds = append(w.holds, s.RequestID)
		for _, b := range w.b {
			b.SubmitAs(s)
		}
	}
	if w.random.IntN(4) > 0 {
		for i, b := range w.b {
			b.Tick(w.lanes[i])
		}
	}
}

// lapse makes a hold due.
func (w *twins) lapse() {
	id := oneOf(w.random, w.holds)
	for _, b := range w.b {
		b.Exec(`UPDATE reservations SET expires_at = clock_timestamp() WHERE reservation_id = $1 AND status = 'held' AND expires_at > clock_timestamp()`, id)
	}
}

func (w *twins) sweep() {
	var swept [2]inventory.Sweep
	for i, b := range w.b {
		var err error
		swept[i], err = inventory.ExpireDue(w.t.Context(), b.DB, 100)
		if err != nil {
			w.t.Fatal(err)
		}
	}
	if swept[0].Expired != swept[1].Expired {
		w.t.Fatalf("sweeps have expired %d and %d", swept[0].Expired, swept[1].Expired)
	}
}

// draw draws calls, most of them of different carts.
func (w *twins) draw() (calls []carts.Call) {
	for range 1 + w.random.IntN(9) {
		c := carts.Call{}
		c.TenantID, c.LifetimeMax = w.b[0].Tenant, modelLifetimeMax
		c.By = oneOf(w.random, []time.Duration{time.Minute, 20 * time.Minute, 50 * time.Minute})
		c.Reason = oneOf(w.random, []reservations.ReleaseReason{reservations.CartRemoved, reservations.Abandoned})
		c.Origin = audit.Origin{Actor: audit.User("hf_shop00"), CorrelationID: fmt.Sprint("call ", w.calls)}
		w.calls++
		c.Action = oneOf(w.random, []inventory.Action{
			inventory.CheckoutCart, inventory.ReleaseCart, inventory.ExtendCart, inventory.ExtendCart, inventory.CommitHold,
			inventory.ReleaseHold, inventory.ExtendHold, inventory.ExtendHold,
		})
		if c.Action <= inventory.ExtendCart {
			c.CartID = oneOf(w.random, modelCarts)
		} else {
			c.ReservationID = oneOf(w.random, append(w.holds[max(0, len(w.holds)-20):], requestrows.NewID()))
		}
		if c.Action == inventory.ReleaseCart && w.random.IntN(2) == 0 {
			c.VariantID = oneOf(w.random, modelVariants)
		}
		calls = append(calls, c)
	}
	return calls
}

// verbs makes the calls in one group, and in the other database as single
// calls, one after the other. It compares the answers.
func (w *twins) verbs() {
	w.t.Helper()
	calls := w.draw()
	together := make([]answered, len(calls))
	g, err := carts.New(w.b[0].DB, carts.Config{})
	if err != nil {
		w.t.Fatal(err)
	}
	single := make([]bool, len(calls))
	var waiting sync.WaitGroup
	for i, c := range calls {
		waiting.Go(func() {
			r, err := g.Do(w.t.Context(), c)
			single[i] = errors.Is(err, carts.ErrNotGrouped)
			together[i] = answered{changed: r.Reservations, err: err}
		})
		awaitGathered(w.t, g, i+1)
	}
	stop := startGroups(g)
	waiting.Wait()
	stop()
	// A call that leaves its group is made after it.
	order := make([]int, 0, len(calls))
	for _, later := range []bool{false, true} {
		for i := range calls {
			if single[i] == later {
				order = append(order, i)
			}
		}
	}
	for _, i := range order {
		if single[i] {
			together[i] = inSingle(w.t.Context(), w.b[0].DB, calls[i])
		}
		one := inSingle(w.t.Context(), w.b[1].DB, calls[i])
		if diff := cmp.Diff(w.shown(calls[i], one), w.shown(calls[i], together[i])); diff != "" {
			w.t.Fatalf("call %d of %+v (-single +in the group):\n%s", i, calls, diff)
		}
	}
}

// shown returns the answer without times, which differ between the databases.
func (w *twins) shown(c carts.Call, a answered) (lines []string) {
	for i := range a.changed {
		r := &a.changed[i]
		lines = append(lines, fmt.Sprint(r.ReservationID, " ", r.HolderID, r.ResourceKey, r.Quantity, r.Status, r.ReleaseReason, r.ExpiresAt.Sub(r.HeldAt)))
	}
	for _, r := range a.cancelled {
		lines = append(lines, fmt.Sprint("cancelled ", r.RequestID))
	}
	slices.Sort(lines)
	known := false
	for _, answer := range []error{
		requestrows.ErrRequestsPending, inventory.ErrHoldExpired, inventory.ErrCartEmpty, reservations.ErrLifetimeExceeded, reservations.ErrNotFound,
	} {
		if errors.Is(a.err, answer) {
			known = true
			lines = append(lines, answer.Error())
		}
	}
	if conflict, ok := errors.AsType[*reservations.ConflictError](a.err); ok {
		known = true
		if c.CartID != "" {
			conflict = &reservations.ConflictError{Expected: conflict.Expected, Actual: conflict.Actual} // any of the cart's holds may be in conflict
		}
		lines = append(lines, conflict.Error())
	}
	if a.err != nil && !known {
		w.t.Fatalf("%+v: %v", c, a.err)
	}
	return lines
}

// twinTablesSQL reads all rows, without times.
const twinTablesSQL = `
SELECT concat_ws(' ', 'stock', s.variant_id, s.stock, s.reserved)
FROM inventory_stocks s
UNION ALL
SELECT concat_ws(' ', 'hold', h.reservation_id, h.holder_id, h.resource_key, h.quantity, h.status, h.release_reason, h.dismissed_at IS NOT NULL,
                 CASE WHEN h.status <> 'expired' AND h.expires_at > clock_timestamp() THEN h.expires_at - h.held_at END,
                 (SELECT string_agg(concat_ws(' ', a.action, a.actor_kind, a.actor_id, a.correlation_id, a.reason, a.release_reason, a.before->>'status', a.after->>'status'),
                                    ', ' ORDER BY a.audit_id)
                  FROM audit_log a
                  WHERE a.tenant_id = h.tenant_id AND a.target_id = h.reservation_id))
FROM reservations h
UNION ALL
SELECT concat_ws(' ', 'request', r.request_id, r.status, r.reason,
                 (SELECT string_agg(concat_ws(' ', a.action, a.actor_id, a.correlation_id, a.reason), ', ' ORDER BY a.audit_id)
                  FROM audit_log a
                  WHERE a.tenant_id = r.tenant_id AND a.target_id = r.request_id AND a.action LIKE 'request.%'))
FROM reservation_requests r
ORDER BY 1`

func (w *twins) compareTables() {
	w.t.Helper()
	var lists [2][]string
	for i, b := range w.b {
		rows, err := b.DB.Query(w.t.Context(), twinTablesSQL)
		if err != nil {
			w.t.Fatal(err)
		}
		lists[i], err = pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			w.t.Fatal(err)
		}
	}
	if diff := cmp.Diff(lists[1], lists[0]); diff != "" {
		w.t.Fatalf("(-single +in groups):\n%s", diff)
	}
}

// One caller makes the same calls in two shops: in groups, and by the single
// verbs, one after the other. Calls of a group that work on the same holds take
// effect in their order, all others in any order. So all answers are the same,
// and so are all rows: stocks, holds, requests, and their audit rows.
func TestGroupsAreAsSingleVerbs(t *testing.T) {
	t.Parallel()
	for _, seed := range testkit.Seeds(3) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			w := newTwins(t, seed)
			w.add()
			for range 80 {
				switch n := w.random.IntN(10); {
				case n < 3:
					w.add()
				case n < 5:
					w.lapse()
				case n < 6:
					w.sweep()
				default:
					w.verbs()
				}
			}
			w.compareTables()
			for _, b := range w.b {
				b.CheckInvariants()
			}
			const groupsSQL = `
				SELECT count(*)
				FROM (SELECT FROM audit_log WHERE actor_id = 'hf_shop00' GROUP BY xmin::text HAVING count(DISTINCT correlation_id) > 1) AS groups`
			together, single := w.b[0].Int(groupsSQL), w.b[1].Int(groupsSQL)
			t.Logf("%d calls, %d transactions of several calls", w.calls, together)
			if together == 0 || single > 0 {
				t.Errorf("%d and %d transactions of several calls", together, single)
			}
		})
	}
}
