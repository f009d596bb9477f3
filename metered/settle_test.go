package metered_test

import (
	"encoding/json"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/internal/purge"
	"github.com/holdfast/holdfast/metered"
)

// sum returns the amount that counts in a scope.
func (b *bundle) sum(scope string, window time.Duration) int64 {
	b.t.Helper()
	return must(b, func() (int64, error) { return b.budgets.WindowedSum(b.t.Context(), b.tenant, scope, window) })
}

// The settled cost of a reservation counts in place of the reserved amount, in
// every window, from the time of the reservation.
func TestSettle(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	first := b.reserve(charge("s", 60, 100, 6*time.Hour)).Reservation
	second := b.reserve(charge("s", 40, 100, time.Hour)).Reservation
	if d, err := b.budgets.Settle(t.Context(), b.tenant, first, 45); err != nil || d != -15 {
		t.Errorf("settled for less: %d, %v", d, err)
	}
	if d, err := b.budgets.Settle(t.Context(), b.tenant, second, 90); err != nil || d != 50 {
		t.Errorf("settled for more: %d, %v", d, err)
	}
	for _, window := range []time.Duration{time.Hour, 6 * time.Hour, 12 * time.Hour} { // the last one is counted from the ledger
		if sum := b.sum("s", window); sum != 135 {
			t.Errorf("in %s %d counts, want 135", window, sum)
		}
	}
	if got := b.reserve(charge("s", 1, 135, 6*time.Hour)); reserved(got) {
		t.Error("a settlement above the limit does not count")
	}
	if n := b.count(`SELECT sum(amount) FROM budget_ledger`); n != 135 {
		t.Errorf("the ledger has %d", n)
	}
}

// The difference leaves the window together with its reservation, so it must
// not free capacity later.
func TestSettlementDoesNotOutliveItsReservation(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	r := b.reserve(charge("s", 100, 100, time.Hour)).Reservation
	b.age(50 * time.Minute)
	r.ReservedAt = r.ReservedAt.Add(-50 * time.Minute)
	_, err := b.budgets.Settle(t.Context(), b.tenant, r, 0)
	b.must(err)
	if sum := b.sum("s", time.Hour); sum != 0 {
		t.Errorf("%d counts after a settlement at 0", sum)
	}
	b.age(20 * time.Minute)
	if got := b.reserve(charge("s", 101, 200, time.Hour)); got.Remaining != 99 {
		t.Errorf("%d remain of 200 after 101, want 99", got.Remaining)
	}
	if sum := b.sum("s", 30*time.Minute); sum != 101 {
		t.Errorf("counted from the ledger: %d, want 101", sum)
	}
}

func TestSettledOnce(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	r := b.reserve(charge("s", 60, 100, time.Hour)).Reservation
	kept, err := json.Marshal(r)
	b.must(err)
	var read metered.Reservation
	b.must(json.Unmarshal(kept, &read))
	var settled, again atomic.Int64
	var callers sync.WaitGroup
	for range 50 {
		callers.Go(func() {
			switch _, err := b.budgets.Settle(t.Context(), b.tenant, read, 60); {
			case err == nil:
				settled.Add(1)
			case errors.Is(err, metered.ErrSettled):
				again.Add(1)
			default:
				t.Error(err)
			}
		})
	}
	callers.Wait()
	if settled.Load() != 1 || again.Load() != 49 {
		t.Errorf("settled %d times, refused %d", settled.Load(), again.Load())
	}
	if got := b.rows().Entries; got != 2 {
		t.Errorf("%d entries, want 2", got)
	}
}

