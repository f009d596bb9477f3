package ratelimit_test

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/metered"
	"github.com/holdfast/holdfast/ratelimit"
)

// hourly is a rate per day. The amounts in the tests are hours of it, so that
// nothing is refilled while a test runs.
func hourly(scope string, amount, limit int64) ratelimit.Rate {
	return ratelimit.Rate{Scope: scope, Amount: amount, Limit: limit, Window: 24 * time.Hour}
}

// redeemAt redeems the tokens of the items with these indexes, and only counts
// the others.
func redeemAt(places ...int) func(int) itemMode {
	return func(i int) itemMode {
		if slices.Contains(places, i) {
			return countAndRedeem
		}
		return countItem
	}
}

// errorsOf returns the errors of the results as text, for a rate its scope.
func errorsOf(results []ratelimit.Result) []string {
	texts := make([]string, len(results))
	for i, e := range results {
		if over, ok := errors.AsType[*ratelimit.ExceededError](e.Err); ok {
			texts[i] = "over " + over.Scope
		} else if e.Err != nil {
			texts[i] = e.Err.Error()
		}
	}
	return texts
}

// remaining returns what remains of each rate of each result.
func remaining(results []ratelimit.Result) [][]int64 {
	left := make([][]int64, len(results))
	for i, e := range results {
		for _, s := range e.States {
			left[i] = append(left[i], s.Remaining)
		}
	}
	return left
}

// setRate writes a rate that is full again after that many hours.
func (b *bundle) setRate(scope string, hours int) {
	b.t.Helper()
	b.exec(`INSERT INTO budget_rates (tenant_id, scope, full_at)
		VALUES ($1, $2, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint * 1000 + $3 * 3600000000000::bigint)
		ON CONFLICT (tenant_id, scope) DO UPDATE SET full_at = excluded.full_at`, b.tenant, scope, hours)
}

// rates returns after how many hours each rate of the tenant is full again,
// without those that are full.
func (b *bundle) rates(tenant uuid.UUID) map[string]int {
	b.t.Helper()
	found, err := b.db.Query(b.t.Context(), `SELECT scope, full_at / 1e9 - extract(epoch FROM clock_timestamp()) FROM budget_rates WHERE tenant_id = $1`, tenant)
	b.must(err)
	hours := make(map[string]int)
	var scope string
	var seconds float64
	_, err = pgx.ForEachRow(found, []any{&scope, &seconds}, func() error {
		if h := int(math.Ceil(seconds/3600 - 1e-6)); h > 0 {
			hours[scope] = h
		}
		return nil
	})
	b.must(err)
	return hours
}

func (b *bundle) wantRates(want map[string]int) {
	b.t.Helper()
	if diff := cmp.Diff(want, b.rates(b.tenant)); diff != "" {
		b.t.Errorf("hours until the rates are full (-want +got):\n%s", diff)
	}
}

// unspent returns the indexes of the tokens that can still be redeemed. It
// tries each and rolls back.
func (b *bundle) unspent(tokens []metered.Token) (left []int) {
	b.t.Helper()
	err := b.inTx(func(tx pgx.Tx) error {
		for i, token := range tokens {
			if _, err := b.tokens.ConsumeTx(b.t.Context(), tx, b.tenant, redeem(token)); err == nil {
				left = append(left, i)
			} else if !errors.Is(err, errUsed) {
				b.t.Errorf("token %d: %v", i, err)
			}
		}
		return pgx.ErrTxClosed
	})
	if !errors.Is(err, pgx.ErrTxClosed) {
		b.t.Fatal(err)
	}
	return left
}

