package requests_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/holdfast/holdfast/queues"
	"github.com/holdfast/holdfast/requests"
)

// fill submits requests of a tenant until one is refused, limit at most, and returns how many were admitted.
func fill(t *testing.T, in submitter, tenant uuid.UUID, limit int) (n int) {
	t.Helper()
	for ; n < limit; n++ {
		_, err := submit(t, in, tenant, "shoe", "")
		if _, refused := errors.AsType[*requests.RefusedError](err); refused {
			return n
		}
		must(t, err)
	}
	return n
}

// Two processes share the depth of a lane. What a process has admitted itself counts at once, and what the others
// have as soon as it is published; nothing counts twice.
func TestProcessesShareTheDepth(t *testing.T) {
	t.Parallel()
	b := newNormal(t)
	config := requests.IntakeConfig{DepthMax: 40, TenantSharePercent: 100}
	one, other := newBounded(t, b, config), newBounded(t, b, config)
	if n := fill(t, one, b.Tenant, 30); n != 30 {
		t.Fatalf("one process admitted %d of 30", n)
	}
	other.count(t)
	if n := fill(t, other, b.Tenant, 100); n != 10 {
		t.Errorf("the other process admitted %d, want the 10 that are left", n)
	}
	if n := fill(t, one, b.Tenant, 100); n != 10 {
		t.Errorf("before the next count the first process admitted %d, want the 10 that it knows to be left", n)
	}
	b.Exec(`DELETE FROM reservation_requests WHERE sequence <= 15`)
	one.count(t)
	if n := fill(t, one, b.Tenant, 100); n != 5 {
		t.Errorf("with 35 waiting %d were admitted, want 5", n)
	}
	other.count(t)
	if n := fill(t, other, b.Tenant, 100); n != 0 {
		t.Errorf("%d were admitted to a full lane", n)
	}
}

// A tenant's share is one over all processes, and leaves room for another tenant in each of them.
func TestProcessesShareATenantsPart(t *testing.T) {
	t.Parallel()
	b := newNormal(t)
	config := requests.IntakeConfig{DepthMax: 40}
	one, other := newBounded(t, b, config), newBounded(t, b, config)
	fill(t, one, b.Tenant, 15)
	other.count(t)
	if n := fill(t, other, b.Tenant, 100); n != 5 {
		t.Errorf("the tenant was admitted %d times, want 5 besides the 15 in the other process", n)
	}
	_, err := submit(t, other, b.Tenant, "shoe", "")
	wantRefusal(t, err, requests.RefusedError{Own: true, Why: requests.WhyDepth, Lane: requests.Normal})
	for _, in := range []*bounded{one, other} {
		if _, err := submit(t, in, uuid.New(), "shoe", ""); err != nil {
			t.Errorf("another tenant: %v", err)
		}
	}
}

// Two processes are flooded while a worker runs whose lane is paused. Together they exceed the depth by no more than
// what is admitted between two counts, far less than if neither knew of the other.
func TestFloodOfTwoProcesses(t *testing.T) {
	t.Parallel()
	b := newNormal(t)
	must(t, queues.Control(t.Context(), b.DB, requests.Normal, queues.LanePatch{Paused: new(true)}, shopper))
	lane := b.Lane(queues.LaneConfig{})
	b.Bell.Attach(lane)
	b.Run(lane)
	var flood sync.WaitGroup
	const limit, callers, every = 1000, 4, 10 * time.Millisecond // 800 requests per second
	var refused atomic.Int64
	for range 2 {
		in := b.Intake(requests.IntakeConfig{DepthMax: limit, TenantSharePercent: 100})
		for range callers {
			flood.Go(func() {
				tick := time.NewTicker(every)
				defer tick.Stop()
				for range 2 * limit {
					<-tick.C
					_, err := submit(t, in, b.Tenant, "shoe", "")
					if err != nil {
						wantOverLimit(t, err)
						refused.Add(1)
						return
					}
				}
			})
		}
	}
	flood.Wait()
	n := b.Int(`SELECT count(*) FROM reservation_requests`)
	if n < limit || n >= limit*3/2 || refused.Load() != 2*callers {
		t.Errorf("%d admitted and %d callers refused, want %d and what comes between two counts", n, refused.Load(), limit)
	}
	t.Logf("admitted %d of %d", n, limit)
}

// The depth and the age hold where no worker runs, also in a process that has just started.
func TestBoundsHoldWithoutWorkers(t *testing.T) {
	t.Parallel()
	b := newNormal(t)
	queued(t, b, b.Tenant, "shoe", 20)
	refusedFor := func(in submitter, why requests.Why) func() bool {
		return func() bool {
			_, err := submit(t, in, uuid.New(), "sock", "one key")
			refused, ok := errors.AsType[*requests.RefusedError](err)
			return ok && refused.Why == why
		}
	}
	for process := range 2 {
		in := b.Intake(requests.IntakeConfig{DepthMax: 20})
		eventually(t, fmt.Sprint("a caller is refused by process ", process), refusedFor(in, requests.WhyDepth))
	}
	in := b.Intake(requests.IntakeConfig{AgeMax: time.Minute})
	b.Exec(`UPDATE reservation_requests SET created_at = created_at - interval '2 minutes'`)
	eventually(t, "a caller is refused for the age of what waits", refusedFor(in, requests.WhyAge))
	b.Exec(`DELETE FROM reservation_requests`)
	eventually(t, "a caller is admitted", func() bool {
		_, err := submit(t, in, b.Tenant, "shoe", "")
		return err == nil
	})
}

