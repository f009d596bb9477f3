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

// A call that finishes at once holds its idempotency key for long. Requests under that key are told to come again, and
// hold up neither the rest of their group nor the groups after it; once the key is free, it is theirs.
func TestHeldKeyHoldsUpNobody(t *testing.T) {
	t.Parallel()
	b := newNormal(t)
	slow := b.Begin()
	must(t, finishAtOnce(t.Context(), slow, b.Tenant, "held"))
	in, err := requests.NewIntake(b.With("lock_timeout", "50ms").DB, b.Bell, requests.IntakeConfig{Committers: 1})
	must(t, err)
	other := uuid.New()
	var callers sync.WaitGroup
	answers := make([]error, 21)
	for i := range answers {
		s := add(fmt.Sprint("cart-", i), "shoe", fmt.Sprint("key-", i))
		if s.TenantID = b.Tenant; i%2 == 1 {
			s.TenantID = other
		}
		if i == 10 {
			s.IdempotencyKey = "held"
		}
		callers.Go(func() { _, answers[i] = in.Submit(t.Context(), s) })
		eventually(t, "the caller stands in the line", func() bool { return in.InLine() == i+1 })
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- in.Run(ctx) }()
	callers.Wait()
	for i, err := range answers {
		if i == 10 {
			wantRefusal(t, err, requests.RefusedError{Why: requests.WhyKey})
		} else if err != nil {
			t.Errorf("caller %d: %v", i, err)
		}
	}
	if n := b.Int(`SELECT count(*) FROM reservation_requests`); n != 20 {
		t.Errorf("%d rows, want 20", n)
	}
	_, err = submit(t, in, b.Tenant, "shoe", "held") // known to be held
	wantRefusal(t, err, requests.RefusedError{Why: requests.WhyKey})
	if _, err := submit(t, in, other, "shoe", "held"); err != nil {
		t.Errorf("another tenant's request under the same text: %v", err)
	}
	must(t, slow.Rollback(t.Context()))
	eventually(t, "the key is free", func() bool {
		_, err := submit(t, in, b.Tenant, "shoe", "held")
		if err != nil && !errors.Is(err, requests.ErrOverloaded) {
			t.Fatal(err)
		}
		return err == nil
	})
	stop()
	must(t, <-ended)
}
