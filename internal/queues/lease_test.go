package queues_test

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/internal/lanes"
	"github.com/holdfast/holdfast/internal/queues"
	"github.com/holdfast/holdfast/internal/testkit"
	"github.com/holdfast/holdfast/requests"
)

// stepped sends each statement of a batch in a separate round trip, and calls
// before ahead of it.
type stepped struct {
	pgx.Tx
	before func(sql string)
}

func (s *stepped) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	for _, query := range b.QueuedQueries {
		s.before(query.SQL)
		if err := s.Tx.SendBatch(ctx, &pgx.Batch{QueuedQueries: []*pgx.QueuedQuery{query}}).Close(); err != nil {
			return sent{err: err}
		}
	}
	return sent{}
}

// sent is the results of a batch that has been sent.
type sent struct {
	pgx.BatchResults
	err error
}

func (s sent) Close() error { return s.err }

// steppedPolicy is a lane's policy with calls between its statements: before is
// called ahead of each one that acquires the lease, claimed after the claim.
type steppedPolicy struct {
	queues.ClaimPolicy
	before  func(sql string)
	claimed func()
}

func (p *steppedPolicy) AcquireTx(ctx context.Context, tx pgx.Tx, stream lanes.Stream) (queues.Lease, error) {
	if p.before != nil {
		tx = &stepped{Tx: tx, before: p.before}
	}
	return p.ClaimPolicy.AcquireTx(ctx, tx, stream)
}

func (p *steppedPolicy) ClaimTx(ctx context.Context, tx pgx.Tx, lease queues.Lease, limit int) (queues.Claim, error) {
	claim, err := p.ClaimPolicy.ClaimTx(ctx, tx, lease, limit)
	if p.claimed != nil {
		p.claimed()
	}
	return claim, err
}

// drainOnce drains a slot in one transaction under a policy.
func drainOnce(b *testkit.Fixture, name lanes.Lane, policy queues.ClaimPolicy, slot int16) {
	b.TB.Helper()
	lane, err := queues.NewLane(b.DB, slog.New(slog.DiscardHandler), name, policy, queues.LaneConfig{ServeFor: time.Nanosecond})
	if err != nil {
		b.TB.Fatal(err)
	}
	if _, err := lane.Serve(b.TB.Context(), slot); err != nil {
		b.TB.Fatal(err)
	}
}

// nth returns a function that calls do ahead of the nth statement that contains
// text.
func nth(t *testing.T, n int, text string, do func()) func(sql string) {
	t.Helper()
	seen := 0
	t.Cleanup(func() {
		if seen < n {
			t.Errorf("%d statements contain %q, want at least %d", seen, text, n)
		}
	})
	return func(sql string) {
		if strings.Contains(sql, text) {
			seen++
			if seen == n {
				do()
			}
		}
	}
}

// locksSlot is in the statement that locks the slot.
const locksSlot = "FOR NO KEY UPDATE OF s SKIP LOCKED"

// Before a drain locks its slot, an admission draws its number, a move is
// committed, and another drain records the last number drawn. The first drain
// must not end the move, because the admission has routed its request by the
// old lane and has not ended. So the drain reads which admissions are open
// after it has locked the slot.
func TestHorizonIsReadUnderTheLease(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		hot   bool
		state string
		move  func(b *testkit.Fixture) error
	}{
		"entering": {hot: false, state: "entering", move: func(b *testkit.Fixture) error {
			return lanes.Pin(b.TB.Context(), b.DB, b.Inserter, b.Tenant, "shoe")
		}},
		"leaving": {hot: true, state: "leaving", move: func(b *testkit.Fixture) error {
			return lanes.Unpin(b.TB.Context(), b.DB, b.Inserter, b.Tenant, "shoe")
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := testkit.New(t, lanes.Normal)
			b.Hot = test.hot
			b.Exec(`INSERT INTO lane_slots (lane, slot) VALUES ('hot', 0)`)
			b.Stock("shoe", 10)
			other := b.HotLane(queues.LaneConfig{})
			b.Tick(other)
			var late requests.Request
			var commit func()
			drainOnce(b, lanes.Hot, &steppedPolicy{ClaimPolicy: b.HotLane(queues.LaneConfig{}).Policy(), before: nth(t, 1, locksSlot, func() {
				late, commit = b.Open("late")
				if err := test.move(b); err != nil {
					t.Error(err)
				}
				b.Tick(other)
				if n := b.Int(`SELECT count(*) FROM hot_variants WHERE slot = 0 AND state = $1 AND admitted_before >= $2`, test.state, late.Sequence); n != 1 {
					t.Error("the move does not wait for the admission")
				}
			})}, 0)
			if n := b.Int(`SELECT count(*) FROM hot_variants WHERE state = $1`, test.state); n != 1 {
				t.Error("the move ended before an admission that began before it")
			}
			commit()
			b.Until("the request is decided and the move has ended", func() bool {
				b.Tick(other)
				b.Tick(b.Lane(queues.LaneConfig{}))
				return b.Get(late).Status == requests.Done && b.Int(`SELECT count(*) FROM hot_variants WHERE state <> 'hot'`) == 0
			})
			b.CheckInvariants()
		})
	}
}

