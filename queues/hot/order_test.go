package hot_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/internal/lanetest"
	"github.com/holdfast/holdfast/queues"
	"github.com/holdfast/holdfast/queues/hot"
	"github.com/holdfast/holdfast/queues/normal"
	"github.com/holdfast/holdfast/requests"
)

// An owner that stalls in the middle of its turn keeps its slot: nobody decides a later request meanwhile, and once it is
// gone the order is as it was.
func TestOwnerStalls(t *testing.T) {
	t.Parallel()
	b := lanetest.New(t, requests.Hot, hot.NewLane)
	b.Stock("shoe", 3)
	b.Tick(b.Lane(queues.LaneConfig{})) // the move settles
	early := b.Submit("a", "shoe", 2)

	stalled, err := b.DB.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = stalled.Rollback(t.Context()) }()
	lease, err := hot.ClaimPolicy{}.AcquireTx(t.Context(), stalled, early.Slot)
	if err != nil {
		t.Fatal(err)
	}
	claim, err := hot.ClaimPolicy{}.ClaimTx(t.Context(), stalled, lease, 10)
	if err != nil || len(claim.Requests) != 1 {
		t.Fatalf("claimed %d, %v, want the early one", len(claim.Requests), err)
	}

	late := b.Submit("b", "shoe", 2)
	lane := b.Lane(queues.LaneConfig{})
	if _, err := lane.Serve(t.Context(), early.Slot); !errors.Is(err, queues.ErrBusy) {
		t.Errorf("a second owner got %v, want ErrBusy", err)
	}
	b.Want(late, requests.Queued, "")
	if err := stalled.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.Tick(lane)
	b.Want(early, requests.Done, "")
	b.Want(late, requests.Failed, requests.OutOfStock)
	b.Sound()
}

// While a variant moves to and fro between the lanes under load, nothing is lost, and while it is hot nobody who was
// answered before another one asked is decided after that one.
func TestOrderWhileMoving(t *testing.T) {
	t.Parallel()
	b := lanetest.New(t, requests.Normal, normal.NewLane)
	b.Stock("shoe", 1_000_000)
	in := b.Intake(requests.IntakeConfig{GroupMax: 5, LineMax: 1000, Committers: 4})
	lanes := []*queues.Lane{}
	for range 2 {
		h, err := hot.NewLane(b.DB, discard, queues.LaneConfig{DrainConfig: queues.DrainConfig{Batch: 3}})
		if err != nil {
			t.Fatal(err)
		}
		lanes = append(lanes, h, b.Lane(queues.LaneConfig{DrainConfig: queues.DrainConfig{Batch: 3}}))
	}
	ctx, stop := context.WithCancel(t.Context())
	var workers, callers sync.WaitGroup
	for _, lane := range lanes {
		workers.Go(func() {
			for ctx.Err() == nil {
				if _, err := lane.Tick(ctx); err != nil && ctx.Err() == nil {
					t.Error(err)
				}
			}
		})
	}
	var isHot atomic.Bool
	log := &history{}
	for c := range 8 {
		callers.Go(func() {
			for range 60 {
				log.submit(t, in, &isHot, requests.Submission{TenantID: b.Tenant, CartID: fmt.Sprint("cart-", c), VariantID: "shoe", Quantity: 1})
			}
		})
	}
	moved := make(chan struct{})
	go func() {
		defer close(moved)
		for range 4 {
			if err := hot.Pin(t.Context(), b.DB, b.Bell, b.Tenant, "shoe"); err != nil {
				t.Error(err)
			}
			isHot.Store(true)
			waitForHot(t, b)
			isHot.Store(false)
			if err := hot.Unpin(t.Context(), b.DB, b.Bell, b.Tenant, "shoe"); err != nil {
				t.Error(err)
			}
		}
	}()
	callers.Wait()
	<-moved
	for b.Int(`SELECT count(*) FROM reservation_requests WHERE status = 'queued'`) > 0 && !t.Failed() {
	}
	stop()
	workers.Wait()
	if n := b.Int(`SELECT count(*) FROM reservations`); n != 480 {
		t.Errorf("%d holds, want 480", n)
	}
	b.Sound()
	log.mustNotOvertake(t, b)
}

