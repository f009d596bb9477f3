package carts_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/audit"
	"github.com/holdfast/holdfast/internal/admission"
	"github.com/holdfast/holdfast/internal/carts"
	"github.com/holdfast/holdfast/internal/inventory"
	"github.com/holdfast/holdfast/internal/lanes"
	"github.com/holdfast/holdfast/internal/pgtest"
	"github.com/holdfast/holdfast/internal/queues"
	"github.com/holdfast/holdfast/internal/requestrows"
	"github.com/holdfast/holdfast/internal/reservationrows"
	"github.com/holdfast/holdfast/internal/testkit"
	"github.com/holdfast/holdfast/requests"
	"github.com/holdfast/holdfast/reservations"
)

const (
	modelCallers   = 16
	modelCallsEach = 4
	modelRounds    = 8
)

var (
	modelCarts    = []string{"a", "b", "c", "d", "e", "f", "g", "h"}
	modelVariants = []string{"shoe", "sock", "sofa"}
)

// modelShop is the tested system: two processes that commit verbs in groups,
// one that admits and decides, and drains of both lanes. The variant "shoe" is
// hot, "sock" has a limit per cart, and "sofa" allows backorder.
type modelShop struct {
	t      *testing.T
	b      *testkit.Fixture
	in     *admission.Intake
	lanes  []*queues.Lane
	groups []*carts.Groups
	m      *model

	crowdDB *pgxpool.Pool
	crowd   *carts.Groups // the group of many callers in this round

	clock atomic.Int64
	last  int64 // the last audit id of earlier rounds

	mu     sync.Mutex
	calls  []*asked
	fresh  []uuid.UUID   // holds that were made in this round
	sweeps map[int64]int // by transaction of a sweep, the number of holds that it expired
	held   int           // requests that drains granted
	failed int           // requests that drains rejected
	single atomic.Int64  // calls that were not grouped
}

func newModelShop(t *testing.T) *modelShop {
	t.Helper()
	b := testkit.New(t, lanes.Normal)
	relaxCommits(b)
	for _, v := range modelVariants {
		b.Stock(v, 0)
	}
	b.Exec(`UPDATE inventory_stocks SET backorder = true WHERE variant_id = 'sofa'`)
	b.Pin("shoe")
	config := queues.LaneConfig{DrainConfig: queues.DrainConfig{
		Batch: 10, Terms: inventory.Terms{TTL: modelTTL, LifetimeMax: modelLifetimeMax},
	}}
	b.Decider = b.NewDecider(config.DrainConfig)
	s := &modelShop{t: t, b: b, in: b.Intake(admission.IntakeConfig{})}
	b.Settle(s.in)
	s.lanes = []*queues.Lane{b.HotLane(config), b.Lane(config), b.Lane(config)}
	s.crowdDB = ownPool(t, b.DB, 4)
	for range 2 {
		s.groups = append(s.groups, runGroups(t, ownPool(t, b.DB, 4), carts.Config{}))
	}
	return s
}

// reset deletes all rows and makes the stocks again.
func (s *modelShop) reset(random *rand.Rand) {
	s.b.Exec(`DELETE FROM reservations`)
	s.b.Exec(`DELETE FROM reservation_requests`)
	s.b.Exec(`DELETE FROM idempotency_keys`)
	s.m = newModel()
	s.last = s.b.Int(`SELECT coalesce(max(audit_id), 0) FROM audit_log`)
	for _, v := range modelVariants {
		stock := &modelStock{stock: 8 + random.Int64N(20), backorder: v == "sofa"}
		if v == "sock" {
			stock.maxPerCart = 4 + random.Int64N(5)
		}
		s.m.stocks[v] = stock
		s.b.Exec(`UPDATE inventory_stocks SET stock = $2, reserved = 0, max_per_cart = nullif($3, 0) WHERE variant_id = $1`, v, stock.stock, stock.maxPerCart)
	}
}

// begin begins a round of calls.
func (s *modelShop) begin() {
	s.m.begin()
	s.calls, s.fresh, s.sweeps, s.held, s.failed = nil, nil, map[int64]int{}, 0, 0
}

