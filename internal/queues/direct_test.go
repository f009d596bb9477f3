package queues_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/internal/admission"
	"github.com/holdfast/holdfast/internal/lanes"
	"github.com/holdfast/holdfast/internal/queues"
	"github.com/holdfast/holdfast/internal/requestrows"
	"github.com/holdfast/holdfast/internal/testkit"
	"github.com/holdfast/holdfast/requests"
)

// newDeciding returns a fixture whose requests are decided as they are admitted,
// and its intake.
func newDeciding(t *testing.T, lane lanes.Lane, config queues.DrainConfig) (*testkit.Fixture, *admission.Intake) {
	t.Helper()
	b := testkit.New(t, lane)
	b.Decider = b.NewDecider(config)
	in := b.Intake(admission.IntakeConfig{})
	return b, in
}

func unit(cart, variant string) requestrows.Submission {
	return requestrows.Submission{CartID: cart, VariantID: variant, Quantity: 1}
}

// wantView fails the test unless a caller received that status and reason.
func wantView(t *testing.T, what string, v requests.View, status requests.Status, reason requests.Reason) {
	t.Helper()
	if v.Status != status || v.Reason != reason {
		t.Errorf("%s: the caller received %s %q, want %s %q", what, v.Status, v.Reason, status, reason)
	}
}

// condition is a state in which a request for one shoe of the cart "a" is not
// decided as it is admitted.
type condition struct {
	name   string
	arise  func(t *testing.T, b *testkit.Fixture) (end func())
	reason requests.Reason // the reason with which a drain rejects it
}

// Under each condition the request of a caller that waits stays queued. The
// caller is answered while the condition lasts, and a drain decides the request once the
// condition has ended. The next request is decided as it is admitted.
func TestConditionsOfDirectDecision(t *testing.T) {
	t.Parallel()
	for _, lane := range lanes.All() {
		for _, c := range conditions(lane) {
			t.Run(string(lane)+"/"+c.name, func(t *testing.T) {
				t.Parallel()
				b, in := newDeciding(t, lane, queues.DrainConfig{})
				b.Stock("shoe", 10)
				b.Stock("sock", 10)
				b.Settle(in)
				wantView(t, "before", b.SubmitDirect(in, unit("z", "shoe")), requests.Done, "")
				end := c.arise(t, b)
				decided := b.Decider.Decided()
				v := b.SubmitDirect(in, unit("a", "shoe"))
				wantView(t, c.name, v, requests.Queued, "")
				b.Want(v.Request, requests.Queued, "")
				if n := b.Decider.Decided() - decided; n != 0 {
					t.Errorf("%d requests were decided as they were admitted", n)
				}
				end()
				drain(b, v.Request)
				want := requests.Done
				if c.reason != "" {
					want = requests.Failed
				}
				b.Want(v.Request, want, c.reason)
				if c.reason == "" {
					b.Settle(in)
					wantView(t, "afterwards", b.SubmitDirect(in, unit("b", "shoe")), requests.Done, "")
				}
				b.CheckInvariants()
			})
		}
	}
}

// drain runs ticks of both lanes until the request is finished.
func drain(b *testkit.Fixture, r requests.Request) {
	b.TB.Helper()
	config := queues.LaneConfig{ServeFor: 50 * time.Millisecond, TickEvery: 50 * time.Millisecond}
	var served []*queues.Lane
	for _, lane := range lanes.All() {
		served = append(served, testkit.On(b.TB, b.DB, lane).Lane(config))
	}
	b.Until("the request is decided", func() bool {
		for _, lane := range served {
			b.Tick(lane)
		}
		return b.Get(r).Status.Finished()
	})
}

