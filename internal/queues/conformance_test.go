package queues_test

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

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
)

// byDirect is what direct decision does in a case.
type byDirect int

const (
	never   byDirect = iota // the case tests queued requests, and does not run
	may                     // it may decide none of the requests
	decides                 // it decides some of them
)

// cases are what both lanes pass.
var cases = []struct {
	name   string
	run    func(*conformance)
	direct byDirect
}{
	{"grants the earliest until the stock is gone", grantsEarliest, decides},
	{"lets the small one behind the large one through", firstFit, decides},
	{"gives every reason", reasons, decides},
	{"gets due holds back when it comes up short", reclaims, decides},
	{"expires a backlog of due holds in batches", expiresBacklog, may},
	{"changes a quantity, both or neither", replaces, decides},
	{"isolates a poison row", isolatesPoison, decides},
	{"isolates many poison rows at little more than the cost of one", isolatesMany, may},
	{"fails a poison row after its attempts", failsPoison, may},
	{"isolates poison rows that follow each other", isolatesPoisonInARow, may},
	{"ends no request while every request fails", survivesWrongConstraint, may},
	{"ends no request while every request fails, a few of each variant", survivesThinOutage, never},
	{"keeps no variant waiting for a broken one", skipsBrokenVariant, may},
	{"recovers from an outage longer than requests may wait", recoversAfterLongOutage, never},
	{"ends what is older than requests may wait, though its rejection fails too", endsOldRequests, never},
	{"counts no outage as an attempt", countsNoOutage, may},
	{"gets through in smaller batches what is too slow for one", slowsDown, never},
	{"leaves nothing behind when its connection dies", survivesLostConnection, never},
	{"shares the work between processes", sharesWork, decides},
	{"decides what an admission committed late", lateAdmission, decides},
	{"decides what an admission prepared and committed later", preparedAdmission, decides},
	{"moves its mark while unrelated transactions are open", outsiders, never},
	{"obeys a pause", obeysPause, decides},
	{"obeys a rate cap", obeysCap, decides},
	{"leaves out what was cancelled", leavesOutCancelled, never},
	{"leaves the requests of a cart whose hold is locked", leavesLockedHold, decides},
	{"leaves what needs the unit of a locked due hold", leavesLockedDueHold, decides},
	{"retries beside a locked hold", retriesBesideLockedHold, may},
	{"decides everything in a storm of locks", stormOfLocks, decides},
}

// path is how the requests of a case are admitted.
type path int

const (
	// queued requests are admitted by admission.SubmitTx, and decided by a
	// drain.
	queued path = iota
	// direct requests come from callers that wait. They are decided as they are
	// admitted, where that is allowed.
	direct
	// mixed requests take either path, drawn at random.
	mixed
)

// conformance is the fixture of a case. Its Stock, Submit and SubmitAs take the
// path.
type conformance struct {
	*testkit.Fixture
	path   path
	intake *admission.Intake // for the requests whose callers wait
	random *rand.Rand
}

// TestConformance is what both lanes promise of a drain, whatever the order of
// the requests.
func TestConformance(t *testing.T) {
	t.Parallel()
	onEachLane(t, func(t *testing.T, lane lanes.Lane) {
		for _, test := range cases {
			t.Run(test.name, func(t *testing.T) {
				t.Parallel()
				test.run(&conformance{Fixture: testkit.New(t, lane)})
			})
		}
	})
}

// TestConformanceOfDirectDecision runs the cases that apply to direct decision,
// once with all callers waiting, and once with some that do not wait.
func TestConformanceOfDirectDecision(t *testing.T) {
	t.Parallel()
	onEachLane(t, func(t *testing.T, lane lanes.Lane) {
		for name, by := range map[string]path{"direct": direct, "mixed": mixed} {
			for _, test := range cases {
				if test.direct == never || test.direct == may && by == direct {
					continue
				}
				t.Run(name+"/"+test.name, func(t *testing.T) {
					t.Parallel()
					seeds := testkit.Seeds(1)
					if by == direct {
						seeds = seeds[:1]
					}
					for _, seed := range seeds {
						f := newDirectConformance(t, lane, by, seed)
						test.run(f)
						if by == direct && f.Decider.Decided() == 0 {
							t.Error("no request was decided as it was admitted")
						}
					}
				})
			}
		}
	})
}