// A whole batch is counted: each item in its rates, new and known ones, and its
// token is redeemed.
func TestBatch(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	b.setRate("known", 3)
	tokens := b.mintMany(4)
	var items []item
	for i, token := range tokens[:3] {
		items = append(items, b.item(token, hourly("known", 1, 24), hourly("new", 2, 24), hourly(fmt.Sprint("own-", i), 1, 12)))
	}
	results := b.decide(redeemAll, items...)
	if diff := cmp.Diff([]string{"", "", ""}, errorsOf(results)); diff != "" {
		t.Errorf("counted (-want +got):\n%s", diff)
	}
	want := [][]ratelimit.State{
		{{20, 0, 4 * time.Hour}, {22, 0, 2 * time.Hour}, {11, 0, 2 * time.Hour}},
		{{19, 0, 5 * time.Hour}, {20, 0, 4 * time.Hour}, {11, 0, 2 * time.Hour}},
		{{18, 0, 6 * time.Hour}, {18, 0, 6 * time.Hour}, {11, 0, 2 * time.Hour}},
	}
	for i, e := range results {
		if diff := cmp.Diff(want[i], e.States, aboutAnHour); diff != "" {
			t.Errorf("states of %d (-want +got):\n%s", i, diff)
		}
	}
	b.wantRates(map[string]int{"known": 6, "new": 6, "own-0": 2, "own-1": 2, "own-2": 2})
	if left := b.unspent(tokens); !cmp.Equal(left, []int{3}) {
		t.Errorf("unspent: %v", left)
	}
	if n := b.count(`SELECT count(*) FROM expiring_tokens WHERE consumed_at >= created_at AND consumed_at <= clock_timestamp()`); n != 3 {
		t.Errorf("%d tokens were redeemed", n)
	}
	if results := b.decide(redeemAll); len(results) != 0 {
		t.Errorf("an empty group: %+v", results)
	}
}

// aboutAnHour compares durations of whole hours. Less than half an hour passes
// while a test runs.
var aboutAnHour = cmp.Comparer(func(a, b time.Duration) bool {
	return (a > 0) == (b > 0) && (a < 0) == (b < 0) && (a-b).Abs() < 30*time.Minute
})

// The items are decided in their order: first come, first served. A refused
// item uses no capacity of later ones, and each result has the states right
// after its item.
func TestBatchOrder(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	b.setRate("shop", 14)
	results := b.decide(redeemAt(5, 13),
		b.item(noToken, hourly("shop", 4, 24), hourly("ann", 1, 2)),                // 18 of 24
		b.item(noToken, hourly("shop", 7, 24), hourly("ann", 1, 2)),                // more than remains of the shop's rate
		b.item(noToken, hourly("shop", 1, 24), hourly("ann", 3, 2)),                // can never fit
		b.item(noToken, hourly("shop", 5, 24), hourly("ann", 1, 2)),                // takes the last of ann's rate
		b.item(noToken, hourly("shop", 1, 24), hourly("ann", 1, 2)),                // nothing is left of ann's rate
		b.item(rubbish, hourly("shop", 1, 24)),                                     // refused because of its token
		b.item(noToken, hourly("bob", 1, 1), hourly("shop", 1, 24)),                // takes the last of the shop's rate
		b.item(noToken, hourly("cem", 1, 1), hourly("shop", 1, 24)),                // does not count in cem's rate
		b.item(noToken, hourly("dee", 1, 2), hourly("dee", 2, 2)),                  // the same scope twice, too much together
		b.item(noToken, hourly("dee", 1, 2), hourly("dee", 1, 2)),                  // the same scope twice, not too much
		b.itemOf(uuid.New(), nil, hourly("shop", 24, 24)),                          // another tenant's rate is full
		b.itemOf(uuid.New(), nil),                                                  // without rates
		b.item(noToken, hourly("ann", 1, 2)), b.item(rubbish, hourly("ann", 1, 2)), // the refusal of the token comes first
	)
	malformed := errMalformed.Error()
	if diff := cmp.Diff([]string{"", "over shop", "over ann", "", "over ann", malformed, "", "over shop", "over dee", "", "", "", "over ann", malformed}, errorsOf(results)); diff != "" {
		t.Errorf("refused (-want +got):\n%s", diff)
	}
	want := [][]int64{{6, 1}, {6, 1}, {6, 1}, {1, 0}, {1, 0}, {1}, {0, 0}, {1, 0}, {2, 2}, {0, 0}, {0}, nil, {0}, {0}}
	if diff := cmp.Diff(want, remaining(results)); diff != "" {
		t.Errorf("remaining (-want +got):\n%s", diff)
	}
	for i, want := range map[int]time.Duration{1: time.Hour, 4: 12 * time.Hour, 7: time.Hour, 12: 12 * time.Hour} {
		over, _ := errors.AsType[*ratelimit.ExceededError](results[i].Err)
		if over == nil || !cmp.Equal(over.Wait, want, aboutAnHour) || over.Amount > over.Limit || over.Window != 24*time.Hour {
			t.Errorf("item %d: %+v, want a wait of %s", i, over, want)
		}
	}
	if over, _ := errors.AsType[*ratelimit.ExceededError](results[2].Err); over == nil || over.Wait >= 0 {
		t.Errorf("more than the limit: %+v, want an endless wait", over)
	}
	b.wantRates(map[string]int{"shop": 24, "ann": 24, "bob": 24, "dee": 24})
}

