package admission_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/holdfast/holdfast/internal/admission"
	"github.com/holdfast/holdfast/internal/lanes"
	"github.com/holdfast/holdfast/internal/pgtest"
	"github.com/holdfast/holdfast/internal/queues"
)

// fill submits requests of a tenant until one is refused, at most limit of
// them. It returns how many were admitted.
func fill(t *testing.T, in submitter, tenant uuid.UUID, limit int) (n int) {
	t.Helper()
	for ; n < limit; n++ {
		_, err := submit(t, in, tenant, "shoe", "")
		if _, refused := errors.AsType[*admission.RefusedError](err); refused {
			return n
		}
		pgtest.Must(t, err)
	}
	return n
}

// Two processes share the depth of a lane. Requests that a process has admitted
// count in it at once. Those that other processes have admitted count once they
// are published. No request counts twice.
func TestProcessesShareTheDepth(t *testing.T) {
	t.Parallel()
	b := newNormal(t)
	config := admission.IntakeConfig{DepthMax: 40, TenantSharePercent: 100}
	one, other := newBounded(t, b, config), newBounded(t, b, config)
	if n := fill(t, one, b.Tenant, 30); n != 30 {
		t.Fatalf("one process admitted %d of 30", n)
	}
	other.count(t)
	if n := fill(t, other, b.Tenant, 100); n != 10 {
		t.Errorf("the other process admitted %d, want the 10 that are left", n)
	}
	if n := fill(t, one, b.Tenant, 100); n != 10 {
		t.Errorf("before the next count the first process admitted %d, want the 10 that are left by its last reading", n)
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

// A tenant has one share over all processes, so there is capacity for another
// tenant in each of them.
func TestProcessesShareATenantsPart(t *testing.T) {
	t.Parallel()
	b := newNormal(t)
	config := admission.IntakeConfig{DepthMax: 40}
	one, other := newBounded(t, b, config), newBounded(t, b, config)
	fill(t, one, b.Tenant, 15)
	other.count(t)
	if n := fill(t, other, b.Tenant, 100); n != 5 {
		t.Errorf("the tenant was admitted %d times, want 5 in addition to the 15 in the other process", n)
	}
	_, err := submit(t, other, b.Tenant, "shoe", "")
	wantRefusal(t, err, admission.RefusedError{TenantOnly: true, Why: admission.WhyDepth, Lane: lanes.Normal})
	for _, in := range []*bounded{one, other} {
		if _, err := submit(t, in, uuid.New(), "shoe", ""); err != nil {
			t.Errorf("another tenant: %v", err)
		}
	}
}

// Two processes are flooded while the lane of the only worker is paused.
// Together they exceed the depth by at most the requests that are admitted
// between two counts. That is far less than if each counted only its own
// requests.
func TestFloodOfTwoProcesses(t *testing.T) {
	t.Parallel()
	b := newNormal(t)
	pgtest.Must(t, lanes.Control(t.Context(), b.DB, lanes.Normal, lanes.Patch{Paused: new(true)}, shopper))
	lane := b.Lane(queues.LaneConfig{})
	b.Inserter.Attach(lane)
	b.Run(lane)
	const limit, callers, each = 200, 4, 5
	const between = 2 * callers * each // admitted between two counts
	config := admission.IntakeConfig{DepthMax: limit, TenantSharePercent: 100}
	processes := []*admission.Intake{b.Intake(config), b.Intake(config)}
	var refused atomic.Int64
	for round := 0; round*between <= 2*limit && refused.Load() < between; round++ {
		refused.Store(0)
		var flood sync.WaitGroup
		for range callers {
			for _, in := range processes {
				flood.Go(func() {
					for range each {
						if _, err := submit(t, in, b.Tenant, "shoe", ""); err != nil {
							wantOverLimit(t, err)
							refused.Add(1)
						}
					}
				})
			}
		}
		flood.Wait()
		pgtest.Until(t, "the worker has counted them", func() bool {
			return b.Int(`SELECT count(*) FROM lane_loads WHERE lane = 'normal' AND drawn >= (SELECT max(sequence) FROM reservation_requests)`) == 1
		})
		for _, in := range processes {
			pgtest.Must(t, in.Refresh(t.Context()))
		}
	}
	n := b.Int(`SELECT count(*) FROM reservation_requests`)
	if n < limit || n > limit+between || refused.Load() != between {
		t.Errorf("%d admitted and the last %d of %d refused, want %d and those admitted between two counts", n, refused.Load(), between, limit)
	}
	t.Logf("admitted %d of %d", n, limit)
}

// The bounds of depth and age are kept even if no worker runs, and in a process
// that has just started.
func TestBoundsHoldWithoutWorkers(t *testing.T) {
	t.Parallel()
	b := newNormal(t)
	queued(t, b, b.Tenant, "shoe", 20)
	refusedFor := func(in submitter, why admission.Why) func() bool {
		return func() bool {
			_, err := submit(t, in, uuid.New(), "sock", "one key")
			refused, ok := errors.AsType[*admission.RefusedError](err)
			return ok && refused.Why == why
		}
	}
	for process := range 2 {
		in := b.Intake(admission.IntakeConfig{DepthMax: 20})
		pgtest.Until(t, fmt.Sprint("a caller is refused by process ", process), refusedFor(in, admission.WhyDepth))
	}
	in := b.Intake(admission.IntakeConfig{AgeMax: time.Minute})
	b.Exec(`UPDATE reservation_requests SET created_at = created_at - interval '2 minutes'`)
	pgtest.Until(t, "a caller is refused because of the backlog's age", refusedFor(in, admission.WhyAge))
	b.Exec(`DELETE FROM reservation_requests`)
	pgtest.Until(t, "a caller is admitted", func() bool {
		_, err := submit(t, in, b.Tenant, "shoe", "")
		return err == nil
	})
}

// If the worker that counts the load was killed, a process that admits requests
// counts it.
func TestStaleLoadIsReplaced(t *testing.T) {
	t.Parallel()
	b := newNormal(t)
	b.Exec(`
		INSERT INTO lane_loads (lane, drawn, load, counted_at, published_at)
		SELECT lane, 0, '{"depth":1000,"tenants":1}', clock_timestamp() - interval '3 seconds', clock_timestamp() - interval '2.9 seconds'
		FROM unnest('{hot,normal}'::text[]) AS lane`)
	in := b.Intake(admission.IntakeConfig{DepthMax: 1000})
	pgtest.Until(t, "the load is replaced, and callers are admitted", func() bool {
		_, err := submit(t, in, uuid.New(), "shoe", "")
		replaced := b.Int(`SELECT count(*) FROM lane_loads WHERE load->>'depth' = '1000'`) == 0
		return err == nil && replaced
	})
}

// reading returns an intake that only reads the load, until the test ends.
func reading(t *testing.T, config admission.IntakeConfig) *admission.Intake {
	t.Helper()
	in, err := admission.NewIntake(nil, nil, config)
	pgtest.Must(t, err)
	go in.ReadLoad(t.Context())
	synctest.Wait()
	return in
}

// The load is read while callers come, and not after that.
func TestLoadIsReadWhileCallersCome(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var reads atomic.Int64
		in := reading(t, admission.IntakeConfig{Load: func(context.Context, time.Duration) (lanes.Load, error) {
			reads.Add(1)
			return lanes.Load{}, nil
		}})
		want := func(when string, least, most int64) {
			t.Helper()
			synctest.Wait()
			if n := reads.Swap(0); n < least || n > most {
				t.Errorf("%s it is read %d times, want %d to %d", when, n, least, most)
			}
		}
		call := func() { in.Refuses(t.Context(), add("a", "shoe", "")) }
		want("at the start", 1, 1)
		<-time.After(time.Minute)
		want("before the first caller", 0, 0)
		for range 1000 {
			call()
			<-time.After(10 * time.Millisecond)
		}
		want("in ten seconds of callers", 38, 41)
		<-time.After(time.Minute)
		want("for the last callers", 0, 1)
		<-time.After(time.Minute)
		want("while no caller comes", 0, 0)
		call()
		want("when the next caller comes", 1, 1)
	})
}