// record makes a call between two readings of the clock, and adds it to the
// round.
func (s *modelShop) record(c *asked, run func()) {
	c.begun = s.clock.Add(1)
	run()
	c.ended = s.clock.Add(1)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls = append(s.calls, c)
	if c.view.Status == requests.Done {
		s.fresh = append(s.fresh, c.view.RequestID)
	}
}

// caller makes some random calls, one after the other. The first one may be in
// the group of the crowd.
func (s *modelShop) caller(name string, random *rand.Rand, crowded bool) {
	if crowded {
		c := s.draw(random)
		s.make(name+"-crowded", c, s.crowd)
	}
	for i := range modelCallsEach {
		number := fmt.Sprint(name, "-", i)
		switch n := random.IntN(100); {
		case n < 36:
			s.submit(number, random)
		case n < 56:
			s.tick(random)
		case n < 59:
			s.sweep(1 + random.IntN(5))
		default:
			s.verb(number, random)
		}
	}
}

func oneOf[T any](random *rand.Rand, list []T) T { return list[random.IntN(len(list))] }

func (s *modelShop) submit(number string, random *rand.Rand) {
	c := &asked{number: number, submission: &requestrows.Submission{
		TenantID: s.b.Tenant, RequestID: requestrows.NewID(), Kind: oneOf(random, []requests.Kind{requests.Add, requests.Add, requests.Set}),
		CartID: oneOf(random, modelCarts), VariantID: oneOf(random, modelVariants), Quantity: 1 + random.Int32N(4),
		CorrelationID: number, Waits: random.IntN(6) > 0,
	}}
	s.record(c, func() { c.view, _, c.err = s.in.SubmitMetered(s.t.Context(), *c.submission, admission.Credentials{}) })
}

