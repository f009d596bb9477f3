package admission_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/google/uuid"

	"github.com/holdfast/holdfast/internal/admission"
	"github.com/holdfast/holdfast/internal/pgtest"
	"github.com/holdfast/holdfast/internal/requestrows"
)

// The callers of one tenant fill the queue while the database is stuck. Callers
// of two other tenants still find capacity. They are admitted in round robin,
// ahead of most callers of the first tenant, and in order within each tenant.
func TestTenantsTakeTurns(t *testing.T) {
	t.Parallel()
	b := newNormal(t)
	tenants := []uuid.UUID{uuid.New(), uuid.New(), uuid.New()}
	in, err := admission.NewIntake(b.DB, b.Inserter, admission.IntakeConfig{Committers: 1, GroupMax: 20, QueueMax: 60})
	pgtest.Must(t, err)
	c := &crowd{t: t, in: in, answers: make([]answer, 70)}
	join := func(i, tenant int) {
		t.Helper()
		s := add(fmt.Sprint("cart-", i), "shoe", "")
		s.TenantID = tenants[tenant]
		before := in.Waiting()
		c.waiting.Go(func() { c.answers[i].request, c.answers[i].err = in.Submit(t.Context(), s) })
		pgtest.Until(t, "the caller is in the queue", func() bool { return in.Waiting() == before+1 })
	}
	for i := range 60 {
		join(i, 0)
	}
	for i := range 10 {
		join(60+i, 1+i%2)
	}
	crowded := add("late", "shoe", "")
	crowded.TenantID = tenants[0]
	var refused *admission.RefusedError
	if _, err := in.Submit(t.Context(), crowded); !errors.Is(err, admission.ErrOverLimit) || !errors.As(err, &refused) || refused.Why != admission.WhyQueue {
		t.Errorf("one more caller of the tenant: %v, want ErrOverLimit by WhyQueue", err)
	}
	answers := c.run()
	for i, a := range answers {
		if a.err != nil {
			t.Fatalf("caller %d: %v", i, a.err)
		}
		previous := i - 2 // two tenants alternate
		if i < 60 {
			previous = i - 1
		}
		first := i == 0 || i == 60 || i == 61
		if !first && answers[previous].request.Sequence > a.request.Sequence {
			t.Errorf("caller %d was admitted before caller %d of the same tenant", i, previous)
		}
	}
	// The first group has 20 callers: 5 of each of the other tenants, and the
	// rest of the first tenant.
	if n := b.Int(`SELECT count(*) FROM reservation_requests WHERE tenant_id <> $1 AND sequence <= 20`, tenants[0]); n != 10 {
		t.Errorf("%d of the others' 10 callers were in the first group", n)
	}
}

// While the committer of the hot lane is stuck and many callers wait behind it,
// the normal lane admits requests.
func TestLanesHaveSeparateQueues(t *testing.T) {
	t.Parallel()
	b := newHot(t)
	b.Stock("shoe", 100)
	b.Exec(`INSERT INTO inventory_stocks (tenant_id, variant_id, stock) VALUES ($1, 'sock', 100)`, b.Tenant)
	gate := b.Begin()
	stuck := add("a", "shoe", "key")
	stuck.TenantID = b.Tenant
	_, err := admission.SubmitTx(t.Context(), gate, b.Inserter, stuck) // a call with the key waits for this transaction
	pgtest.Must(t, err)
	in := newBounded(t, b, admission.IntakeConfig{Committers: 1, GroupMax: 1}) // it has read which variant is hot
	var crowd sync.WaitGroup
	join := func(s requestrows.Submission) {
		crowd.Go(func() {
			if _, err := in.Submit(t.Context(), s); err != nil {
				t.Error(err)
			}
		})
	}
	join(stuck)
	b.Blocked()
	for i := range 5 {
		s := add(fmt.Sprint("cart-", i), "shoe", "")
		s.TenantID = b.Tenant
		join(s)
	}
	pgtest.Until(t, "the crowd is in the queue", func() bool { return in.Waiting() == 5 })
	other := add("b", "sock", "")
	other.TenantID = b.Tenant
	_, err = in.Submit(t.Context(), other)
	pgtest.Must(t, err)
	if n := in.Waiting(); n != 5 {
		t.Errorf("%d callers wait in the queue of the hot lane, want 5 still", n)
	}
	pgtest.Must(t, gate.Commit(t.Context()))
	crowd.Wait()
}

// A tenant alone fills the queue up to its limit. After that, callers of other
// tenants still find capacity, but those of the first tenant do not. With many
// tenants, no tenant has more callers than the remaining capacity.
func TestQueueCapacity(t *testing.T) {
	t.Parallel()
	b := newNormal(t)
	in, err := admission.NewIntake(b.DB, b.Inserter, admission.IntakeConfig{GroupMax: 4, QueueMax: 12})
	pgtest.Must(t, err)
	ctx, leave := context.WithCancel(t.Context())
	var callers sync.WaitGroup
	defer callers.Wait()
	defer leave()
	fill := func(tenant uuid.UUID) (found int, refused error) {
		t.Helper()
		for ; ; found++ {
			s := add("a", "shoe", "")
			s.TenantID = tenant
			before, over := in.Waiting(), make(chan error, 1)
			callers.Go(func() { _, err := in.Submit(ctx, s); over <- err })
			pgtest.Until(t, "it is in the queue or is refused", func() bool { return in.Waiting() > before || len(over) > 0 })
			if len(over) > 0 {
				return found, <-over
			}
		}
	}
	for i, want := range []struct {
		places int
		err    error
	}{{12, admission.ErrOverloaded}, {6, admission.ErrOverloaded}, {3, admission.ErrOverloaded}, {2, admission.ErrOverloaded}, {1, admission.ErrOverloaded}, {0, admission.ErrOverloaded}} {
		if places, err := fill(uuid.New()); places != want.places || !errors.Is(err, want.err) {
			t.Errorf("tenant %d queued %d callers, then %v; want %d, then %v", i, places, err, want.places, want.err)
		}
	}
}
