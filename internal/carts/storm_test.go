package carts_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/audit"
	"github.com/holdfast/holdfast/internal/admission"
	"github.com/holdfast/holdfast/internal/carts"
	"github.com/holdfast/holdfast/internal/inventory"
	"github.com/holdfast/holdfast/internal/lanes"
	"github.com/holdfast/holdfast/internal/queues"
	"github.com/holdfast/holdfast/internal/requestrows"
	"github.com/holdfast/holdfast/internal/reservationrows"
	"github.com/holdfast/holdfast/internal/testkit"
	"github.com/holdfast/holdfast/requests"
	"github.com/holdfast/holdfast/reservations"
	"github.com/holdfast/holdfast/verify"
)

const (
	stormCallers     = 24
	stormCalls       = 1000
	stormCarts       = 40
	stormLifetimeMax = 5 * time.Second
)

var stormVariants = []string{"shoe", "sock", "sofa", "hat", "belt", "lamp"}

// storm is a shop in which all verbs run at the same time. Holds are due after
// a second.
type storm struct {
	t       *testing.T
	b       *testkit.Fixture // uses the connections of the test
	db      *pgxpool.Pool    // for the single verbs and the sweeps
	intakes []*admission.Intake
	groups  []*carts.Groups
	stops   []func() // functions that stop the users of connections

	calls, single atomic.Int64
	mu            sync.Mutex
	holds         []uuid.UUID // ids of recently requested holds
}

func newStorm(t *testing.T) *storm {
	t.Helper()
	b := testkit.New(t, lanes.Normal)
	s := &storm{t: t, b: b}
	relaxCommits(b)
	findDeadlocksSoon(b)
	for i, v := range stormVariants {
		patch := inventory.StockPatch{Stock: new(int64(60)), HoldTTLSeconds: new(int32(1)), Backorder: new(v == "sofa")}
		if i%3 == 1 {
			patch.MaxPerCart = new(int32(9))
		}
		_, err := inventory.Set(t.Context(), b.DB, b.Tenant, v, patch, audit.Origin{})
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, v := range stormVariants[:2] {
		b.Pin(v)
	}
	config := queues.DrainConfig{Batch: 20, Terms: inventory.Terms{TTL: time.Second, LifetimeMax: stormLifetimeMax}}
	s.db = s.pool(8)
	for range 2 {
		s.process(config)
		b.Settle(s.intakes[len(s.intakes)-1])
	}
	for _, isHot := range []bool{true, true, false, false} {
		s.drain(isHot, config)
	}
	return s
}

// findDeadlocksSoon sets deadlock_timeout below the 100 ms that a wait for a
// stock lasts at least. With the default of a second, the waits of groups,
// direct decisions and drains would time out first. It stays far above the 10 ms
// that a group waits for an idempotency key: that wait may close a cycle with
// the key's call, and ends it.
func findDeadlocksSoon(b *testkit.Fixture) {
	b.TB.Helper()
	b.Exec(`ALTER DATABASE ` + pgx.Identifier{b.DB.Config().ConnConfig.Database}.Sanitize() + ` SET deadlock_timeout = '80ms'`)
	b.DB.Reset()
}

// pool opens a pool that is closed at the end of the storm.
func (s *storm) pool(connections int32) *pgxpool.Pool {
	config := s.b.DB.Config()
	config.MaxConns = connections
	pool, err := pgxpool.NewWithConfig(context.WithoutCancel(s.t.Context()), config)
	if err != nil {
		s.t.Fatal(err)
	}
	s.stops = append(s.stops, pool.Close)
	return pool
}

// process starts the parts of an API process: an intake that decides, and
// groups of verbs.
func (s *storm) process(config queues.DrainConfig) {
	admitting := *s.b
	admitting.DB = s.pool(4)
	in, err := admission.NewIntake(admitting.DB, s.b.Inserter, admission.IntakeConfig{
		Decider: admitting.NewDecider(config), Load: queues.NewLoad(admitting.DB).Read, GroupMax: 20,
	})
	if err != nil {
		s.t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = in.Run(ctx) })
	g, err := carts.New(s.pool(4), carts.Config{})
	if err != nil {
		s.t.Fatal(err)
	}
	s.intakes, s.groups = append(s.intakes, in), append(s.groups, g)
	s.stops = append(s.stops, startGroups(g), func() {
		stop()
		running.Wait()
	})
}

