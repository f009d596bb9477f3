package ratelimit_test

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/internal/pgtest"
	"github.com/holdfast/holdfast/metered"
	"github.com/holdfast/holdfast/ratelimit"
)

// Of a thousand concurrent callers with one token, each in a separate batch,
// one redeems it.
func TestOneToken(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	token := b.mint()
	counted, used := b.thousand(func() item { return b.item(token, hourly("s", 1, 24)) }, errUsed)
	if counted != 1 || used != 999 {
		t.Errorf("%d redeemed the token and %d were refused as used", counted, used)
	}
	b.wantRates(map[string]int{"s": 1})
	if left := b.unspent([]metered.Token{token}); left != nil {
		t.Error("the token is not redeemed")
	}
}

// A thousand concurrent callers are counted in a rate without a row, whose
// limit allows 137.
func TestOneRate(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	rate := ratelimit.Rate{Scope: "s", Amount: 3, Limit: 3*137 + 2, Window: 24 * time.Hour}
	counted, over := b.thousand(func() item { return b.itemOf(b.tenant, nil, rate) }, nil)
	if counted != 137 || over != 1000-137 {
		t.Errorf("%d were counted and %d refused", counted, over)
	}
	if n := b.count(`SELECT count(*) FROM budget_rates WHERE full_at > (extract(epoch FROM clock_timestamp()) + 86400 * 410.0 / 413) * 1e9`); n != 1 {
		t.Error("the rate's row does not have the number that was counted")
	}
}

// thousand runs a thousand concurrent callers. It returns how many were counted
// and how many were refused, with want or because of their rate.
func (b *bundle) thousand(newItem func() item, want error) (counted, refused int64) {
	b.t.Helper()
	var in, out atomic.Int64
	var callers sync.WaitGroup
	for range 1000 {
		v := newItem()
		callers.Go(func() {
			mode := redeemAll
			if want == nil {
				mode = countAll
			}
			err := b.inTx(func(tx pgx.Tx) error {
				results, err := b.decideTx(tx, mode, v)
				if err != nil {
					return err
				}
				over, _ := errors.AsType[*ratelimit.ExceededError](results[0].Err)
				switch {
				case results[0].Err == nil:
					in.Add(1)
				case over != nil && want == nil, errors.Is(results[0].Err, want):
					out.Add(1)
				default:
					b.t.Error(results[0].Err)
				}
				return nil
			})
			if err != nil {
				b.t.Error(err)
			}
		})
	}
	callers.Wait()
	return in.Load(), out.Load()
}

// Batches share tokens and rates, some of them new, in different orders, and
// some items are refused or skipped. None deadlocks, and the rows match what
// was counted.
func TestBatchesAtOnce(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	const groups, members, scopes, room = 32, 40, 12, 24
	tokens := b.mintMany(150)
	strange := redeem(noToken)
	strange.Subject = "session-2"
	var mu sync.Mutex
	spent, hours := make([]int, len(tokens)), make(map[string]int)
	var running sync.WaitGroup
	for g := range groups {
		items, presents, scopesOf := make([]item, members), make([]int, members), make([]string, members)
		for i := range items {
			presents[i] = (i*(2*g+1) + 7*g) % len(tokens)
			if i%9 == 8 {
				presents[i] = presents[i-1] // twice in one batch
			}
			scopesOf[i] = fmt.Sprint("scope-", (i*(2*g+1)+g)%scopes)
			spend := redeem(tokens[presents[i]])
			if i%5 == 4 {
				spend.Subject = strange.Subject
			}
			amount := int64(1)
			if i%11 == 10 {
				amount = room // the whole limit of a full rate
			}
			items[i] = b.itemOf(b.tenant, &spend, hourly(scopesOf[i], amount, room), ratelimit.Rate{Scope: "all", Amount: 1, Limit: 1e6, Window: time.Hour})
		}
		running.Go(func() {
			results := b.decideOrFail(func(i int) itemMode { return itemMode((i + g) % 3) }, items)
			mu.Lock()
			defer mu.Unlock()
			for i, e := range results {
				if e.Err != nil || (i+g)%3 == int(skipItem) {
					continue
				}
				if hours[scopesOf[i]]++; i%11 == 10 {
					hours[scopesOf[i]] += room - 1
				}
				if (i+g)%3 == int(countAndRedeem) {
					spent[presents[i]]++
				}
			}
		})
	}
	running.Wait()
	var unspent []int
	for i, n := range spent {
		if n > 1 {
			t.Errorf("token %d was redeemed %d times", i, n)
		}
		if n == 0 {
			unspent = append(unspent, i)
		}
	}
	if left := b.unspent(tokens); !cmp.Equal(left, unspent) {
		t.Errorf("unspent: %v, want %v", left, unspent)
	}
	rows := b.rates(b.tenant)
	delete(rows, "all")
	if diff := cmp.Diff(hours, rows); diff != "" {
		t.Errorf("hours that were counted (-results +rows):\n%s", diff)
	}
}

func (b *bundle) decideOrFail(mode func(int) itemMode, items []item) (results []ratelimit.Result) {
	err := b.inTx(func(tx pgx.Tx) (err error) {
		results, err = b.decideTx(tx, mode, items...)
		return err
	})
	if err != nil {
		b.t.Error(err)
	}
	return results
}

// A batch that has locked a rate locks no further token, and no rate that sorts
// before it. So a transaction that has locked those can wait for the batch.
func TestBatchWaitsInOrder(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		first, second func(b *bundle, token metered.Token) []item
	}{
		"a token refused": {
			func(b *bundle, token metered.Token) []item {
				spend := redeem(token)
				spend.Subject = "session-2"
				return []item{b.itemOf(b.tenant, &spend, hourly("s", 1, 24))}
			},
			func(b *bundle, token metered.Token) []item {
				return []item{b.item(token, hourly("s", 1, 24))}
			},
		},
		"a token presented twice": {
			func(b *bundle, token metered.Token) []item {
				return []item{b.item(token, hourly("s", 1, 24)), b.item(token, hourly("s", 1, 24))}
			},
			func(b *bundle, token metered.Token) []item {
				return []item{b.item(token, hourly("s", 1, 24))}
			},
		},
		"more than the limit of a rate": {
			func(b *bundle, token metered.Token) []item {
				own := hourly("customer", 1, 1)
				return []item{b.item(token, hourly("s", 1, 24), own), b.item(b.mint(), hourly("s", 1, 24), own)}
			},
			func(b *bundle, _ metered.Token) []item {
				return []item{b.item(b.mint(), hourly("s", 1, 24), hourly("customer", 1, 1))}
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBundle(t)
			token := b.mint()
			first, second := c.first(b, token), c.second(b, token)
			ended := make(chan error, 1)
			b.must(b.inTx(func(tx pgx.Tx) error {
				batch, tokens, err := newBatch(first)
				b.must(err)
				b.must(b.take(tx, batch, tokens))
				go func() {
					ended <- b.inTx(func(tx pgx.Tx) error {
						_, err := b.decideTx(tx, redeemAll, second...)
						return err
					})
				}()
				pgtest.UntilBlocked(t, b.db, 1)
				_, err = b.decideTaken(tx, redeemAll, batch, tokens)
				return err
			}))
			b.must(<-ended)
		})
	}
}