// newDirectConformance makes a fixture that decides requests as they are
// admitted. The seed draws which of them, if they are mixed.
func newDirectConformance(t *testing.T, lane lanes.Lane, by path, seed uint64) *conformance {
	t.Helper()
	if by == mixed {
		t.Logf("seed %d", seed)
	}
	f := &conformance{Fixture: testkit.New(t, lane), path: by, random: rand.New(rand.NewPCG(seed, 0))}
	f.Decider = f.NewDecider(queues.DrainConfig{})
	f.intake = f.Intake(admission.IntakeConfig{})
	return f
}

// waits draws whether the next request is of a caller that waits. It is not
// safe for concurrent use.
func (f *conformance) waits() bool {
	return f.path == direct || f.path == mixed && f.random.IntN(2) == 0
}

// Stock makes a variant, in the fixture's lane.
func (f *conformance) Stock(variant string, stock int) {
	f.TB.Helper()
	f.Fixture.Stock(variant, stock)
	if f.Hot && f.path != queued {
		f.Settle(f.intake)
	}
}

// Submit admits one request, by the path.
func (f *conformance) Submit(cart, variant string, quantity int32) requests.Request {
	f.TB.Helper()
	return f.SubmitAs(requestrows.Submission{CartID: cart, VariantID: variant, Quantity: quantity})
}

// SubmitAs admits one request of the fixture's tenant, by the path.
func (f *conformance) SubmitAs(s requestrows.Submission) requests.Request {
	f.TB.Helper()
	if f.waits() {
		return f.SubmitDirect(f.intake, s).Request
	}
	return f.Fixture.SubmitAs(s)
}

// settled is Intake. If the intake decides, it waits until the intake has read
// which variants are hot.
func (f *conformance) settled(config admission.IntakeConfig) *admission.Intake {
	f.TB.Helper()
	in := f.Intake(config)
	if f.path != queued && f.Hot {
		f.Settle(in)
	}
	return in
}

func grantsEarliest(f *conformance) {
	f.Stock("shoe", 100)
	in := f.settled(admission.IntakeConfig{})
	var callers sync.WaitGroup
	for i := range 250 {
		s := requestrows.Submission{TenantID: f.Tenant, CartID: fmt.Sprint("cart-", i), VariantID: "shoe", Quantity: 1, Waits: f.waits()}
		callers.Go(func() {
			if _, err := in.Submit(f.TB.Context(), s); err != nil {
				f.TB.Error(err)
			}
		})
	}
	callers.Wait()
	report := f.Tick(f.Lane(queues.LaneConfig{}))
	held, rejected := f.Int(`SELECT count(*) FROM reservations`), f.Int(`SELECT count(*) FROM reservation_requests WHERE reason = 'out_of_stock'`)
	if held != 100 || rejected != 150 {
		f.TB.Errorf("held %d, rejected %d, want 100 and 150", held, rejected)
	}
	if f.path == queued && (report.Held != 100 || report.Rejected != 150) {
		f.TB.Errorf("the drains report held %d, rejected %d, want 100 and 150", report.Held, report.Rejected)
	}
	f.CheckOrder("shoe")
	f.CheckInvariants()
}

func firstFit(f *conformance) {
	f.Stock("shoe", 5)
	first, large, small := f.Submit("a", "shoe", 3), f.Submit("b", "shoe", 4), f.Submit("c", "shoe", 2)
	f.Tick(f.Lane(queues.LaneConfig{}))
	f.Want(first, requests.Done, "")
	f.Want(large, requests.Failed, requests.OutOfStock)
	f.Want(small, requests.Done, "")
	f.CheckInvariants()
}

