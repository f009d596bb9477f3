package ratelimit_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/ratelimit"
)

// A purge reads the rates of all tenants, a few at a time, and deletes only
// those that are full again.
func TestPurgeRates(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	want := map[string]int{}
	for i := range 9 {
		scope := fmt.Sprint("rate-", i)
		b.setRate(scope, []int{-1, 0, 2}[i%3])
		if i%3 == 2 {
			want[scope] = 2
		}
	}
	other := uuid.MustParse("01900000-0000-7000-8000-000000000000") // sorts before the bundle's tenant
	b.exec(`INSERT INTO budget_rates (tenant_id, scope, full_at) VALUES ($1, 'rate-9', 0)`, other)
	var deleted []int64
	var at ratelimit.RateRef
	for more := true; more; {
		last, n, rest, err := ratelimit.Purge(t.Context(), b.db, at, 4)
		b.must(err)
		deleted, at, more = append(deleted, n), last, rest
	}
	if !slices.Equal(deleted, []int64{3, 3, 1}) || at != (ratelimit.RateRef{TenantID: b.tenant, Scope: "rate-8"}) {
		t.Errorf("deleted %d, up to %+v", deleted, at)
	}
	b.wantRates(want)
	if n := b.count(`SELECT count(*) FROM budget_rates`); n != len(want) {
		t.Errorf("%d rates are left, want %d", n, len(want))
	}
	for _, from := range []ratelimit.RateRef{at, {}} {
		_, deleted, more, err := ratelimit.Purge(t.Context(), b.db, from, 10)
		b.must(err)
		if deleted != 0 || more {
			t.Errorf("again, after %+v: %d deleted, more %t", from, deleted, more)
		}
	}
}

// A rate without a row is full. For the next item it makes no difference
// whether a rate was purged.
func TestPurgedRateIsFull(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	b.setRate("purged", -5)
	_, _, _, err := ratelimit.Purge(t.Context(), b.db, ratelimit.RateRef{}, 10)
	b.must(err)
	if n := b.count(`SELECT count(*) FROM budget_rates`); n != 0 {
		t.Fatalf("%d rates are left", n)
	}
	b.setRate("kept", -5)
	results := b.decide(countAll, b.item(noToken, hourly("purged", 20, 24), hourly("kept", 20, 24)), b.item(noToken, hourly("purged", 5, 24)), b.item(noToken, hourly("kept", 5, 24)))
	if diff := cmp.Diff([]string{"", "over purged", "over kept"}, errorsOf(results)); diff != "" {
		t.Errorf("refused (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([][]int64{{4, 4}, {4}, {4}}, remaining(results)); diff != "" {
		t.Errorf("remaining (-want +got):\n%s", diff)
	}
	b.wantRates(map[string]int{"kept": 20, "purged": 20})
}

// A purge skips rates in which a transaction is counting.
func TestPurgeRatesSkipsLocked(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	b.setRate("busy", -1)
	b.setRate("idle", -1)
	ctx, cancel := context.WithTimeout(t.Context(), waitMax)
	defer cancel()
	b.must(b.inTx(func(tx pgx.Tx) error {
		if _, err := b.decideTx(tx, countAll, b.item(noToken, hourly("busy", 1, 24))); err != nil {
			return err
		}
		_, deleted, _, err := ratelimit.Purge(ctx, b.db, ratelimit.RateRef{}, 10)
		if deleted != 1 {
			t.Errorf("%d deleted, want the idle one", deleted)
		}
		return err
	}))
	b.wantRates(map[string]int{"busy": 1})
}
