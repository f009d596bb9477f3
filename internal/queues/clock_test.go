package queues_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/internal/lanes"
	"github.com/holdfast/holdfast/internal/queues"
	"github.com/holdfast/holdfast/internal/testkit"
	"github.com/holdfast/holdfast/requests"
)

// The database's clock is set back, as by a failover to a host whose clock is
// behind, so recorded times are in the future. A capped lane gets no credit for
// that time, and from then on it decides what its cap allows. It does not wait
// until the clock has caught up.
func TestClockSetBackUnderCap(t *testing.T) {
	t.Parallel()
	for _, name := range lanes.All() {
		for _, ahead := range []string{"3 milliseconds", "1 hour"} {
			t.Run(string(name)+" "+ahead, func(t *testing.T) {
				t.Parallel()
				b := testkit.New(t, name)
				b.Stock("shoe", 1000)
				lane := b.Lane(queues.LaneConfig{ServeFor: time.Nanosecond})
				for range 30 {
					b.Submit("a", "shoe", 1)
				}
				const saturatedSQL = `
					UPDATE lane_slots SET rate_cap = 10, tokens = 0.5, refilled_at = clock_timestamp() + $2::text::interval
					WHERE lane = $1 AND slot = -1`
				b.Exec(saturatedSQL, name, ahead)
				if _, err := lane.Tick(t.Context()); err != nil {
					t.Fatal(err)
				}
				b.Exec(`UPDATE lane_slots SET refilled_at = refilled_at - interval '1 second' WHERE lane = $1 AND slot = -1`, name)
				if _, err := lane.Tick(t.Context()); err != nil {
					t.Fatal(err)
				}
				if n := b.Int(`SELECT count(*) FROM reservations`); n < 10 {
					t.Errorf("%d decided a second after the clock was set back, under a cap of 10 per second, want 10", n)
				}
				b.CheckInvariants()
			})
		}
	}
}

// A request in isolated retry whose claim was made before the clock was set
// back is tried again at once.
func TestClockSetBackInIsolatedRetry(t *testing.T) {
	t.Parallel()
	b := testkit.New(t, lanes.Normal)
	b.Stock("shoe", 10)
	lapsed, live := b.Submit("a", "shoe", 1), b.Submit("b", "shoe", 1)
	const claimSQL = `
		UPDATE reservation_requests
		SET status = 'processing', attempts = 1, claim_epoch = 1, updated_at = clock_timestamp() + $2::text::interval,
		    claim_expires_at = clock_timestamp() + $2::text::interval + interval '15 seconds'
		WHERE request_id = $1`
	b.Exec(claimSQL, lapsed.RequestID, "1 hour")
	b.Exec(claimSQL, live.RequestID, "3 milliseconds") // after a small step no claim has expired
	b.Tick(b.Lane(queues.LaneConfig{}))
	b.Want(lapsed, requests.Done, "")
	b.Want(live, requests.Processing, "")
	b.CheckInvariants()
}

// A lane's figures are correct even if the times of its window and of its
// requests are in the future.
func TestClockSetBackInFigures(t *testing.T) {
	t.Parallel()
	b := testkit.New(t, lanes.Normal)
	b.Stock("shoe", 10)
	r := b.Submit("a", "shoe", 1)
	b.Exec(`UPDATE reservation_requests SET created_at = clock_timestamp() + interval '1 hour'`)
	b.Exec(`UPDATE lane_slots SET rate = 99, window_decided = 99, window_started_at = clock_timestamp() + interval '1 hour' WHERE slot = -1`)
	states, err := queues.Lanes(t.Context(), b.DB)
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range states {
		if l.OldestAgeSeconds < 0 || l.RatePerSecond != 0 {
			t.Errorf("%s: oldest %g s, rate %g/s, want an age of at least 0 and the rate since the step", l.Lane, l.OldestAgeSeconds, l.RatePerSecond)
		}
	}
	b.Tick(b.Lane(queues.LaneConfig{}))
	b.Want(r, requests.Done, "")
	if n := b.Int(`SELECT count(*) FROM lane_slots WHERE lane = 'normal' AND slot = -1 AND window_started_at <= clock_timestamp()`); n != 1 {
		t.Error("the window of the measured rate still begins in the future")
	}
}

// panics is the normal lane's policy with a bug: it panics on a batch with a
// request of the cart "bad". It is for one drain.
type panics struct {
	queues.ClaimPolicy
	bad bool
}

func (p *panics) ClaimTx(ctx context.Context, tx pgx.Tx, lease queues.Lease, limit int) (queues.Claim, error) {
	claim, err := p.ClaimPolicy.ClaimTx(ctx, tx, lease, limit)
	p.bad = slices.ContainsFunc(claim.Requests, func(r requests.Request) bool { return r.CartID == "bad" })
	return claim, err
}

func (p *panics) QueueCheckpoint(*pgx.Batch, queues.Lease) {
	if p.bad {
		panic("a bug")
	}
}

// A panic caused by one row ends neither the process nor the lane. The row is
// isolated like one that fails with an error.
func TestPanicIsARowsFault(t *testing.T) {
	t.Parallel()
	b := testkit.New(t, lanes.Normal)
	b.Stock("shoe", 100)
	var all []requests.Request
	for _, cart := range []string{"a", "b", "bad", "c", "d"} {
		all = append(all, b.Submit(cart, "shoe", 1))
	}
	lane, err := queues.NewLane(b.DB, discard, lanes.Normal, &panics{ClaimPolicy: b.Lane(queues.LaneConfig{}).Policy()}, queues.LaneConfig{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	for b.Int(`SELECT count(*) FROM reservation_requests WHERE status <> 'done'`) > 0 {
		if _, err := lane.Tick(ctx); err != nil {
			t.Fatal(err)
		}
	}
	for _, r := range all {
		b.Want(r, requests.Done, "")
	}
	b.CheckInvariants()
}