func reasons(f *conformance) {
	f.Stock("shoe", 10)
	f.Exec(`UPDATE inventory_stocks SET max_per_cart = 3 WHERE variant_id = 'shoe'`)
	f.Stock("book", 0)
	f.Exec(`UPDATE inventory_stocks SET backorder = true WHERE variant_id = 'book'`)
	if f.Hot {
		f.Stock("gone", 1) // pinned, then deleted: unknown in the hot lane too
		f.Exec(`DELETE FROM inventory_stocks WHERE variant_id = 'gone'`)
	}
	two, third, over := f.Submit("a", "shoe", 2), f.Submit("a", "shoe", 1), f.Submit("a", "shoe", 1)
	stale := f.Fixture.SubmitAs(requestrows.Submission{CartID: "b", VariantID: "shoe", Quantity: 1})
	f.Exec(`UPDATE reservation_requests SET created_at = created_at - interval '1 hour' WHERE request_id = $1`, stale.RequestID)
	unknown, backordered := f.Submit("a", "gone", 1), f.Submit("a", "book", 7)
	f.Tick(f.Lane(queues.LaneConfig{}))
	f.Want(two, requests.Done, "")
	f.Want(third, requests.Done, "")
	f.Want(over, requests.Failed, requests.LimitExceeded)
	f.Want(stale, requests.Failed, requests.ExpiredInQueue)
	f.Want(unknown, requests.Failed, requests.UnknownVariant)
	f.Want(backordered, requests.Done, "")
	f.CheckInvariants()
	if n := f.Int(`SELECT count(*) FROM audit_log WHERE action = 'request.failed'`); n != 3 {
		f.TB.Errorf("%d audit rows of failed requests, want 3", n)
	}
}

func reclaims(f *conformance) {
	f.Stock("shoe", 3)
	lane := f.Lane(queues.LaneConfig{})
	old := f.Submit("a", "shoe", 2)
	f.Tick(lane)
	f.Lapse()
	if s, err := inventory.Get(f.TB.Context(), f.DB, f.Tenant, "shoe"); err != nil || s.Available != 3 {
		f.TB.Errorf("available %d (%v), want 3: what is held past its deadline is available", s.Available, err)
	}
	buyer, late := f.Submit("b", "shoe", 3), f.Submit("c", "shoe", 1)
	f.Tick(lane)
	f.Want(buyer, requests.Done, "")
	f.Want(late, requests.Failed, requests.OutOfStock)
	if got := f.Get(old).Reservation.Status; got != reservations.Expired {
		f.TB.Errorf("the due hold is %s, want expired", got)
	}
	f.CheckInvariants()
}

func replaces(f *conformance) {
	f.Stock("shoe", 10)
	add := f.Submit("a", "shoe", 4)
	set := f.SubmitAs(requestrows.Submission{Kind: requests.Set, CartID: "a", VariantID: "shoe", Quantity: 9})
	other := f.Submit("b", "shoe", 1)
	tooMany := f.SubmitAs(requestrows.Submission{Kind: requests.Set, CartID: "a", VariantID: "shoe", Quantity: 10})
	fewer := f.SubmitAs(requestrows.Submission{Kind: requests.Set, CartID: "a", VariantID: "shoe", Quantity: 2})
	f.Tick(f.Lane(queues.LaneConfig{}))
	f.Want(add, requests.Done, "")
	f.Want(set, requests.Done, "")
	f.Want(other, requests.Done, "")
	f.Want(tooMany, requests.Failed, requests.OutOfStock)
	f.Want(fewer, requests.Done, "")
	first, last := f.Get(add).Reservation, f.Get(fewer).Reservation
	if first.ReleaseReason != reservationrows.Replaced || last.Status != reservations.Held || last.Quantity != 2 {
		f.TB.Errorf("first %+v, last %+v, want the first replaced and the last held for 2", first, last)
	}
	if !last.FirstHeldAt.Equal(first.FirstHeldAt) {
		f.TB.Error("the lifetime of a changed quantity does not count from the first hold")
	}
	if n := f.Int(`SELECT reserved FROM inventory_stocks WHERE variant_id = 'shoe'`); n != 3 {
		f.TB.Errorf("reserved %d, want 3", n)
	}
	f.CheckInvariants()
}

