package hot_test

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/internal/admission"
	"github.com/holdfast/holdfast/internal/lanes"
	"github.com/holdfast/holdfast/internal/queues"
	"github.com/holdfast/holdfast/internal/requestrows"
	"github.com/holdfast/holdfast/internal/testkit"
	"github.com/holdfast/holdfast/queues/hot"
	"github.com/holdfast/holdfast/queues/normal"
	"github.com/holdfast/holdfast/requests"
)

// discard is the log of the lanes in these tests.
var discard = slog.New(slog.DiscardHandler)

// While a transaction that admits a request is open, a variant cannot finish
// leaving the hot lane. Its requests are admitted to the normal lane, and the
// hot slot that decides them is woken. No tick decides anything.
func TestLeavingVariantIsWoken(t *testing.T) {
	t.Parallel()
	b := testkit.New(t, lanes.Hot)
	b.Stock("shoe", 100)
	b.Tick(b.Lane(queues.LaneConfig{}))
	withoutTicks := queues.LaneConfig{TickEvery: time.Hour}
	parallel, err := normal.NewLane(b.DB, discard, withoutTicks)
	if err != nil {
		t.Fatal(err)
	}
	lane := b.Lane(withoutTicks)
	b.Run(lane, parallel)
	b.Inserter.Attach(lane, parallel)
	_, commit := b.Open("slow")
	if err := lanes.Unpin(t.Context(), b.DB, b.Inserter, b.Tenant, "shoe"); err != nil {
		t.Fatal(err)
	}
	in := b.Intake(admission.IntakeConfig{})
	for i := range 8 {
		r, err := in.Submit(t.Context(), requestrows.Submission{TenantID: b.Tenant, CartID: fmt.Sprint("cart-", i), VariantID: "shoe", Quantity: 1})
		if err != nil {
			t.Fatal(err)
		}
		if r.Lane != lanes.Normal {
			t.Fatalf("the request was admitted to the %s lane, want the normal lane", r.Lane)
		}
		b.Until("the request is decided", func() bool { return b.Get(r).Status == requests.Done })
	}
	if n := b.Int(leavingSQL); n != 1 {
		t.Error("the variant has left, so the test proves nothing")
	}
	commit()
	b.Tick(b.Lane(queues.LaneConfig{}))
	b.CheckInvariants()
}

const leavingSQL = `SELECT count(*) FROM hot_variants WHERE state = 'leaving'`

// lateClaims is the hot lane's policy, which calls claimed after each claim.
type lateClaims struct {
	hot.ClaimPolicy
	claimed func()
}

func (p *lateClaims) ClaimTx(ctx context.Context, tx pgx.Tx, lease queues.Lease, limit int) (queues.Claim, error) {
	claim, err := p.ClaimPolicy.ClaimTx(ctx, tx, lease, limit)
	p.claimed()
	return claim, err
}

// A request is admitted after the last claim of a move, and its own wakes come
// before the move ends. The end of the move wakes the stream that it is in. No
// tick decides anything.
func TestEndOfMoveIsNotified(t *testing.T) {
	t.Parallel()
	policy := &lateClaims{claimed: func() {}}
	b := testkit.New(t, lanes.Hot)
	b.Stock("shoe", 100)
	lane, err := queues.NewLane(b.DB, discard, lanes.Hot, policy, queues.LaneConfig{})
	b.Must(err)
	b.Tick(lane)
	parallel, err := normal.NewLane(b.DB, discard, queues.LaneConfig{TickEvery: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	b.Run(parallel)
	listening, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	var ended sync.WaitGroup
	ended.Go(func() { _ = queues.Listen(listening, b.DB, discard, parallel) })
	defer ended.Wait()
	defer stop()
	b.Until("the lane listens", func() bool {
		return b.Int(`SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND query = 'LISTEN holdfast_wake' AND state = 'idle'`) == 1
	})
	if err := lanes.Unpin(t.Context(), b.DB, b.Inserter, b.Tenant, "shoe"); err != nil {
		t.Fatal(err)
	}
	var late []requests.Request
	policy.claimed = func() {
		if b.Int(leavingSQL) == 1 {
			s := requestrows.Submission{TenantID: b.Tenant, RequestID: requestrows.NewID(), CartID: "late", VariantID: "shoe", Quantity: 1}
			tx := b.Begin()
			inserted, err := requestrows.Insertion{Group: []requestrows.Submission{s}}.InsertTx(t.Context(), tx) // without a wake
			b.Must(err)
			b.Must(tx.Commit(t.Context()))
			late = append(late, inserted.Results[s.Ref()].View.Request)
		}
	}
	b.Until("the variant has left", func() bool { b.Tick(lane); return b.Int(leavingSQL) == 0 })
	for _, r := range late {
		b.Until("the request is decided", func() bool { return b.Get(r).Status == requests.Done })
	}
	b.CheckInvariants()
}
