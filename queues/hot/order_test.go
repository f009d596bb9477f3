package hot_test

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/internal/admission"
	"github.com/holdfast/holdfast/internal/lanes"
	"github.com/holdfast/holdfast/internal/queues"
	"github.com/holdfast/holdfast/internal/requestrows"
	"github.com/holdfast/holdfast/internal/testkit"
	"github.com/holdfast/holdfast/queues/hot"
	"github.com/holdfast/holdfast/requests"
)

// A drain that stalls during its transaction keeps its slot. Meanwhile no later
// request is decided, and after the drain has ended the order is unchanged.
func TestOwnerStalls(t *testing.T) {
	t.Parallel()
	b := testkit.New(t, lanes.Hot)
	b.Stock("shoe", 3)
	b.Tick(b.Lane(queues.LaneConfig{})) // the move ends
	early := b.Submit("a", "shoe", 2)

	stalled := b.Begin()
	lease, err := hot.ClaimPolicy{}.AcquireTx(t.Context(), stalled, lanes.Stream{Lane: lanes.Hot, Slot: early.Slot})
	if err != nil {
		t.Fatal(err)
	}
	claim, err := hot.ClaimPolicy{}.ClaimTx(t.Context(), stalled, lease, 10)
	if err != nil || len(claim.Requests) != 1 {
		t.Fatalf("claimed %d, %v, want the early one", len(claim.Requests), err)
	}

	late := b.Submit("b", "shoe", 2)
	lane := b.Lane(queues.LaneConfig{})
	if _, err := lane.Serve(t.Context(), early.Slot); !errors.Is(err, lanes.ErrBusy) {
		t.Errorf("a second owner got %v, want ErrBusy", err)
	}
	b.Want(late, requests.Queued, "")
	if err := stalled.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.Tick(lane)
	b.Want(early, requests.Done, "")
	b.Want(late, requests.Failed, requests.OutOfStock)
	b.CheckInvariants()
}

// While a variant moves back and forth between the lanes under load, no request
// is lost. While it is hot, a request that was answered before another one was
// sent is decided before that one.
func TestOrderWhileMoving(t *testing.T) {
	t.Parallel()
	b := testkit.New(t, lanes.Normal)
	b.Stock("shoe", 1_000_000)
	in := b.Intake(admission.IntakeConfig{GroupMax: 5, QueueMax: 1000, Committers: 4})
	stop := b.Work(ofBothKinds(b, 3)...)
	defer stop()
	var callers sync.WaitGroup
	var isHot atomic.Bool
	log := &history{}
	moved := make(chan struct{})
	var sent atomic.Int64
	for c := range 8 {
		callers.Go(func() {
			for moving := true; moving; sent.Add(1) { // until the moves are over
				select {
				case <-moved:
					moving = false
				default:
				}
				log.submit(t, in, isHot.Load(), requestrows.Submission{TenantID: b.Tenant, CartID: fmt.Sprint("cart-", c), VariantID: "shoe", Quantity: 1})
			}
		})
	}
	go func() {
		defer close(moved)
		for range 4 {
			if err := lanes.Pin(t.Context(), b.DB, b.Inserter, b.Tenant, "shoe"); err != nil {
				t.Error(err)
			}
			isHot.Store(true)
			waitForHot(t, b)
			isHot.Store(false)
			if err := lanes.Unpin(t.Context(), b.DB, b.Inserter, b.Tenant, "shoe"); err != nil {
				t.Error(err)
			}
		}
	}()
	callers.Wait()
	for b.Int(`SELECT count(*) FROM reservation_requests WHERE status = 'queued'`) > 0 && !t.Failed() {
	}
	stop()
	if n := b.Int(`SELECT count(*) FROM reservations`); n != sent.Load() {
		t.Errorf("%d holds, want %d", n, sent.Load())
	}
	b.CheckInvariants()
	if log.mustNotOvertake(t, outcomes(t, b)) == 0 {
		t.Error("no call was sent after another one was answered, so the test proves nothing")
	}
}

// ofBothKinds returns two hot lanes and two of the fixture's kind, as in two
// processes.
func ofBothKinds(b *testkit.Fixture, batch int) (both []*queues.Lane) {
	b.TB.Helper()
	config := queues.LaneConfig{DrainConfig: queues.DrainConfig{Batch: batch}}
	for range 2 {
		both = append(both, b.HotLane(config), b.Lane(config))
	}
	return both
}