// waitForHot waits until the variant has been hot for a while: ten requests were decided since.
func waitForHot(t *testing.T, b *lanetest.Bench) {
	t.Helper()
	start := b.Int(`SELECT count(*) FROM reservation_requests`)
	for b.Int(`SELECT count(*) FROM reservation_requests`) < min(start+60, 480) && !t.Failed() {
	}
}

// history notes when callers asked and were answered, on a clock of its own that only counts.
type history struct {
	clock atomic.Int64
	mu    sync.Mutex
	calls []call
}

type call struct {
	id             uuid.UUID
	sent, answered int64
	hot            bool // the variant was hot before the call was sent
}

func (h *history) submit(t *testing.T, in *requests.Intake, isHot *atomic.Bool, s requests.Submission) (r requests.Request) {
	c := call{hot: isHot.Load(), sent: h.clock.Add(1)}
	r, err := in.Submit(t.Context(), s)
	if err != nil {
		t.Error(err)
		return r
	}
	c.id, c.answered = r.RequestID, h.clock.Add(1)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.calls = append(h.calls, c)
	return r
}

// mustNotOvertake fails the test if a call that was sent while the variant was hot was decided before one that had been
// answered by then. The order of decision is told by the audit ids, which are drawn under the stock's lock.
func (h *history) mustNotOvertake(t *testing.T, b *lanetest.Bench) {
	t.Helper()
	rows, err := b.DB.Query(t.Context(), `SELECT target_id, audit_id FROM audit_log WHERE action IN ('reservation.held', 'request.failed')`)
	if err != nil {
		t.Fatal(err)
	}
	decided := make(map[uuid.UUID]int64)
	var id uuid.UUID
	var auditID int64
	if _, err := pgx.ForEachRow(rows, []any{&id, &auditID}, func() error { decided[id] = auditID; return nil }); err != nil {
		t.Fatal(err)
	}
	pairs := 0
	for _, later := range h.calls {
		for _, earlier := range h.calls {
			if !later.hot || earlier.answered > later.sent {
				continue
			}
			if pairs++; decided[earlier.id] > decided[later.id] {
				t.Errorf("request %s was decided before %s, which had been answered when it was sent", later.id, earlier.id)
			}
		}
	}
	if pairs == 0 {
		t.Error("no call was sent after another one was answered: nothing was shown")
	}
}

// Requests of hot variants are decided in the order of their sequence, whoever sent them.
func TestStrictOrder(t *testing.T) {
	t.Parallel()
	b := lanetest.New(t, requests.Hot, hot.NewLane)
	b.Stock("shoe", 100)
	b.Tick(b.Lane(queues.LaneConfig{}))
	in := b.Intake(requests.IntakeConfig{GroupMax: 4, LineMax: 1000, Committers: 4})
	ctx, stop := context.WithCancel(t.Context())
	var workers, callers sync.WaitGroup
	for range 3 {
		lane := b.Lane(queues.LaneConfig{DrainConfig: queues.DrainConfig{Batch: 7}})
		workers.Go(func() {
			for ctx.Err() == nil {
				if _, err := lane.Tick(ctx); err != nil && ctx.Err() == nil {
					t.Error(err)
				}
			}
		})
	}
	var isHot atomic.Bool
	isHot.Store(true)
	log := &history{}
	for c := range 10 {
		callers.Go(func() {
			for i := range 30 {
				log.submit(t, in, &isHot, requests.Submission{TenantID: b.Tenant, CartID: fmt.Sprint(c, "-", i), VariantID: "shoe", Quantity: 1})
			}
		})
	}
	callers.Wait()
	for b.Int(`SELECT count(*) FROM reservation_requests WHERE status = 'queued'`) > 0 && !t.Failed() {
	}
	stop()
	workers.Wait()
	if n := b.Int(`SELECT count(*) FROM reservations`); n != 100 {
		t.Errorf("%d holds, want 100", n)
	}
	b.Sound()
	log.mustNotOvertake(t, b)
}
