package admission_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/google/uuid"

	"github.com/holdfast/holdfast/internal/admission"
	"github.com/holdfast/holdfast/internal/lanes"
	"github.com/holdfast/holdfast/internal/pgtest"
	"github.com/holdfast/holdfast/internal/queues"
	"github.com/holdfast/holdfast/internal/testkit"
)

// A call that finishes at once keeps its idempotency key locked for long.
// Requests under that key are refused with WhyKey. They delay neither the rest
// of their group nor the groups after it. When the key is free, a request can
// use it.
func TestLockedKeyDelaysNoOtherCall(t *testing.T) {
	t.Parallel()
	b := newNormal(t)
	slow := b.Begin()
	pgtest.Must(t, finishAtOnce(t.Context(), slow, b.Tenant, "held"))
	in, err := admission.NewIntake(b.With("lock_timeout", "50ms").DB, b.Inserter, admission.IntakeConfig{Committers: 1})
	pgtest.Must(t, err)
	other := uuid.New()
	var callers sync.WaitGroup
	answers := make([]error, 21)
	for i := range answers {
		s := add(fmt.Sprint("cart-", i), "shoe", fmt.Sprint("key-", i))
		s.TenantID = b.Tenant
		if i%2 == 1 {
			s.TenantID = other
		}
		if i == 10 {
			s.IdempotencyKey = "held"
		}
		callers.Go(func() { _, answers[i] = in.Submit(t.Context(), s) })
		pgtest.Until(t, "the caller is in the queue", func() bool { return in.Waiting() == i+1 })
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- in.Run(ctx) }()
	callers.Wait()
	for i, err := range answers {
		if i == 10 {
			wantRefusal(t, err, admission.RefusedError{Why: admission.WhyKey})
		} else if err != nil {
			t.Errorf("caller %d: %v", i, err)
		}
	}
	if n := b.Int(`SELECT count(*) FROM reservation_requests`); n != 20 {
		t.Errorf("%d rows, want 20", n)
	}
	_, err = submit(t, in, b.Tenant, "shoe", "held") // cached as locked
	wantRefusal(t, err, admission.RefusedError{Why: admission.WhyKey})
	if _, err := submit(t, in, other, "shoe", "held"); err != nil {
		t.Errorf("another tenant's request under the same key: %v", err)
	}
	pgtest.Must(t, slow.Rollback(t.Context()))
	pgtest.Until(t, "the key is free", func() bool {
		_, err := submit(t, in, b.Tenant, "shoe", "held")
		if err != nil && !errors.Is(err, admission.ErrOverloaded) {
			t.Fatal(err)
		}
		return err == nil
	})
	stop()
	pgtest.Must(t, <-ended)
}

func refusals(t *testing.T, why admission.Why) int64 {
	t.Helper()
	return testkit.Counted(t, "holdfast.admission.refusals", map[string]string{"reason": string(why)})
}

// A lock on the table is distinguished from a lock on an idempotency key. With
// or without a key, alone or in a group, the caller receives a refusal with
// WhyLocked, which is counted. The same call succeeds when the table is free.
//
// The test is not parallel, so no other test of the package changes the
// counters while it runs.
func TestLockedTableIsNoKey(t *testing.T) {
	b := newNormal(t)
	shortWait := b.With("lock_timeout", "50ms")
	in := shortWait.Intake(admission.IntakeConfig{Committers: 1})
	for _, relation := range []string{"reservation_requests", "idempotency_keys"} {
		blocker := b.Lock(`LOCK TABLE ` + relation + ` IN ACCESS EXCLUSIVE MODE`)
		before := refusals(t, admission.WhyLocked)
		var callers sync.WaitGroup
		answers := make([]error, 8)
		for i := range answers {
			key := fmt.Sprint(relation, i)
			if i%2 == 0 && relation == "reservation_requests" { // without a key the other table is not read
				key = ""
			}
			callers.Go(func() { _, answers[i] = submit(t, in, b.Tenant, "shoe", key) })
		}
		callers.Wait()
		for _, err := range answers {
			wantRefusal(t, err, admission.RefusedError{Why: admission.WhyLocked})
		}
		if n := refusals(t, admission.WhyLocked) - before; n != int64(len(answers)) {
			t.Errorf("%d refusals are counted, want %d", n, len(answers))
		}
		pgtest.Must(t, blocker.Rollback(t.Context()))
		for i := range answers {
			_, err := submit(t, in, b.Tenant, "shoe", fmt.Sprint(relation, i))
			pgtest.Must(t, err)
		}
	}
}

// The admission finds out only late that the key is in use. The refusal is
// counted like every other one.
func TestKeyInUseIsCounted(t *testing.T) {
	b := newNormal(t)
	shortWait := b.With("lock_timeout", "50ms")
	in := shortWait.Intake(admission.IntakeConfig{Committers: 1})
	before := refusals(t, admission.WhyKey)
	pgtest.Must(t, finishAtOnce(t.Context(), b.Begin(), b.Tenant, "held"))
	_, err := submit(t, in, b.Tenant, "shoe", "held")
	wantRefusal(t, err, admission.RefusedError{Why: admission.WhyKey})
	if n := refusals(t, admission.WhyKey) - before; n != 1 {
		t.Errorf("%d refusals are counted, want 1", n)
	}
}

// A request in isolated retry waits for its decision like a queued one,
// although the low-water mark of its stream is past it. It counts in the lane's
// depth and age, and against the bound of admission.
func TestRetriedRequestCounts(t *testing.T) {
	t.Parallel()
	b := newNormal(t)
	b.Stock("shoe", 10)
	r := b.Submit("retried", "shoe", 1)
	b.Exec(`
		UPDATE reservation_requests
		SET status = 'processing', attempts = 1, claim_epoch = 1, claim_expires_at = clock_timestamp() + interval '1 minute',
		    created_at = clock_timestamp() - interval '90 seconds'
		WHERE request_id = $1`, r.RequestID)
	b.Exec(`UPDATE lane_slots SET low_water = $1 WHERE lane = 'normal' AND slot >= 0`, r.Sequence)
	states, err := queues.Lanes(t.Context(), b.DB)
	pgtest.Must(t, err)
	for _, l := range states {
		if l.Lane == lanes.Normal && (l.Depth != 1 || l.OldestAgeSeconds < 90) {
			t.Errorf("depth %d, age %g s, want 1 and at least 90", l.Depth, l.OldestAgeSeconds)
		}
		if l.Lane == lanes.Hot && l.Depth != 0 {
			t.Errorf("%d requests wait in the hot lane, want none", l.Depth)
		}
	}
	in := newBounded(t, b, admission.IntakeConfig{DepthMax: 1, TenantSharePercent: 100})
	_, err = submit(t, in, b.Tenant, "shoe", "")
	wantRefusal(t, err, admission.RefusedError{Why: admission.WhyDepth, Lane: lanes.Normal, TenantOnly: true})
}
