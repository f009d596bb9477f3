package metered_test

import (
	"testing"
	"time"
)

// setBack makes the database's clock appear to have been set back by that much:
// it moves the ledger into the future. by must be a multiple of the bucket of
// every window in use.
func (b *bundle) setBack(by time.Duration) {
	b.t.Helper()
	b.age(-by)
}

// A clock that is set back makes no tenant wait longer. Earlier reservations
// leave the window at the same time as without it, and all reported states are
// consistent.
func TestBudgetWhenClockIsSetBack(t *testing.T) {
	t.Parallel()
	const window = time.Minute
	for name, c := range map[string]struct{ known, by time.Duration }{
		"the scope has the window":       {window, time.Hour},
		"the window must be counted":     {2 * window, time.Hour},
		"set back by less than a window": {window, window / 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBundle(t)
			reservation := b.reserve(charge("s", 100, 100, c.known)).Reservation
			b.setBack(c.by)
			if sum := b.sum("s", window); sum != 100 {
				t.Errorf("the sum is %d", sum)
			}
			for range 2 {
				got := b.reserve(charge("s", 60, 100, window))
				if reserved(got) || got.Remaining != 0 || got.Wait <= 0 || got.Wait > window+2*time.Second || got.Reset > window+2*time.Second {
					t.Errorf("right after the change: %+v", got)
				}
			}
			reservation.ReservedAt = reservation.ReservedAt.Add(c.by) // setBack has moved it
			if difference, err := b.budgets.Settle(t.Context(), b.tenant, reservation, 50); err != nil || difference != -50 {
				t.Errorf("settled: %d, %v", difference, err)
			}
			if got := b.reserve(charge("s", 50, 100, window)); !reserved(got) || got.Remaining != 0 {
				t.Errorf("after the settlement: %+v", got)
			}
			b.age(window + 2*time.Second) // passes
			if sum := b.sum("s", window); sum != 0 {
				t.Errorf("a window later the sum is %d", sum)
			}
			got := b.reserve(charge("s", 100, 100, window))
			if !reserved(got) || got.Remaining != 0 || got.Reset > window+2*time.Second {
				t.Errorf("a window later: %+v", got)
			}
			if _, err := b.budgets.Settle(t.Context(), b.tenant, got.Reservation, 0); err != nil {
				t.Error(err)
			}
			if sum := b.sum("s", window); sum != 0 {
				t.Errorf("after a settlement at 0 the sum is %d", sum)
			}
		})
	}
}

// A refused charge with a window that is new to the scope drops from the sums
// what has left the windows. If the clock is set back afterwards, the scope
// does not return to a time at which those entries would count again.
func TestBudgetRefusedBeforeClockIsSetBack(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	const window, limit = 10 * time.Minute, 28
	b.reserve(charge("s", 1, 1, 6*time.Minute))
	b.age(8 * time.Minute)
	b.reserve(charge("s", 12, limit, window))
	b.age(10 * time.Minute)
	if got := b.reserve(charge("s", 6, 5, time.Hour)); reserved(got) {
		t.Fatalf("%+v, want a refusal", got)
	}
	b.setBack(3 * time.Hour)
	for amount := int64(limit); amount > 0; amount-- {
		b.reserve(charge("s", amount, limit, window))
	}
	if sum := b.count(`
		SELECT sum(amount)
		FROM budget_ledger
		WHERE recorded_at > (SELECT max(recorded_at) FROM budget_ledger) - interval '10 minutes'`); sum > limit {
		t.Errorf("%d were reserved in a window, want at most %d", sum, limit)
	}
}
