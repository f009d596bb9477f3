package queues_test

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/internal/admission"
	"github.com/holdfast/holdfast/internal/lanes"
	"github.com/holdfast/holdfast/internal/pg"
	"github.com/holdfast/holdfast/internal/pgtest"
	"github.com/holdfast/holdfast/internal/queues"
	"github.com/holdfast/holdfast/internal/requestrows"
	"github.com/holdfast/holdfast/internal/testkit"
	"github.com/holdfast/holdfast/requests"
	"github.com/holdfast/holdfast/verify"
)

const (
	// loadCalls is how many requests the callers of a load send together.
	loadCalls = 1200
	// outcomeWithin is the longest time that a caller waits for an outcome.
	outcomeWithin = 5 * time.Minute
	// idleWithin is the longest time after a load until every request has an
	// outcome.
	idleWithin = 5 * time.Minute
)

// api is a process that admits requests, decides those whose callers wait, and
// answers these callers.
type api struct {
	intake  *admission.Intake
	watcher *requestrows.Watcher
	direct  atomic.Int64 // requests of the hot lane that were decided as they were admitted
}

// startAPI starts an API with its own connections. It ends with the test.
func startAPI(t *testing.T, b *testkit.Fixture) *api {
	t.Helper()
	admitting := *b
	admitting.DB = newPool(t, b.DB, nil)
	inserter, err := queues.NewWakeInserter(admitting.DB)
	if err != nil {
		t.Fatal(err)
	}
	admitting.Inserter = inserter
	admitting.Decider = admitting.NewDecider(queues.DrainConfig{})
	a := &api{
		intake:  admitting.Intake(admission.IntakeConfig{}),
		watcher: requestrows.NewWatcher(newPool(t, b.DB, nil), slog.New(slog.DiscardHandler)),
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	var running sync.WaitGroup
	running.Go(func() { _ = admitting.Decider.Run(ctx) })
	running.Go(func() { _ = a.watcher.Run(ctx) })
	t.Cleanup(func() {
		stop()
		running.Wait()
	})
	return a
}

// keepingPlans opens another pool to the database. Its connections keep their
// plans, as in the programs that admit and drain.
func keepingPlans(t *testing.T, db *pgxpool.Pool) *pgxpool.Pool {
	t.Helper()
	config := db.Config()
	pg.ForceGenericPlans(config)
	pool, err := pgxpool.NewWithConfig(context.WithoutCancel(t.Context()), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

// processes are two APIs, two workers of the hot lane and one of the normal lane over
// one database. The variant "shoe" is pinned to the hot lane, "sock" is normal.
type processes struct {
	b     *testkit.Fixture
	apis  [2]*api
	clock atomic.Int64 // logical

	mu    sync.Mutex
	calls []timed
}

// timed is a request for a shoe, with the times when it was sent and accepted.
type timed struct {
	requests.Request
	sent, accepted int64
}

// checkOrder fails the test if a request was decided before one that was
// accepted when it was sent. The order of decisions is that of the record.
func (s *processes) checkOrder(t *testing.T) {
	t.Helper()
	rows, err := s.b.DB.Query(t.Context(), `SELECT target_id, audit_id FROM audit_log WHERE action IN ('reservation.held', 'request.failed')`)
	pgtest.Must(t, err)
	decided := make(map[uuid.UUID]int64)
	var id uuid.UUID
	var at int64
	_, err = pgx.ForEachRow(rows, []any{&id, &at}, func() error { decided[id] = at; return nil })
	pgtest.Must(t, err)
	slices.SortFunc(s.calls, func(a, b timed) int { return cmp.Compare(decided[a.RequestID], decided[b.RequestID]) })
	var first *timed // to be accepted, of those that were decided later
	overtook := 0
	for i := len(s.calls) - 1; i >= 0; i-- {
		c := &s.calls[i]
		if first != nil && first.accepted < c.sent {
			overtook++
			t.Logf("request %d was decided before request %d, which was accepted when it was sent", c.Sequence, first.Sequence)
		}
		if first == nil || c.accepted < first.accepted {
			first = c
		}
	}
	if overtook > 0 || len(s.calls) == 0 {
		t.Errorf("%d of %d requests were decided before one that had been accepted when they were sent", overtook, len(s.calls))
	}
}

func startProcesses(t *testing.T) *processes {
	t.Helper()
	b := testkit.New(t, lanes.Normal)
	b.Stock("shoe", 1_000_000)
	b.Stock("sock", 1_000_000)
	b.Pin("shoe")
	programs := *b
	programs.DB = keepingPlans(t, b.DB)
	s := &processes{b: b}
	for i := range s.apis {
		s.apis[i] = startAPI(t, &programs)
		b.Settle(s.apis[i].intake)
	}
	by := wakes{notified: true, river: true, tick: time.Second}
	for _, isHot := range []bool{true, true, false} {
		worker := programs
		worker.Hot = isHot
		startProcess(t, &worker, by)
	}
	b.Until("the workers listen", func() bool { return b.Int(listeningSQL) == 3 })
	return s
}

// load runs that many callers of each API, which send loadCalls requests. It
// returns once each caller has its last answer.
func (s *processes) load(t *testing.T, callersEach int, seed uint64) {
	t.Helper()
	each := loadCalls / (len(s.apis) * callersEach)
	var callers sync.WaitGroup
	for i, a := range s.apis {
		for n := range callersEach {
			random := rand.New(rand.NewPCG(seed, uint64(i*callersEach+n)))
			name := fmt.Sprint(seed, "-", i, "-", n)
			callers.Go(func() { s.buy(t, a, name, random, each) })
		}
	}
	callers.Wait()
}

// buy sends n requests of one caller, one after the other. The caller waits for
// most of the outcomes. The test fails if one of them does not arrive.
func (s *processes) buy(t *testing.T, a *api, name string, random *rand.Rand, n int) {
	t.Helper()
	for i := 0; i < n && !t.Failed(); i++ {
		submission := requestrows.Submission{TenantID: s.b.Tenant, CartID: fmt.Sprint(name, "-", i), VariantID: "shoe", Quantity: 1}
		if random.IntN(4) == 0 {
			submission.VariantID = "sock"
		}
		submission.Waits = random.IntN(50) > 0
		sent := s.clock.Add(1)
		r, err := a.intake.Submit(t.Context(), submission)
		if err != nil {
			t.Errorf("submit for the cart %s: %v", submission.CartID, err)
			return
		}
		if submission.VariantID == "shoe" {
			call := timed{r, sent, s.clock.Add(1)}
			s.mu.Lock()
			s.calls = append(s.calls, call)
			s.mu.Unlock()
		}
		if r.Status.Finished() && r.Lane == lanes.Hot {
			a.direct.Add(1)
		}
		if r.Status.Finished() || !submission.Waits {
			continue
		}
		v, err := a.watcher.Wait(t.Context(), r.TenantID, r.RequestID, outcomeWithin, requests.Status.Finished)
		if err != nil {
			t.Errorf("wait for the outcome of the cart %s: %v", r.CartID, err)
			return
		}
		if !v.Status.Finished() {
			t.Errorf("the caller of the cart %s waited %s for a %s: request %d in slot %d of the %s lane is %s",
				v.CartID, outcomeWithin, v.VariantID, v.Sequence, v.Slot, v.Lane, v.Status)
			return
		}
	}
}

// unfinished waits until every request has an outcome, for at most idleWithin.
// It returns the number of requests without one.
func (s *processes) unfinished() int64 {
	s.b.TB.Helper()
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	deadline := time.NewTimer(idleWithin)
	defer deadline.Stop()
	for {
		n := s.b.Int(`SELECT count(*) FROM reservation_requests WHERE status IN ('queued', 'processing')`)
		if n == 0 {
			return 0
		}
		select {
		case <-again.C:
		case <-deadline.C:
			return n
		}
	}
}

// verify fails the test for each check that finds rows.
func (s *processes) verify(t *testing.T) {
	t.Helper()
	report, err := verify.Run(t.Context(), s.b.DB, verify.Config{})
	if err != nil {
		t.Fatal(err)
	}
	for _, check := range report.Checks {
		if check.Broken > 0 {
			t.Errorf("%s: %d rows, such as %s", check.Name, check.Broken, check.Sample[0])
		}
	}
}

// Two processes admit and decide directly. Workers, woken by them, decide what
// they leave queued. After each load every request has an outcome, so no
// low-water mark has passed a queued request. No request for the hot variant was
// decided before one that had been accepted when it was sent.
func TestDirectDecisionsOverProcesses(t *testing.T) {
	t.Parallel()
	s := startProcesses(t)
	callers := []int{1, 4, 24, 48}
	for i, seed := range testkit.Seeds(len(callers)) {
		s.load(t, callers[i%len(callers)], seed)
		n := s.unfinished()
		if n > 0 {
			t.Errorf("%d requests have no outcome %s after the load", n, idleWithin)
		}
		s.verify(t)
		if t.Failed() {
			t.Fatalf("load %d, seed %d", i+1, seed)
		}
	}
	s.b.CheckInvariants()
	s.checkOrder(t)
	queued := s.b.Int(`SELECT count(*) FROM reservation_requests WHERE lane = 'hot'`)
	for i, a := range s.apis {
		direct := a.direct.Load()
		t.Logf("API %d has decided %d requests of the hot lane as it admitted them", i, direct)
		if direct == 0 {
			t.Error("the API has decided none directly")
		}
		queued -= direct
	}
	t.Logf("%d requests of the hot lane were queued", queued)
	if queued == 0 {
		t.Error("no request was queued")
	}
}