// Before a drain locks its slot, a variant moves into it. The drain must claim
// the variant's requests in the normal lane before those sent after the move.
// So it reads which variants move after it has locked the slot.
func TestMovesAreReadUnderTheLease(t *testing.T) {
	t.Parallel()
	b := testkit.New(t, lanes.Normal)
	b.Exec(`INSERT INTO lane_slots (lane, slot) VALUES ('hot', 0)`)
	b.Stock("shoe", 1)
	first := b.Submit("first", "shoe", 1)
	var second requests.Request
	drainOnce(b, lanes.Hot, &steppedPolicy{ClaimPolicy: b.HotLane(queues.LaneConfig{}).Policy(), before: nth(t, 1, locksSlot, func() {
		if err := lanes.Pin(t.Context(), b.DB, b.Inserter, b.Tenant, "shoe"); err != nil {
			t.Error(err)
		}
		if second = b.Submit("second", "shoe", 1); second.Lane != lanes.Hot || second.Slot != 0 {
			t.Errorf("it is routed to %s slot %d, want hot slot 0", second.Lane, second.Slot)
		}
	})}, 0)
	b.Tick(b.HotLane(queues.LaneConfig{}))
	b.Want(first, requests.Done, "")
	b.Want(second, requests.Failed, requests.OutOfStock)
	b.CheckInvariants()
}

// markStaysBelow fails the test unless the mark of the request's slot is below
// it, and the request is decided.
func markStaysBelow(b *testkit.Fixture, r requests.Request) {
	b.TB.Helper()
	if mark := b.Mark(r); mark >= r.Sequence {
		b.TB.Errorf("the mark is %d, past the queued request %d", mark, r.Sequence)
	}
	b.Tick(b.Lane(queues.LaneConfig{}))
	b.Want(r, requests.Done, "")
	b.CheckInvariants()
}

// An admission draws its number between the two readings of the horizon. The
// last number drawn is read first, so the mark does not move past the
// admission.
func TestAdmissionBetweenTheReadings(t *testing.T) {
	t.Parallel()
	onEachLane(t, func(t *testing.T, name lanes.Lane) {
		b := testkit.New(t, name)
		b.Stock("shoe", 10)
		b.Tick(b.Lane(queues.LaneConfig{}))
		first := b.Submit("first", "shoe", 1)
		var late requests.Request
		var commit func()
		drainOnce(b, name, &steppedPolicy{ClaimPolicy: b.Lane(queues.LaneConfig{}).Policy(), before: nth(t, 2, "FROM reservation_requests_sequence_seq", func() {
			late, commit = b.Open("late")
		})}, first.Slot)
		b.Want(first, requests.Done, "")
		commit()
		markStaysBelow(b, late)
	})
}

// An admission is committed while a drain claims. The mark does not move past
// it, because the drain uses the horizon that it read before it claimed.
func TestAdmissionAfterTheClaim(t *testing.T) {
	t.Parallel()
	onEachLane(t, func(t *testing.T, name lanes.Lane) {
		b := testkit.New(t, name)
		b.Stock("shoe", 10)
		b.Tick(b.Lane(queues.LaneConfig{}))
		first := b.Submit("first", "shoe", 1)
		var late requests.Request
		var admit sync.Once
		drainOnce(b, name, &steppedPolicy{ClaimPolicy: b.Lane(queues.LaneConfig{}).Policy(), claimed: func() {
			admit.Do(func() { late = b.Submit("late", "shoe", 1) })
		}}, first.Slot)
		b.Want(first, requests.Done, "")
		markStaysBelow(b, late)
	})
}