func isolatesPoison(f *conformance) {
	f.Stock("shoe", 100)
	f.Poison()
	var good []requests.Request
	for i := range 20 {
		good = append(good, f.Submit(fmt.Sprint("cart-", i), "shoe", 1))
		if i == 7 {
			good = append(good, f.Submit("bad", "shoe", 1))
		}
	}
	bad := good[8]
	lane := f.Lane(queues.LaneConfig{DrainConfig: queues.DrainConfig{Retry: queues.RetryConfig{Backoff: time.Minute, BackoffMax: time.Minute}}})
	report := f.Tick(lane)
	if report.Retried != 1 {
		f.TB.Errorf("%+v, want one isolated retry", report)
	}
	for _, r := range good {
		if r.RequestID != bad.RequestID {
			f.Want(r, requests.Done, "")
		}
	}
	if v := f.Get(bad); v.Status != requests.Processing || v.Attempts != 1 {
		f.TB.Errorf("the poison row is %s after %d attempts, want processing after 1", v.Status, v.Attempts)
	}
	f.Exec(`ALTER TABLE reservations DROP CONSTRAINT poison`)
	f.Exec(`UPDATE reservation_requests SET claim_expires_at = clock_timestamp() WHERE request_id = $1`, bad.RequestID)
	f.Tick(lane)
	f.Want(bad, requests.Done, "")
	f.CheckInvariants()
}

func failsPoison(f *conformance) {
	f.Stock("shoe", 100)
	f.Poison()
	bad := f.Submit("bad", "shoe", 1)
	good := f.Submit("good", "shoe", 1)
	retry := queues.RetryConfig{AttemptsMax: 3, Backoff: time.Millisecond, BackoffMax: 4 * time.Millisecond}
	lane := f.Lane(queues.LaneConfig{DrainConfig: queues.DrainConfig{Retry: retry}})
	f.TickUntil(lane, bad)
	f.Want(bad, requests.Failed, requests.InternalError)
	f.Want(good, requests.Done, "")
	if v := f.Get(bad); v.Attempts != 3 {
		f.TB.Errorf("%d attempts, want 3", v.Attempts)
	}
	if n := f.Int(`SELECT count(*) FROM reservation_requests WHERE claim_expires_at IS NOT NULL`); n != 0 {
		f.TB.Errorf("%d finished rows still carry a claim", n)
	}
	f.CheckInvariants()
}

func survivesLostConnection(f *conformance) {
	f.Stock("shoe", 10)
	r := f.Submit("a", "shoe", 1)
	stalled := f.Lock(`LOCK TABLE reservations IN SHARE MODE`)
	lane := f.Lane(queues.LaneConfig{})
	failed := make(chan struct{})
	go func() { // A tick of the hot lane waits for 100 ms only, so one alone might end before its connection does.
		defer close(failed)
		for err := error(nil); err == nil; {
			_, err = lane.Tick(f.TB.Context())
		}
	}()
	f.Until("a tick whose connection died returns an error", func() bool {
		f.Exec(`SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`)
		select {
		case <-failed:
			return true
		default:
			return false
		}
	})
	stalled.Release()
	if v := f.Get(r); v.Status != requests.Queued || v.Attempts != 0 {
		f.TB.Errorf("%s after %d attempts, want queued after none: an outage is not the row's fault", v.Status, v.Attempts)
	}
	f.TickUntil(lane, r)
	f.Want(r, requests.Done, "")
	f.CheckInvariants()
}

func sharesWork(f *conformance) {
	f.Stock("shoe", 150)
	f.Stock("sock", 1000)
	in := f.settled(admission.IntakeConfig{GroupMax: 7, QueueMax: 1000, Committers: 4})
	served := []*queues.Lane{f.Lane(queues.LaneConfig{DrainConfig: queues.DrainConfig{Batch: 13}}), f.Lane(queues.LaneConfig{}), f.Lane(queues.LaneConfig{})}
	stop := f.Work(served...)
	var callers sync.WaitGroup
	for i := range 400 {
		s := requestrows.Submission{TenantID: f.Tenant, CartID: fmt.Sprint("cart-", i%50), VariantID: [...]string{"shoe", "sock"}[i%2], Quantity: 1, Waits: f.waits()}
		callers.Go(func() {
			if _, err := in.Submit(f.TB.Context(), s); err != nil {
				f.TB.Error(err)
			}
		})
	}
	callers.Wait()
	stop()
	for _, lane := range served {
		f.Tick(lane)
	}
	if held, failed := f.Int(`SELECT count(*) FROM reservations`), f.Int(`SELECT count(*) FROM reservation_requests WHERE reason = 'out_of_stock'`); held != 350 || failed != 50 {
		f.TB.Errorf("held %d, out of stock %d, want 350 and 50", held, failed)
	}
	f.CheckInvariants()
}