func conditions(lane lanes.Lane) []condition {
	once := func(arise func(*testkit.Fixture)) func(*testing.T, *testkit.Fixture) func() {
		return func(_ *testing.T, b *testkit.Fixture) func() { arise(b); return func() {} }
	}
	list := []condition{
		{name: "an earlier request is queued in the stream", arise: once(func(b *testkit.Fixture) {
			variant := "sock"
			if b.Hot {
				variant = "shoe" // a hot stream has one variant
			}
			b.SubmitAs(unit("other", variant))
		})},
		{name: "the lane is paused", arise: controlled(lane, lanes.Patch{Paused: new(true)}, lanes.Patch{Paused: new(false)})},
		{name: "the lane has a rate cap", arise: controlled(lane, lanes.Patch{RateCap: new(int32(1000))}, lanes.Patch{RateCap: new(int32(0))})},
		{name: "another transaction has the stock locked", arise: func(_ *testing.T, b *testkit.Fixture) func() { return b.LockStock("shoe").Release }},
		{name: "the variant is unknown", arise: once(func(b *testkit.Fixture) {
			b.Exec(`DELETE FROM inventory_stocks WHERE variant_id = 'shoe'`)
		}), reason: requests.UnknownVariant},
	}
	if lane == lanes.Hot {
		return append(list, condition{name: "a variant of the slot enters the lane", arise: once(func(b *testkit.Fixture) {
			b.Exec(`UPDATE hot_variants SET state = 'entering' WHERE variant_id = 'shoe'`)
		})})
	}
	return append(list, condition{name: "the variant leaves the hot lane", arise: once(func(b *testkit.Fixture) {
		b.Exec(`INSERT INTO hot_variants (tenant_id, variant_id, slot, state) VALUES ($1, 'shoe', 0, 'leaving')`, b.Tenant)
	})}, condition{name: "an earlier request of the cart is queued in the diverted stream", arise: once(func(b *testkit.Fixture) {
		b.Exec(`INSERT INTO diverted_tenants (tenant_id, slot, why) VALUES ($1, 1, 'test')`, b.Tenant)
		b.SubmitAs(unit("a", "shoe"))
		b.Exec(`DELETE FROM diverted_tenants`)
	})})
}

// controlled applies the patch begin to a lane, and then the patch end.
func controlled(lane lanes.Lane, begin, end lanes.Patch) func(*testing.T, *testkit.Fixture) func() {
	return func(t *testing.T, b *testkit.Fixture) func() {
		t.Helper()
		patch := func(p lanes.Patch) {
			if err := lanes.Control(t.Context(), b.DB, lane, p, operator); err != nil {
				t.Fatal(err)
			}
		}
		patch(begin)
		return func() { patch(end) }
	}
}

// untilFree waits for a stock however long another group has it locked.
var untilFree = queues.DrainConfig{StockWait: time.Hour}

// atOnce runs that many concurrent callers. Each requests one unit at a time,
// until n requests were decided as they were admitted.
func atOnce(t *testing.T, b *testkit.Fixture, in *admission.Intake, n, callers int) {
	t.Helper()
	var asking sync.WaitGroup
	for c := range callers {
		asking.Go(func() {
			for i := range n / callers {
				s := unit(fmt.Sprint("cart-", c, "-", i), "shoe")
				s.TenantID, s.Waits = b.Tenant, true
				if r, err := in.Submit(t.Context(), s); err != nil || r.Status != requests.Done {
					t.Errorf("caller %d received %s, %v", c, r.Status, err)
					return
				}
			}
		})
	}
	asking.Wait()
}

// Direct decisions move the mark of their stream without a drain, so that later
// ones do not read past all of them.
func TestDirectDecisionsMoveTheMark(t *testing.T) {
	t.Parallel()
	onEachLane(t, func(t *testing.T, lane lanes.Lane) {
		b, in := newDeciding(t, lane, untilFree)
		b.Stock("shoe", 10_000)
		b.Settle(in)
		atOnce(t, b, in, 2000, 4)
		last := b.SubmitDirect(in, unit("last", "shoe"))
		wantView(t, "the last", last, requests.Done, "")
		if behind := last.Sequence - b.Mark(last.Request); behind >= 1000 || behind < 1 {
			t.Errorf("the mark is %d after %d", behind, last.Sequence)
		}
		b.CheckInvariants()
	})
}