// A process that had no caller for a while does not refuse the next one because
// of an old load.
func TestLoadIsNotUsedAfterAWhile(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		in := reading(t, admission.IntakeConfig{DepthMax: 10, Load: func(context.Context, time.Duration) (lanes.Load, error) {
			return lanes.Load{Lanes: map[lanes.Lane]lanes.LaneLoad{lanes.Normal: {Depth: 10}}}, nil
		}})
		if !in.Refuses(t.Context(), add("a", "shoe", "")) {
			t.Error("a full lane refuses no caller")
		}
		<-time.After(2 * time.Second)
		if in.Refuses(t.Context(), add("a", "shoe", "")) {
			t.Error("the first caller after two seconds is refused")
		}
	})
}

// If no load can be read, the requests that this process has admitted count.
// Without a source of loads, only the callers that wait for admission count.
func TestWithoutLoad(t *testing.T) {
	t.Parallel()
	b := newNormal(t)
	config := admission.IntakeConfig{DepthMax: 10, TenantSharePercent: 100}
	config.Load = func(context.Context, time.Duration) (lanes.Load, error) {
		return lanes.Load{}, errors.New("no load")
	}
	if n := fill(t, b.Intake(config), b.Tenant, 100); n != 10 {
		t.Errorf("%d were admitted while no load can be read, want 10", n)
	}
	config.Load = nil
	in, _ := running(t, b.DB, b.Inserter, config)
	if n := fill(t, in, b.Tenant, 30); n != 30 {
		t.Errorf("%d of 30 were admitted one after the other without a source of loads", n)
	}
}

// After the sequence was set back, requests admitted before no longer count,
// because their numbers are drawn again.
func TestLoadAfterTheSequenceWasSetBack(t *testing.T) {
	t.Parallel()
	b := newNormal(t)
	in := newBounded(t, b, admission.IntakeConfig{DepthMax: 5, TenantSharePercent: 100})
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
