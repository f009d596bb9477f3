package requests_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/google/uuid"

	"github.com/holdfast/holdfast/requests"
)

// One tenant's crowd fills the line while the database is stuck. Two others still find places in it and are admitted in
// their turns, ahead of most of the crowd, each tenant's callers in the order they came.
func TestTenantsTakeTurns(t *testing.T) {
	t.Parallel()
	b := newNormal(t)
	tenants := []uuid.UUID{uuid.New(), uuid.New(), uuid.New()}
	in, err := requests.NewIntake(b.DB, b.Bell, requests.IntakeConfig{Committers: 1, GroupMax: 20, LineMax: 60})
	must(t, err)
	c := &crowd{t: t, in: in, answers: make([]answer, 70)}
	join := func(i, tenant int) {
		t.Helper()
		s := add(fmt.Sprint("cart-", i), "shoe", "")
		s.TenantID = tenants[tenant]
		before := in.InLine()
		c.waiting.Go(func() { c.answers[i].request, c.answers[i].err = in.Submit(t.Context(), s) })
		eventually(t, "the caller stands in the line", func() bool { return in.InLine() == before+1 })
	}
	for i := range 60 {
		join(i, 0)
	}
	for i := range 10 {
		join(60+i, 1+i%2)
	}
	crowded := add("late", "shoe", "")
	crowded.TenantID = tenants[0]
	var refused *requests.RefusedError
	if _, err := in.Submit(t.Context(), crowded); !errors.Is(err, requests.ErrOverLimit) || !errors.As(err, &refused) || refused.Why != requests.WhyLine {
		t.Errorf("one more of the crowd: %v, want it refused for its own", err)
	}
	answers := c.run()
	for i, a := range answers {
		if a.err != nil {
			t.Fatalf("caller %d: %v", i, a.err)
		}
		if previous := map[bool]int{true: i - 1, false: i - 2}[i < 60]; previous >= 0 && (i < 60 || i > 61) &&
			answers[previous].request.Sequence > a.request.Sequence {
			t.Errorf("caller %d was admitted before caller %d of the same tenant", i, previous)
		}
	}
	// Of the first group, 20, the crowd has its turn and what is left after the others' 5 and 5.
	if n := b.Int(`SELECT count(*) FROM reservation_requests WHERE tenant_id <> $1 AND sequence <= 20`, tenants[0]); n != 10 {
		t.Errorf("%d of the others' 10 callers were in the first group", n)
	}
}

// While whoever admits to the hot lane is stuck and a crowd stands behind it, the normal lane is open.
func TestLanesHaveTheirLines(t *testing.T) {
	t.Parallel()
	b := newHot(t)
	b.Stock("shoe", 100)
	b.Exec(`INSERT INTO inventory_stocks (tenant_id, variant_id, stock) VALUES ($1, 'sock', 100)`, b.Tenant)
	gate := b.Begin()
	stuck := add("a", "shoe", "key")
	stuck.TenantID = b.Tenant
	_, err := requests.SubmitTx(t.Context(), gate, b.Bell, stuck) // whoever comes with the key waits for this transaction
	must(t, err)
	in := newBounded(t, b, requests.IntakeConfig{Committers: 1, GroupMax: 1}) // it knows which variant is hot
	var crowd sync.WaitGroup
	join := func(s requests.Submission) {
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
	eventually(t, "the crowd stands in the line", func() bool { return in.InLine() == 5 })
	other := add("b", "sock", "")
	other.TenantID = b.Tenant
	_, err = in.Submit(t.Context(), other)
	must(t, err)
	if n := in.InLine(); n != 5 {
		t.Errorf("%d stand in the line of the hot lane, want 5 still", n)
	}
	must(t, gate.Commit(t.Context()))
	crowd.Wait()
}

// A tenant alone fills the line up to its limit; then others still find a place, more of the first one's do not, and with
// many tenants nobody has more than the rest leaves.
func TestPlacesInLine(t *testing.T) {
	t.Parallel()
	b := newNormal(t)
	in, err := requests.NewIntake(b.DB, b.Bell, requests.IntakeConfig{GroupMax: 4, LineMax: 12})
	must(t, err)
	ctx, leave := context.WithCancel(t.Context())
	var callers sync.WaitGroup
	defer callers.Wait()
	defer leave()
	fill := func(tenant uuid.UUID) (found int, refused error) {
		t.Helper()
		for ; ; found++ {
			s := add("a", "shoe", "")
			s.TenantID = tenant
			before, over := in.InLine(), make(chan error, 1)
			callers.Go(func() { _, err := in.Submit(ctx, s); over <- err })
			eventually(t, "it stands in the line or is refused", func() bool { return in.InLine() > before || len(over) > 0 })
			if len(over) > 0 {
				return found, <-over
			}
		}
	}
	for i, want := range []struct {
		places int
		err    error
	}{{12, requests.ErrOverloaded}, {6, requests.ErrOverloaded}, {3, requests.ErrOverloaded}, {2, requests.ErrOverloaded}, {1, requests.ErrOverloaded}, {0, requests.ErrOverloaded}} {
		if places, err := fill(uuid.New()); places != want.places || !errors.Is(err, want.err) {
			t.Errorf("tenant %d found %d places, then %v; want %d, then %v", i, places, err, want.places, want.err)
		}
	}
}