func TestSettleUnknown(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	r := b.reserve(charge("s", 60, 100, time.Hour)).Reservation
	settlement := r
	_, err := b.budgets.Settle(t.Context(), b.tenant, r, 0)
	b.must(err)
	b.must(b.db.QueryRow(t.Context(), `SELECT recorded_at FROM budget_ledger WHERE reserved_at IS NOT NULL`).Scan(&settlement.ReservedAt))
	for name, c := range map[string]struct {
		tenant uuid.UUID
		r      metered.Reservation
	}{
		"another tenant":  {uuid.New(), r},
		"another moment":  {b.tenant, metered.Reservation{Scope: "s", ReservedAt: r.ReservedAt.Add(time.Microsecond)}},
		"another scope":   {b.tenant, metered.Reservation{Scope: "t", ReservedAt: r.ReservedAt}},
		"no scope at all": {b.tenant, metered.Reservation{}},
		"a settlement":    {b.tenant, settlement},
	} {
		if _, err := b.budgets.Settle(t.Context(), c.tenant, c.r, 1); !errors.Is(err, metered.ErrUnknown) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := b.budgets.Settle(t.Context(), b.tenant, r, -1); !isInvalid(err, "actual") {
		t.Errorf("below zero: %v", err)
	}
	if got := b.rows(); got != (rows{Entries: 2, Scopes: 1}) {
		t.Errorf("the rows are %+v", got)
	}
}

func isInvalid(err error, field string) bool {
	var invalid *metered.Error
	return errors.As(err, &invalid) && invalid.Field == field
}

// Sums do not overflow, however much the costs exceed the reserved amounts.
func TestSumsDoNotOverflow(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	r := b.reserve(charge("s", 1, 10, time.Hour)).Reservation
	second := b.reserve(charge("s", 1, 10, time.Hour)).Reservation
	b.exec(`UPDATE budget_scopes SET sums[3] = 9223372036854775807 - 5`)
	if _, err := b.budgets.Settle(t.Context(), b.tenant, r, 7); !isInvalid(err, "actual") {
		t.Errorf("more than the maximum: %v", err)
	}
	if _, err := b.budgets.Settle(t.Context(), b.tenant, second, 6); err != nil {
		t.Errorf("the maximum: %v", err)
	}
	if got := b.reserve(charge("s", 1, metered.AmountMax, time.Hour)); reserved(got) || got.Remaining != 0 {
		t.Errorf("beyond the maximum sum: %+v", got)
	}
}

func TestRolledBackReservationIsGone(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	failed := errors.New("failed")
	err := b.inTx(func(tx pgx.Tx) error {
		got, err := b.budgets.TryReserveTx(t.Context(), tx, b.tenant, charge("s", 60, 100, time.Hour))
		if err != nil || !reserved(got) {
			t.Fatal(got, err)
		}
		return failed
	})
	if got := b.rows(); !errors.Is(err, failed) || got != (rows{}) {
		t.Errorf("left %+v, %v", got, err)
	}
}

func TestPurgeLedger(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	for _, scope := range []string{"a", "a", "b", "busy"} {
		b.reserve(charge(scope, 1, 100, time.Minute))
	}
	b.age(25 * time.Hour)
	b.reserve(charge("busy", 1, 100, time.Minute))
	for i, c := range []struct {
		retention time.Duration
		want      int64
	}{{26 * time.Hour, 0}, {0, 3}, {0, 1}, {0, 0}} {
		n, err := b.commands.PurgeLedger(t.Context(), c.retention, 3)
		b.must(err)
		if n != c.want {
			t.Errorf("purge %d deleted %d, want %d", i, n, c.want)
		}
	}
	var deleted, steps int64
	for at, more := (purge.Position{}), true; more; steps++ {
		last, n, rest, err := b.commands.PurgeScopes(t.Context(), at, 2)
		b.must(err)
		at, more, deleted = last, rest, deleted+n
	}
	if deleted != 2 || steps != 2 {
		t.Errorf("%d scopes were deleted in %d steps, want 2 in 2", deleted, steps)
	}
	if got := b.rows(); got != (rows{Entries: 1, Scopes: 1}) {
		t.Errorf("left %+v", got)
	}
	if got := b.reserve(charge("a", 1, 1, time.Minute)); !reserved(got) {
		t.Error("a purged scope is not empty")
	}
}