// A load that no worker replaces any more, because it was killed, is replaced by a process that admits.
func TestStaleLoadIsReplaced(t *testing.T) {
	t.Parallel()
	b := newNormal(t)
	b.Exec(`
		INSERT INTO lane_loads (lane, drawn, load, counted_at, published_at)
		SELECT lane, 0, '{"depth":1000,"tenants":1}', clock_timestamp() - interval '3 seconds', clock_timestamp() - interval '2.9 seconds'
		FROM unnest('{hot,normal}'::text[]) AS lane`)
	in := b.Intake(requests.IntakeConfig{DepthMax: 10})
	eventually(t, "the load is replaced, and callers are admitted", func() bool {
		_, err := submit(t, in, uuid.New(), "shoe", "")
		replaced := b.Int(`SELECT count(*) FROM lane_loads WHERE load->>'depth' = '1000'`) == 0
		return err == nil && replaced
	})
}

// The load is read while callers come, and no more once none do.
func TestLoadIsReadWhileCallersCome(t *testing.T) {
	t.Parallel()
	b := newNormal(t)
	var reads atomic.Int64
	in := b.Intake(requests.IntakeConfig{Load: func(context.Context, time.Duration) (requests.Load, error) {
		reads.Add(1)
		return requests.Load{}, nil
	}})
	call := func() {
		_, err := submit(t, in, b.Tenant, "shoe", "")
		must(t, err)
	}
	eventually(t, "it is read at first", func() bool { return reads.Load() > 0 })
	eventually(t, "it is read again while callers come", func() bool { call(); return reads.Load() > 2 })
	last, quiet := reads.Load(), time.Now()
	eventually(t, "it is not read for a second", func() bool {
		if n := reads.Load(); n != last {
			last, quiet = n, time.Now()
		}
		return time.Since(quiet) > time.Second
	})
	call()
	eventually(t, "it is read again", func() bool { return reads.Load() > last })
}

// A process that no callers came to for a while does not refuse the first one by what waited then.
func TestLoadIsNotUsedAfterAWhile(t *testing.T) {
	t.Parallel()
	b := newNormal(t)
	in := b.Intake(requests.IntakeConfig{DepthMax: 10, Load: func(context.Context, time.Duration) (requests.Load, error) {
		return requests.Load{Lanes: map[string]requests.LaneLoad{requests.Normal: {Depth: 10}}}, nil
	}})
	eventually(t, "a caller is refused", func() bool { return fill(t, in, b.Tenant, 1) == 0 })
	refused := time.Now()
	eventually(t, "two seconds pass", func() bool { return time.Since(refused) > 2*time.Second })
	if _, err := submit(t, in, b.Tenant, "shoe", ""); err != nil {
		t.Errorf("the first call after two seconds: %v", err)
	}
}

// If no load can be read, what this process has admitted counts; without a source of loads, only what waits for
// admission.
func TestWithoutLoad(t *testing.T) {
	t.Parallel()
	b := newNormal(t)
	config := requests.IntakeConfig{DepthMax: 10, TenantSharePercent: 100}
	config.Load = func(context.Context, time.Duration) (requests.Load, error) {
		return requests.Load{}, errors.New("no load")
	}
	if n := fill(t, b.Intake(config), b.Tenant, 100); n != 10 {
		t.Errorf("%d were admitted while no load can be read, want 10", n)
	}
	config.Load = nil
	in, _ := running(t, b.DB, b.Bell, config)
	if n := fill(t, in, b.Tenant, 30); n != 30 {
		t.Errorf("%d of 30 were admitted one after the other without a source of loads", n)
	}
}

// Where the sequence was set back, what was admitted before no longer counts: its numbers are drawn again.
func TestLoadAfterTheSequenceWasSetBack(t *testing.T) {
	t.Parallel()
	b := newNormal(t)
	in := newBounded(t, b, requests.IntakeConfig{DepthMax: 5, TenantSharePercent: 100})
	fill(t, in, b.Tenant, 5)
	b.Exec(`DELETE FROM reservation_requests`)
	in.count(t)
	if n := fill(t, in, b.Tenant, 100); n != 5 {
		t.Fatalf("%d were admitted, want 5", n)
	}
	b.Exec(`DELETE FROM reservation_requests`)
	b.Exec(`ALTER SEQUENCE reservation_requests_sequence_seq RESTART WITH 3`)
	in.count(t)
	if n := fill(t, in, b.Tenant, 100); n != 5 {
		t.Errorf("%d were admitted once the sequence was set back, want 5", n)
	}
}