func obeysPause(f *conformance) {
	f.Stock("shoe", 10)
	lane := f.Lane(queues.LaneConfig{})
	yes, no := true, false
	if err := lanes.Control(f.TB.Context(), f.DB, lane.Name(), lanes.Patch{Paused: &yes}, audit.Origin{}); err != nil {
		f.TB.Fatal(err)
	}
	r := f.Submit("a", "shoe", 1)
	f.Tick(lane)
	f.Want(r, requests.Queued, "")
	if err := lanes.Control(f.TB.Context(), f.DB, lane.Name(), lanes.Patch{Paused: &no}, audit.Origin{}); err != nil {
		f.TB.Fatal(err)
	}
	f.Tick(lane)
	f.Want(r, requests.Done, "")
	later := f.Submit("a", "shoe", 1)
	f.Tick(lane)
	f.Want(later, requests.Done, "")
}

// obeysCap: the bucket of the rate cap begins empty and is filled by the
// database's clock, from which the test reads how many requests are allowed.
func obeysCap(f *conformance) {
	f.Stock("shoe", 1000)
	lane := f.Lane(queues.LaneConfig{ServeFor: time.Millisecond})
	limit := int32(10)
	if err := lanes.Control(f.TB.Context(), f.DB, lane.Name(), lanes.Patch{RateCap: &limit}, audit.Origin{}); err != nil {
		f.TB.Fatal(err)
	}
	const refilledSQL = `SELECT (extract(epoch FROM refilled_at) * 1000000)::bigint FROM lane_slots WHERE lane = $1 AND slot = -1`
	began := f.Int(refilledSQL, lane.Name())
	for range 51 {
		f.Submit("a", "shoe", 1)
	}
	if _, err := lane.Tick(f.TB.Context()); err != nil {
		f.TB.Fatal(err)
	}
	passed := float64(f.Int(refilledSQL, lane.Name())-began) / 1e6
	if decided, allowed := float64(f.Int(`SELECT count(*) FROM reservations`)), passed*float64(limit); decided > allowed+1 {
		f.TB.Errorf("decided %.0f under a cap of %d per second, which allows %.1f in %.2f s", decided, limit, allowed, passed)
	}
	none := int32(0)
	if err := lanes.Control(f.TB.Context(), f.DB, lane.Name(), lanes.Patch{RateCap: &none}, audit.Origin{}); err != nil {
		f.TB.Fatal(err)
	}
	f.Tick(lane)
	f.Submit("a", "shoe", 1)
	f.Tick(lane)
	if n := f.Int(`SELECT count(*) FROM reservations`); n != 52 {
		f.TB.Errorf("decided %d, want 52", n)
	}
}

func leavesOutCancelled(f *conformance) {
	f.Stock("shoe", 1)
	gone, next := f.Submit("gone", "shoe", 1), f.Submit("next", "shoe", 1)
	removal := f.Begin()
	removed, err := carts.RemoveTx(f.TB.Context(), removal, f.Tenant, "gone", "shoe", reservations.CartRemoved, audit.Origin{})
	if err != nil || len(removed.Cancelled) != 1 {
		f.TB.Fatalf("%+v, %v, want one cancelled", removed, err)
	}
	lane := f.Lane(queues.LaneConfig{})
	stop := f.Work(lane)
	if f.Hot {
		f.Blocked() // the hot lane waits for the row; the normal lane decides other requests first
	}
	if err := removal.Commit(f.TB.Context()); err != nil {
		f.TB.Fatal(err)
	}
	stop()
	f.Tick(lane)
	f.Want(gone, requests.Failed, requests.Cancelled)
	f.Want(next, requests.Done, "")
	f.CheckInvariants()
}