func (s *modelShop) tick(random *rand.Rand) {
	report, err := oneOf(random, s.lanes).Tick(s.t.Context())
	if err != nil {
		s.t.Errorf("tick: %v", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held += report.Held
	s.failed += report.Rejected
}

func (s *modelShop) sweep(limit int) {
	var id int64
	var swept inventory.Sweep
	err := pgx.BeginFunc(s.t.Context(), s.b.DB, func(tx pgx.Tx) (err error) {
		if err := tx.QueryRow(s.t.Context(), `SELECT pg_current_xact_id()::text::bigint`).Scan(&id); err != nil {
			return err
		}
		swept, err = inventory.ExpireDueTx(s.t.Context(), tx, limit)
		return err
	})
	if err != nil || swept.Expired > limit {
		s.t.Errorf("sweep of %d: %+v, %v", limit, swept, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sweeps[id&0xffffffff] = swept.Expired // the low 32 bits, as in xmin
}

// verb makes a call of a verb, sometimes twice with one idempotency key.
func (s *modelShop) verb(number string, random *rand.Rand) {
	c := s.draw(random)
	if c.Action == inventory.ReleaseHold || random.IntN(6) > 0 {
		s.make(number, c, s.group(random))
		return
	}
	c = keyed("key "+number, c)
	first, second := s.group(random), s.group(random)
	var again sync.WaitGroup
	again.Go(func() { s.make(number+"-again", c, second) })
	if random.IntN(2) == 0 {
		again.Wait()
	}
	s.make(number, c, first)
	again.Wait()
}

// group draws the process that receives a call, or nil for one that commits
// each call individually.
func (s *modelShop) group(random *rand.Rand) *carts.Groups {
	if random.IntN(6) == 0 {
		return nil
	}
	return oneOf(random, s.groups)
}

// draw draws a call of a verb.
func (s *modelShop) draw(random *rand.Rand) (c carts.Call) {
	cart := oneOf(random, modelCarts)
	c.TenantID = s.b.Tenant
	c.By = oneOf(random, []time.Duration{time.Minute, 10 * time.Minute, 50 * time.Minute})
	c.LifetimeMax = modelLifetimeMax
	switch n := random.IntN(24); {
	case n < 5:
		c.Action, c.CartID = inventory.CheckoutCart, cart
	case n < 8:
		c.Action, c.CartID, c.VariantID, c.Reason = inventory.ReleaseCart, cart, oneOf(random, modelVariants), reservations.CartRemoved
	case n < 10:
		c.Action, c.CartID, c.Reason = inventory.ReleaseCart, cart, reservations.Abandoned
	case n < 15:
		c.Action, c.CartID = inventory.ExtendCart, cart
	case n < 18:
		c.Action, c.ReservationID = inventory.CommitHold, s.pick(random)
	case n < 21:
		c.Action, c.ReservationID, c.Reason = inventory.ReleaseHold, s.pick(random), reservations.PaymentFailed
	default:
		c.Action, c.ReservationID = inventory.ExtendHold, s.pick(random)
	}
	return c
}

// pick draws the id of a hold of this round, of an earlier one, of one that has
// ended, or of one that never existed.
func (s *modelShop) pick(random *rand.Rand) uuid.UUID {
	s.mu.Lock()
	fresh := slices.Clone(s.fresh)
	s.mu.Unlock()
	var held, ended []uuid.UUID
	for id, h := range s.m.holds {
		if h.status == reservations.Held {
			held = append(held, id)
		} else {
			ended = append(ended, id)
		}
	}
	for _, ids := range [][]uuid.UUID{held, ended} {
		slices.SortFunc(ids, func(a, b uuid.UUID) int { return slices.Compare(a[:], b[:]) })
	}
	switch n := random.IntN(20); {
	case n < 10 && len(held) > 0:
		return oneOf(random, held)
	case n < 18 && len(fresh) > 0:
		return oneOf(random, fresh)
	case n < 19 && len(ended) > 0:
		return oneOf(random, ended)
	}
	return requestrows.NewID()
}

// make makes a call in a group or, with nil, in a separate transaction.
func (s *modelShop) make(number string, call carts.Call, g *carts.Groups) {
	call.Origin = audit.Origin{Actor: audit.User("hf_shop00"), CorrelationID: number}
	c := &asked{number: number, call: &call, single: g == nil}
	s.record(c, func() {
		var a answered
		if c.single {
			a = inSingle(s.t.Context(), s.b.DB, call)
		} else if a, c.single = inGroup(s.t.Context(), s.b.DB, g, call); c.single {
			s.single.Add(1)
		}
		c.changed, c.replayed, c.err = a.changed, a.replayed, a.err
		for _, r := range a.cancelled {
			c.cancelled = append(c.cancelled, r.RequestID)
		}
	})
}

const (
	entriesSQL = `
SELECT audit_id, xmin::text::bigint, target_id, action, coalesce(correlation_id, ''),
       coalesce(after->>'reason', release_reason, ''), expires_at
FROM audit_log
WHERE tenant_id = $1 AND audit_id > $2 AND (action LIKE 'reservation.%' OR action = 'request.failed')
ORDER BY audit_id`
	madeSQL = `
SELECT r.request_id, r.sequence, h.first_held_at, h.held_at
FROM reservation_requests r
LEFT JOIN reservations h ON h.tenant_id = r.tenant_id AND h.reservation_id = r.request_id
WHERE r.tenant_id = $1`
)

// finish repeats the round on the model. It compares all answers, and then all
// rows.
func (s *modelShop) finish() {
	s.t.Helper()
	ctx := s.t.Context()
	rows, err := s.b.DB.Query(ctx, entriesSQL, s.b.Tenant, s.last)
	s.must(err)
	entries, err := pgx.CollectRows(rows, pgx.RowToStructByPos[entry])
	s.must(err)
	rows, err = s.b.DB.Query(ctx, madeSQL, s.b.Tenant)
	s.must(err)
	list, err := pgx.CollectRows(rows, pgx.RowToStructByPos[made])
	s.must(err)
	facts := make(map[uuid.UUID]made, len(list))
	for _, f := range list {
		facts[f.RequestID] = f
	}
	for _, c := range s.calls {
		s.m.addCall(c)
	}
	s.m.replay(entries, facts)
	s.compareReports(entries)
	if len(entries) > 0 {
		s.last = entries[len(entries)-1].AuditID
	}
	s.compareTables()
	if len(s.m.faults) > 0 {
		s.explain()
	}
}

func (s *modelShop) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// compareReports compares the reports of drains and sweeps with the record.
func (s *modelShop) compareReports(entries []entry) {
	expired := map[int64]int{}
	for _, e := range entries {
		if e.Action == reservationrows.EventExpired {
			expired[e.Transaction]++
		}
	}
	for id, n := range s.sweeps {
		if expired[id] != n {
			s.m.fault("a sweep reports %d expired, and has recorded %d", n, expired[id])
		}
	}
	held, failed := 0, 0
	for _, r := range s.m.requests {
		switch byDrain := r.asked == nil || r.asked.view.Status == requests.Queued; {
		case !byDrain || r.cancelledBy != nil || r.finished == 0 || r.finished == never:
		case r.status == requests.Done:
			held++
		default:
			failed++
		}
	}
	if held != s.held || failed != s.failed {
		s.m.fault("drains report %d granted and %d rejected, want %d and %d as in the model", s.held, s.failed, held, failed)
	}
}

// compareTables compares all rows with the model.
func (s *modelShop) compareTables() {
	s.t.Helper()
	ctx := s.t.Context()
	var want, got []string
	for variant, v := range s.m.stocks {
		want = append(want, fmt.Sprintln("stock", variant, v.stock, s.m.reserved(variant)))
	}
	for id, r := range s.m.requests {
		want = append(want, fmt.Sprintln("request", id, r.status, r.reason))
	}
	for id, h := range s.m.holds {
		want = append(want, fmt.Sprintln("hold", id, h.cart, h.variant, h.quantity, h.status, h.reason, h.expires.UnixMicro(), h.dismissed))
	}
	rows, err := s.b.DB.Query(ctx, `SELECT variant_id, stock, reserved FROM inventory_stocks WHERE tenant_id = $1`, s.b.Tenant)
	s.must(err)
	var text [5]string
	var n, m int64
	_, err = pgx.ForEachRow(rows, []any{&text[0], &n, &m}, func() error {
		got = append(got, fmt.Sprintln("stock", text[0], n, m))
		return nil
	})
	s.must(err)
	rows, err = s.b.DB.Query(ctx, `SELECT request_id, status, coalesce(reason, '') FROM reservation_requests WHERE tenant_id = $1`, s.b.Tenant)
	s.must(err)
	var id uuid.UUID
	_, err = pgx.ForEachRow(rows, []any{&id, &text[0], &text[1]}, func() error {
		got = append(got, fmt.Sprintln("request", id, text[0], text[1]))
		return nil
	})
	s.must(err)
	const holdsSQL = `
		SELECT reservation_id, holder_id, resource_key, quantity, status, coalesce(release_reason, ''), expires_at, dismissed_at IS NOT NULL
		FROM reservations
		WHERE tenant_id = $1`
	rows, err = s.b.DB.Query(ctx, holdsSQL, s.b.Tenant)
	s.must(err)
	var expires time.Time
	var dismissed bool
	_, err = pgx.ForEachRow(rows, []any{&id, &text[0], &text[1], &n, &text[2], &text[3], &expires, &dismissed}, func() error {
		got = append(got, fmt.Sprintln("hold", id, text[0], text[1], n, text[2], text[3], expires.UnixMicro(), dismissed))
		return nil
	})
	s.must(err)
	slices.Sort(want)
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		s.m.fault("(-model +real):\n%s", diff)
	}
}

// explain fails the test with the faults and all steps of the round.
func (s *modelShop) explain() {
	s.t.Helper()
	var text strings.Builder
	for _, fault := range s.m.faults {
		fmt.Fprintln(&text, "-", fault)
	}
	slices.SortFunc(s.m.calls, func(a, b *asked) int { return int(a.begun - b.begun) })
	for _, c := range s.m.calls {
		fmt.Fprintln(&text, c)
	}
	for _, p := range s.m.steps {
		for _, e := range p.entries {
			fmt.Fprintf(&text, "step %d: %s of %s (%s) by %q\n", p.place, e.Action, e.Target, e.Reason, e.Correlation)
		}
	}
	s.t.Fatalf("round %d differs from the model:\n%s", s.m.round, &text)
}

// quiet is a round without concurrency, in which all queued requests may be
// decided and a sweep may end due holds.
func (s *modelShop) quiet(random *rand.Rand) {
	s.t.Helper()
	s.begin()
	if random.IntN(2) == 0 {
		for _, lane := range s.lanes {
			report := s.b.Tick(lane)
			s.held += report.Held
			s.failed += report.Rejected
		}
	}
	if random.IntN(3) == 0 {
		_, err := inventory.ExpireDue(s.t.Context(), s.b.DB, 1000)
		s.must(err)
		if left := s.b.Int(`SELECT count(*) FROM reservations WHERE status = 'held' AND expires_at <= clock_timestamp()`); left > 0 {
			s.t.Errorf("a sweep has left %d due holds", left)
		}
	}
	s.finish()
}

// pass makes time pass: holds become due, and stocks are raised.
func (s *modelShop) pass(random *rand.Rand) {
	s.t.Helper()
	ids := make([]uuid.UUID, 0, len(s.m.holds))
	for id := range s.m.holds {
		ids = append(ids, id)
	}
	slices.SortFunc(ids, func(a, b uuid.UUID) int { return slices.Compare(a[:], b[:]) })
	for _, id := range ids {
		if h := s.m.holds[id]; h.live() && random.IntN(8) == 0 {
			const lapseSQL = `UPDATE reservations SET expires_at = clock_timestamp() WHERE reservation_id = $1 RETURNING expires_at`
			s.must(s.b.DB.QueryRow(s.t.Context(), lapseSQL, id).Scan(&h.expires))
			h.lapsedIn = s.m.round
		}
	}
	pgtest.LowerMarks(s.t, s.b.DB)
	for _, v := range modelVariants {
		if units := random.Int64N(12); units > 0 && s.m.stocks[v].stock < 30 {
			_, err := inventory.Adjust(s.t.Context(), s.b.DB, s.b.Tenant, v, units, audit.Origin{})
			s.must(err)
			s.m.stocks[v].stock += units
		}
	}
}

// sales makes concurrent calls of a round. Half of the callers begin with a
// call of one large group.
func (s *modelShop) sales(seed uint64, round int) {
	s.t.Helper()
	s.begin()
	crowd, err := carts.New(s.crowdDB, carts.Config{})
	s.must(err)
	s.crowd = crowd
	var callers sync.WaitGroup
	for i := range modelCallers {
		random := rand.New(rand.NewPCG(seed, uint64(round*modelCallers+i)))
		callers.Go(func() { s.caller(fmt.Sprint(seed, "-", round, "-", i), random, i%2 == 0) })
	}
	awaitGathered(s.t, crowd, modelCallers/2)
	stop := startGroups(crowd)
	callers.Wait()
	stop()
	s.finish()
}

// TestModel compares the answers of all verbs, to 16 concurrent callers, with a
// simple model that does one step at a time.
//
// The order in which concurrent calls take effect is not known in advance. A
// search for one (porcupine) would need a model of the whole shop, because a
// cart has several variants. The record has the order: each call has a
// correlation id, and the rows of two transactions that locked the same stock
// are in the order of their locks. So the model repeats the record. Each call
// that changed something must have changed, and answered, exactly what the
// model's verb changes at that place. A call that changed nothing has no place
// in the record. Its answer must be correct at some moment between its
// beginning and its end, as far as the places of other calls bound it. The
// model also decides requests and expires holds. After each round all rows are
// compared.
//
// Carts are not locked. So a verb of a cart may miss a hold of another variant
// that is made during the call, and it reads the pending requests and the
// unseen expiries at different moments. The model allows only that. Time passes
// only between rounds, so this test does not check which reading of the clock a
// decision uses.
func TestModel(t *testing.T) {
	t.Parallel()
	s := newModelShop(t)
	calls, grouped := 0, int64(0)
	for _, seed := range testkit.Seeds(3) {
		random := rand.New(rand.NewPCG(seed, 1<<32))
		s.reset(random)
		for round := range modelRounds {
			s.sales(seed, round)
			calls += len(s.calls)
			s.quiet(random)
			s.pass(random)
			if t.Failed() {
				t.Fatalf("seed %d, round %d", seed, round)
			}
		}
		s.b.CheckInvariants()
		const groupsSQL = `
			SELECT count(*)
			FROM (SELECT FROM audit_log WHERE actor_id = 'hf_shop00' GROUP BY xmin::text HAVING count(DISTINCT correlation_id) > 1) AS groups`
		grouped += s.b.Int(groupsSQL)
		s.b.Exec(`DELETE FROM audit_log`)
	}
	t.Logf("%d calls, %d transactions of several verbs, %d verbs made as a single call", calls, grouped, s.single.Load())
	if grouped == 0 {
		t.Error("no two verbs were committed in one transaction")
	}
}