// Two limits on one scope share its theoretical arrival time. Each limits how
// far ahead that may be.
func TestBatchTwoLimits(t *testing.T) {
	t.Parallel()
	for _, known := range []int{0, 2} { // hours by which the scope is ahead before
		b := newBundle(t)
		if known > 0 {
			b.setRate("s", known)
		}
		narrow := ratelimit.Rate{Scope: "s", Amount: 1, Limit: 6, Window: 6 * time.Hour}
		results := b.decide(countAll,
			b.item(noToken, hourly("s", 3-int64(known), 24)),                          // at 3 h
			b.item(noToken, narrow), b.item(noToken, narrow), b.item(noToken, narrow), // at 6 h
			b.item(noToken, narrow),                                      // refused
			b.item(noToken, hourly("s", 16, 24)),                         // at 22 h
			b.item(noToken, narrow), b.item(noToken, hourly("s", 3, 24)), // refused
			b.item(noToken, hourly("s", 1, 12)), // at 24 h
		)
		if diff := cmp.Diff([]string{"", "", "", "", "over s", "", "over s", "over s", ""}, errorsOf(results)); diff != "" {
			t.Errorf("refused (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff([][]int64{{21}, {2}, {1}, {0}, {0}, {2}, {0}, {2}, {0}}, remaining(results)); diff != "" {
			t.Errorf("remaining (-want +got):\n%s", diff)
		}
		if wait := results[6].States[0].Wait; !cmp.Equal(wait, 17*time.Hour, aboutAnHour) {
			t.Errorf("the smaller limit waits for %s", wait)
		}
		b.wantRates(map[string]int{"s": 24})
	}
}

// After a rollback nothing is counted or redeemed, and no row remains.
func TestBatchRolledBack(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	b.setRate("known", 3)
	tokens := b.mintMany(2)
	failed := errors.New("failed")
	for _, mode := range []func(int) itemMode{redeemAll, func(i int) itemMode { return itemMode(i) }} {
		err := b.inTx(func(tx pgx.Tx) error {
			_, err := b.decideTx(tx, mode,
				b.item(tokens[0], hourly("known", 1, 24), hourly("new", 1, 24)), b.item(tokens[1], hourly("known", 30, 24)), b.item(tokens[1], hourly("new", 1, 24)))
			b.must(err)
			return failed
		})
		if !errors.Is(err, failed) {
			t.Fatal(err)
		}
		b.wantRates(map[string]int{"known": 3})
		if n := b.count(`SELECT count(*) FROM budget_rates`); n != 1 {
			t.Errorf("%d rates have rows", n)
		}
		if left := b.unspent(tokens); len(left) != 2 {
			t.Errorf("unspent: %v", left)
		}
	}
}
