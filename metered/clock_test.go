package metered_test

import (
	"errors"
	"testing"
	"time"

	"github.com/holdfast/holdfast/metered"
)

// setBack makes the database's clock appear to have been set back by so much: what is in the ledger is in the future. by is
// whole buckets of every window in use.
func (b *bundle) setBack(by time.Duration) {
	b.t.Helper()
	b.age(-by)
}

// A clock that is set back keeps no tenant out: what was reserved before leaves the window when it would have left it, and
// every answer says so.
func TestBudgetWhenClockIsSetBack(t *testing.T) {
	t.Parallel()
	const window = time.Minute
	for name, c := range map[string]struct{ known, by time.Duration }{
		"the window is known":            {window, time.Hour},
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
				if got.Reserved || got.Remaining != 0 || got.Wait <= 0 || got.Wait > window+2*time.Second || got.Reset > window+2*time.Second {
					t.Errorf("right after: %+v", got)
				}
			}
			reservation.ReservedAt = reservation.ReservedAt.Add(c.by) // where setBack has moved it
			if difference, err := b.budgets.Settle(t.Context(), b.tenant, reservation, 50); err != nil || difference != -50 {
				t.Errorf("settled: %d, %v", difference, err)
			}
			if got := b.reserve(charge("s", 50, 100, window)); !got.Reserved || got.Remaining != 0 {
				t.Errorf("what the settlement gave back: %+v", got)
			}
			b.age(window + 2*time.Second) // passes
			if sum := b.sum("s", window); sum != 0 {
				t.Errorf("a window later the sum is %d", sum)
			}
			got := b.reserve(charge("s", 100, 100, window))
			if !got.Reserved || got.Remaining != 0 || got.Reset > window+2*time.Second {
				t.Errorf("a window later: %+v", got)
			}
			if _, err := b.budgets.Settle(t.Context(), b.tenant, got.Reservation, 0); err != nil {
				t.Error(err)
			}
			if sum := b.sum("s", window); sum != 0 {
				t.Errorf("when all is given back the sum is %d", sum)
			}
		})
	}
}

// A refused charge under a window that is new to the scope has its sums forget what has left the windows. A clock that is set
// back afterwards does not take the scope back to a moment at which that would count again.
func TestBudgetRefusedBeforeClockIsSetBack(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	const window, limit = 10 * time.Minute, 28
	b.reserve(charge("s", 1, 1, 6*time.Minute))
	b.age(8 * time.Minute)
	b.reserve(charge("s", 12, limit, window))
	b.age(10 * time.Minute)
	if got := b.reserve(charge("s", 6, 5, time.Hour)); got.Reserved {
		t.Fatalf("%+v, want no room", got)
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

// A clock that is set back costs a rate one window at most, whatever the step, and no answer is negative.
func TestRateWhenClockIsSetBack(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	rate := metered.Rate{Scope: "s", Amount: 1, Limit: 600, Window: time.Minute}
	for _, hours := range []int{1, 24, 24 * 365} {
		b.setRate("s", hours)
		got := b.enter(counted, b.visit(noToken, rate), b.visit(noToken, rate))
		for _, e := range got {
			over, ok := errors.AsType[*metered.OverRateError](e.Err)
			s := e.Standings[0]
			if !ok || over.Wait <= 0 || over.Wait > 200*time.Millisecond || s.Remaining != 0 || s.Reset <= 0 || s.Reset > rate.Window+time.Second {
				t.Errorf("set back by %d h: %v, %+v", hours, e.Err, s)
			}
		}
		if n := b.count(`SELECT count(*) FROM budget_rates WHERE full_at > (extract(epoch FROM clock_timestamp()) + 61) * 1e9`); n != 0 {
			t.Errorf("set back by %d h: the rate stays further from full than its window", hours)
		}
	}
}
