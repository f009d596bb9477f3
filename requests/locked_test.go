package requests_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/holdfast/holdfast/internal/lanetest"
	"github.com/holdfast/holdfast/queues"
	"github.com/holdfast/holdfast/requests"
)

func refusals(t *testing.T, why requests.Why) int64 {
	t.Helper()
	return lanetest.Counted(t, "holdfast.admission.refusals", map[string]string{"reason": string(why)})
}

// A lock on the table is not taken for one on an idempotency key: with or without a key, alone or in a group, the caller
// receives a refusal of its own kind, which is counted, and the same call succeeds when the table is free. No other test of
// the package counts while a test runs that is not parallel.
func TestLockedTableIsNoKey(t *testing.T) {
	b := newNormal(t)
	impatient := b.With("lock_timeout", "50ms")
	in := impatient.Intake(requests.IntakeConfig{Committers: 1})
	for _, relation := range []string{"reservation_requests", "idempotency_keys"} {
		blocker := b.Lock(`LOCK TABLE ` + relation + ` IN ACCESS EXCLUSIVE MODE`)
		before := refusals(t, requests.WhyLocked)
		var callers sync.WaitGroup
		answers := make([]error, 20)
		for i := range answers {
			key := fmt.Sprint(relation, i)
			if i%2 == 0 && relation == "reservation_requests" { // the other table is not read without a key
				key = ""
			}
			callers.Go(func() { _, answers[i] = submit(t, in, b.Tenant, "shoe", key) })
		}
		callers.Wait()
		for _, err := range answers {
			wantRefusal(t, err, requests.RefusedError{Why: requests.WhyLocked})
		}
		if n := refusals(t, requests.WhyLocked) - before; n != int64(len(answers)) {
			t.Errorf("%d refusals are counted, want %d", n, len(answers))
		}
		must(t, blocker.Rollback(t.Context()))
		for i := range answers {
			_, err := submit(t, in, b.Tenant, "shoe", fmt.Sprint(relation, i))
			must(t, err)
		}
	}
}

// A key in use is found after the caller's admission began, and is counted as every other refusal is.
func TestKeyInUseIsCounted(t *testing.T) {
	b := newNormal(t)
	impatient := b.With("lock_timeout", "50ms")
	in := impatient.Intake(requests.IntakeConfig{Committers: 1})
	before := refusals(t, requests.WhyKey)
	must(t, finishAtOnce(t.Context(), b.Begin(), b.Tenant, "held"))
	_, err := submit(t, in, b.Tenant, "shoe", "held")
	wantRefusal(t, err, requests.RefusedError{Why: requests.WhyKey})
	if n := refusals(t, requests.WhyKey) - before; n != 1 {
		t.Errorf("%d refusals are counted, want 1", n)
	}
}

// A request in isolated retry waits for its decision like a queued one, though others have moved the mark of its stream
// past it: it counts in the lane's depth and age, and against the bound of admission.
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
	lanes, err := queues.Lanes(t.Context(), b.DB)
	must(t, err)
	for _, l := range lanes {
		if l.Lane == requests.Normal && (l.Depth != 1 || l.OldestAgeSeconds < 90) {
			t.Errorf("depth %d, age %g s, want 1 and at least 90", l.Depth, l.OldestAgeSeconds)
		}
		if l.Lane == requests.Hot && l.Depth != 0 {
			t.Errorf("%d requests wait in the hot lane, want none", l.Depth)
		}
	}
	in := newBounded(t, b, requests.IntakeConfig{DepthMax: 1, TenantSharePercent: 100})
	_, err = submit(t, in, b.Tenant, "shoe", "")
	wantRefusal(t, err, requests.RefusedError{Why: requests.WhyDepth, Lane: requests.Normal, Own: true})
}