// drain starts a worker of a lane.
func (s *storm) drain(isHot bool, config queues.DrainConfig) {
	worker := *s.b
	worker.DB, worker.Hot = s.pool(4), isHot
	lane := worker.Lane(queues.LaneConfig{DrainConfig: config, TickEvery: 5 * time.Millisecond})
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = lane.Run(ctx) })
	s.stops = append(s.stops, func() {
		stop()
		running.Wait()
	})
}

// end ends all connections except the test's, so that their sessions report
// their deadlocks.
func (s *storm) end() {
	s.t.Helper()
	for _, stop := range slices.Backward(s.stops) {
		stop()
	}
	s.b.DB.Reset()
	s.b.Until("all sessions have ended", func() bool {
		return s.b.Int(`SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'`) == 0
	})
}

// isVerbsAnswer reports whether a verb may return the error.
func isVerbsAnswer(err error) bool {
	for _, answer := range []error{
		inventory.ErrCartEmpty, inventory.ErrHoldExpired, requestrows.ErrRequestsPending, reservations.ErrLifetimeExceeded, reservations.ErrNotFound,
	} {
		if errors.Is(err, answer) {
			return true
		}
	}
	_, conflict := errors.AsType[*reservations.ConflictError](err)
	return err == nil || conflict
}

// caller makes calls until enough are made.
func (s *storm) caller(name string, random *rand.Rand, enough <-chan struct{}) {
	ctx := s.t.Context()
	for i := 0; !s.t.Failed(); i++ {
		select {
		case <-enough:
			return
		default:
		}
		s.calls.Add(1)
		var err error
		switch n := random.IntN(40); {
		case n < 12:
			err = s.add(random)
		case n < 13:
			_, err = inventory.ExpireDue(ctx, s.db, 1+random.IntN(30))
		case n < 14:
			err = pgx.BeginFunc(ctx, s.db, func(tx pgx.Tx) error {
				_, err := inventory.ExpireDueTx(ctx, tx, 1+random.IntN(30))
				return err
			})
		case n < 15:
			_, err = inventory.ExpireVariant(ctx, s.db, inventory.Ref{TenantID: s.b.Tenant, VariantID: oneOf(random, stormVariants)}, 10)
		case n < 16:
			_, err = inventory.Adjust(ctx, s.db, s.b.Tenant, oneOf(random, stormVariants), 1+random.Int64N(9), audit.Origin{})
		default:
			err = s.verb(fmt.Sprint(name, "-", i), random)
		}
		if !isVerbsAnswer(err) {
			s.t.Errorf("caller %s: %v", name, err)
		}
	}
}

// add adds some variants to a cart, in any order.
func (s *storm) add(random *rand.Rand) error {
	cart := fmt.Sprint("cart-", random.IntN(stormCarts))
	in := oneOf(random, s.intakes)
	for _, n := range random.Perm(len(stormVariants))[:1+random.IntN(3)] {
		r, err := in.Submit(s.t.Context(), requestrows.Submission{
			TenantID: s.b.Tenant, Kind: oneOf(random, []requests.Kind{requests.Add, requests.Set}), CartID: cart,
			VariantID: stormVariants[n], Quantity: 1 + random.Int32N(3), Waits: random.IntN(8) > 0,
		})
		if err != nil {
			return err
		}
		s.mu.Lock()
		s.holds = append(s.holds, r.RequestID)
		s.mu.Unlock()
	}
	return nil
}

// hold draws one of the recently requested holds.
func (s *storm) hold(random *rand.Rand) uuid.UUID {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.holds) == 0 {
		return requestrows.NewID()
	}
	return oneOf(random, s.holds[max(0, len(s.holds)-40):])
}

