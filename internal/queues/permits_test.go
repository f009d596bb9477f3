package queues

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/google/uuid"
)

// While no permit is free, tenants receive permits in turn, however many
// streams one of them has.
func TestPermitsTakeTurns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPermits(1, 0)
		crowd, other := uuid.New(), uuid.New()
		if err := p.acquire(t.Context(), &crowd); err != nil {
			t.Fatal(err)
		}
		var served []uuid.UUID
		wait := func(tenant uuid.UUID) {
			go func() {
				if err := p.acquire(t.Context(), &tenant); err != nil {
					t.Error(err)
				}
				served = append(served, tenant)
				(&permit{of: p}).release()
			}()
			synctest.Wait() // in this order
		}
		for range 3 {
			wait(crowd)
		}
		wait(other)
		(&permit{of: p}).release()
		synctest.Wait()
		if want := []uuid.UUID{crowd, other, crowd, crowd}; !slices.Equal(served, want) {
			t.Errorf("served %v, want %v", served, want)
		}
		if p.free != 1 || len(p.waiting) != 0 || len(p.rotation) != 0 {
			t.Errorf("%d free, %d tenants wait, want 1 and none", p.free, len(p.rotation))
		}
	})
}

// A stream that stops waiting does not lose a permit, even if it is granted one
// at that moment.
func TestPermitsAreNotLost(t *testing.T) {
	t.Parallel()
	p := newPermits(2, 0)
	tenants := []uuid.UUID{uuid.New(), uuid.New(), uuid.New()}
	ended := make(chan error)
	const streams, rounds = 8, 500
	for i := range streams {
		go func() {
			for n := range rounds {
				ctx, cancel := context.WithCancel(t.Context())
				if (i+n)%3 == 0 {
					go cancel()
				}
				err := p.acquire(ctx, &tenants[i%3])
				cancel()
				switch {
				case err == nil:
					(&permit{of: p}).release()
				case !errors.Is(err, context.Canceled):
					ended <- err
					return
				}
			}
			ended <- nil
		}()
	}
	for range streams {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	if p.free != 2 || len(p.waiting) != 0 || len(p.rotation) != 0 {
		t.Errorf("%d free, %d tenants wait, want 2 and none", p.free, len(p.rotation))
	}
}