// waitForHot waits until the variant has been hot for a while, in which 60
// requests were admitted.
func waitForHot(t *testing.T, b *testkit.Fixture) {
	t.Helper()
	start := b.Int(`SELECT count(*) FROM reservation_requests`)
	for b.Int(`SELECT count(*) FROM reservation_requests`) < start+60 && !t.Failed() {
	}
}

// history records when callers sent requests and were answered, on a logical
// clock.
type history struct {
	clock atomic.Int64
	mu    sync.Mutex
	calls []*call
}

type call struct {
	requests.Request
	sent, answered int64
	hot            bool // whether the variant was hot when the call was sent
}

// submit submits a request and returns its call, or nil after an error.
func (h *history) submit(t *testing.T, in *admission.Intake, isHot bool, s requestrows.Submission) *call {
	c := &call{hot: isHot, sent: h.clock.Add(1)}
	var err error
	if c.Request, err = in.Submit(t.Context(), s); err != nil {
		t.Error(err)
		return nil
	}
	c.answered = h.clock.Add(1)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.calls = append(h.calls, c)
	return c
}

// outcome is the place of a request in the order of the record, and whether it
// is held.
type outcome struct {
	at   int64
	held bool
}

// outcomes returns the outcomes of all requests. Their order is the order of
// the audit ids, which are drawn under the stock's lock.
func outcomes(t *testing.T, b *testkit.Fixture) map[uuid.UUID]outcome {
	t.Helper()
	rows, err := b.DB.Query(t.Context(), `SELECT target_id, audit_id, action = 'reservation.held' FROM audit_log WHERE action IN ('reservation.held', 'request.failed')`)
	if err != nil {
		t.Fatal(err)
	}
	all := make(map[uuid.UUID]outcome)
	var id uuid.UUID
	var o outcome
	if _, err := pgx.ForEachRow(rows, []any{&id, &o.at, &o.held}, func() error { all[id] = o; return nil }); err != nil {
		t.Fatal(err)
	}
	return all
}

// mustNotOvertake fails the test if a call overtook one for the same variant
// that had been answered when it was sent. It overtook it if it is earlier in
// the record, or if it was granted and the other one was out of stock.
// mustNotOvertake compares calls that were sent while the variant was hot, and
// calls of one cart. It returns the number of pairs of the former.
func (h *history) mustNotOvertake(t *testing.T, all map[uuid.UUID]outcome) (pairs int) {
	t.Helper()
	for _, later := range h.calls {
		for _, earlier := range h.calls {
			if earlier.VariantID != later.VariantID || earlier.answered > later.sent || !later.hot && earlier.CartID != later.CartID {
				continue
			}
			if later.hot {
				pairs++
			}
			a, b := all[earlier.RequestID], all[later.RequestID]
			if a.at == 0 || b.at == 0 || a.at > b.at || !a.held && b.held {
				t.Errorf("request %s of %s for a %s became %+v, and %s of %s, which was sent once that was answered (hot: %t), %+v",
					earlier.RequestID, earlier.CartID, earlier.VariantID, a, later.RequestID, later.CartID, later.hot, b)
			}
		}
	}
	return pairs
}

// Requests of hot variants are decided in the order of their sequence,
// whichever caller sent them.
func TestStrictOrder(t *testing.T) {
	t.Parallel()
	b := testkit.New(t, lanes.Hot)
	b.Stock("shoe", 100)
	b.Tick(b.Lane(queues.LaneConfig{}))
	in := b.Intake(admission.IntakeConfig{GroupMax: 4, QueueMax: 1000, Committers: 4})
	served := make([]*queues.Lane, 3)
	for i := range served {
		served[i] = b.Lane(queues.LaneConfig{DrainConfig: queues.DrainConfig{Batch: 7}})
	}
	stop := b.Work(served...)
	defer stop()
	var callers sync.WaitGroup
	log := &history{}
	for c := range 10 {
		callers.Go(func() {
			for i := range 30 {
				log.submit(t, in, true, requestrows.Submission{TenantID: b.Tenant, CartID: fmt.Sprint(c, "-", i), VariantID: "shoe", Quantity: 1})
			}
		})
	}
	callers.Wait()
	for b.Int(`SELECT count(*) FROM reservation_requests WHERE status = 'queued'`) > 0 && !t.Failed() {
	}
	stop()
	if n := b.Int(`SELECT count(*) FROM reservations`); n != 100 {
		t.Errorf("%d holds, want 100", n)
	}
	b.CheckInvariants()
	if log.mustNotOvertake(t, outcomes(t, b)) == 0 {
		t.Error("no call was sent after another one was answered, so the test proves nothing")
	}
}