// verb makes a call of a verb: in a group, as a single call, or twice with one
// key.
func (s *storm) verb(number string, random *rand.Rand) error {
	c := carts.Call{}
	c.TenantID, c.LifetimeMax = s.b.Tenant, stormLifetimeMax
	c.Origin = audit.Origin{Actor: audit.User("hf_storm0"), CorrelationID: number}
	c.By = time.Duration(100+random.IntN(400)) * time.Millisecond
	c.Reason = oneOf(random, reservationrows.ReleaseReasons)
	c.Action = inventory.CheckoutCart + inventory.Action(random.IntN(6))
	if c.Action <= inventory.ExtendCart {
		c.CartID = fmt.Sprint("cart-", random.IntN(stormCarts))
	} else {
		c.ReservationID = s.hold(random)
	}
	if c.Action == inventory.ReleaseCart && random.IntN(2) == 0 {
		c.VariantID = oneOf(random, stormVariants)
	}
	if random.IntN(5) == 0 {
		return inSingle(s.t.Context(), s.db, c).err
	}
	if c.Action == inventory.ReleaseHold || random.IntN(10) > 0 {
		return s.inGroup(c, oneOf(random, s.groups))
	}
	c = keyed(number, c)
	var again error
	var second sync.WaitGroup
	second.Go(func() { again = s.inGroup(c, s.groups[0]) })
	err := s.inGroup(c, s.groups[1])
	second.Wait()
	if !isVerbsAnswer(again) {
		return again
	}
	return err
}

func (s *storm) inGroup(c carts.Call, g *carts.Groups) error {
	a, single := inGroup(s.t.Context(), s.db, g, c)
	if single {
		s.single.Add(1)
	}
	return a.err
}

// All verbs run at the same time, over carts of several variants with holds
// that become due. They run in groups of two processes, as single calls and
// with keys. Meanwhile requests are decided directly and by drains of both
// lanes, sweeps run, and stocks change. There is no deadlock and no error
// except the documented ones, and afterwards every invariant holds.
func TestStorm(t *testing.T) {
	t.Parallel()
	for _, seed := range testkit.Seeds(1) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			s := newStorm(t)
			enough := make(chan struct{})
			end := sync.OnceFunc(func() { close(enough) })
			var callers sync.WaitGroup
			defer callers.Wait()
			defer end()
			for i := range stormCallers {
				random := rand.New(rand.NewPCG(seed, uint64(i)))
				callers.Go(func() { s.caller(fmt.Sprint(i), random, enough) })
			}
			s.b.Until("enough calls are made, and every verb has had its effect", func() bool {
				return t.Failed() || s.calls.Load() >= stormCalls && s.exercised()
			})
			end()
			callers.Wait()
			s.b.Until("everything is decided", func() bool {
				return s.b.Int(`SELECT count(*) FROM reservation_requests WHERE status IN ('queued', 'processing')`) == 0
			})
			s.end()
			s.check()
		})
	}
}

// grouped returns how many transactions committed several verbs.
func (s *storm) grouped() int64 {
	return s.b.Int(`
		SELECT count(*)
		FROM (SELECT FROM audit_log WHERE actor_id = 'hf_storm0' GROUP BY xmin::text HAVING count(DISTINCT correlation_id) > 1) AS groups`)
}

// exercised reports whether several verbs were committed in one transaction,
// and holds ended and were extended in every way.
func (s *storm) exercised() bool {
	events := []string{reservationrows.EventCommitted, reservationrows.EventReleased, reservationrows.EventExpired, reservationrows.EventExtended}
	return s.grouped() > 0 && s.b.Int(`SELECT count(DISTINCT action) FROM audit_log WHERE action = ANY ($1)`, events) == int64(len(events))
}

// check fails the test unless every invariant holds.
func (s *storm) check() {
	s.t.Helper()
	if n := s.b.Int(`SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()`); n != 0 {
		s.t.Errorf("%d deadlocks", n)
	}
	if n := s.b.Int(`SELECT count(*) FROM reservation_requests WHERE attempts > 0`); n != 0 {
		s.t.Errorf("%d requests were decided in isolated retry", n)
	}
	s.t.Logf("%d calls, %d verbs made as a single call, %d transactions of several verbs", s.calls.Load(), s.single.Load(), s.grouped())
	mustBeSound(s.t, s.b, verify.Config{LifetimeMax: stormLifetimeMax})
}