// The mark does not pass a request that is admitted but not committed, however
// many are decided directly meanwhile.
func TestDirectDecisionsBesideLateAdmission(t *testing.T) {
	t.Parallel()
	b, in := newDeciding(t, lanes.Hot, untilFree)
	b.Stock("shoe", 10_000)
	b.Settle(in)
	late, commit := b.Open("late")
	atOnce(t, b, in, 1200, 4)
	if mark := b.Mark(late); mark >= late.Sequence {
		t.Errorf("the mark is %d, and %d may still be committed", mark, late.Sequence)
	}
	commit()
	wantView(t, "after it", b.SubmitDirect(in, unit("next", "shoe")), requests.Queued, "")
	drain(b, late)
	b.Want(late, requests.Done, "")
	b.CheckInvariants()
}

// A request is accepted while a direct decision is under way, which has found
// that nothing precedes it. The one that is sent afterwards is decided after the
// accepted one, which gets the last unit.
func TestDirectDecisionBesideAcceptedRequest(t *testing.T) {
	t.Parallel()
	onEachLane(t, func(t *testing.T, lane lanes.Lane) {
		b, in := newDeciding(t, lane, queues.DrainConfig{})
		b.Stock("shoe", 2)
		b.Settle(in)
		var accepted requests.Request
		b.Decider.Before = func(_ context.Context, tx pgx.Tx) (pgx.Tx, error) {
			accepted = b.SubmitAs(unit("accepted", "shoe"))
			return tx, nil
		}
		wantView(t, "under way", b.SubmitDirect(in, unit("under way", "shoe")), requests.Done, "")
		b.Decider.Before = nil
		later := b.SubmitDirect(in, unit("later", "shoe"))
		wantView(t, "later", later, requests.Queued, "")
		drain(b, later.Request)
		b.Want(accepted, requests.Done, "")
		b.Want(later.Request, requests.Failed, requests.OutOfStock)
		b.CheckInvariants()
	})
}

// Direct decisions end the due holds of a hot variant without a drain, whether
// they need the units or not.
func TestDirectDecisionsEndDueHolds(t *testing.T) {
	t.Parallel()
	b, in := newDeciding(t, lanes.Hot, untilFree)
	b.Stock("shoe", 100_000)
	b.Settle(in)
	const due = 700
	atOnce(t, b, in, due, 4)
	b.Lapse()
	n := 0
	b.Until("all due holds are ended", func() bool {
		wantView(t, "meanwhile", b.SubmitDirect(in, unit(fmt.Sprint("buyer-", n), "shoe")), requests.Done, "")
		n++
		return b.Int(`SELECT count(*) FROM reservations WHERE status = 'expired'`) == due
	})
	if held := b.Int(`SELECT reserved FROM inventory_stocks WHERE variant_id = 'shoe'`); held != int64(n) {
		t.Errorf("reserved %d, want %d", held, n)
	}
	b.CheckInvariants()
}

// The rates of the lanes count direct decisions once they are recorded, each
// once.
func TestDirectDecisionsCountInTheRate(t *testing.T) {
	t.Parallel()
	b, in := newDeciding(t, lanes.Normal, untilFree)
	b.Stock("shoe", 1000)
	atOnce(t, b, in, 40, 4)
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = b.Decider.Run(ctx) })
	defer running.Wait()
	defer stop()
	const decidedSQL = `SELECT decided FROM lane_slots WHERE lane = 'normal' AND slot = -1`
	b.Until("they are recorded", func() bool { return b.Int(decidedSQL) > 0 })
	atOnce(t, b, in, 20, 4)
	b.Until("the others are recorded", func() bool { return b.Int(decidedSQL) >= 60 })
	if n := b.Int(decidedSQL); n != 60 {
		t.Errorf("%d are recorded, want 60", n)
	}
}
