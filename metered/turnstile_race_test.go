package metered_test

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/metered"
)

// A thousand callers at once with one token, each at a turnstile of its own: one is let in.
func TestTurnstileOneToken(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	token := b.mint()
	let, used := b.thousand(func() metered.Visit { return b.visit(token, hourly("s", 1, 24)) }, metered.ErrTokenUsed)
	if let != 1 || used != 999 {
		t.Errorf("%d were let in and %d told that the token is used", let, used)
	}
	b.wantRates(map[string]int{"s": 1})
	if left := b.unspent([]metered.Token{token}); left != nil {
		t.Error("the token is unspent")
	}
}

// A thousand callers at once, known to a rate that nobody was counted in before, with room for 137.
func TestTurnstileOneRate(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	rate := metered.Rate{Scope: "s", Amount: 3, Limit: 3*137 + 2, Window: 24 * time.Hour}
	let, over := b.thousand(func() metered.Visit { return b.visitOf(b.tenant, nil, rate) }, nil)
	if let != 137 || over != 1000-137 {
		t.Errorf("%d were let in and %d refused", let, over)
	}
	if n := b.count(`SELECT count(*) FROM budget_rates WHERE full_at > (extract(epoch FROM clock_timestamp()) + 86400 * 410.0 / 413) * 1e9`); n != 1 {
		t.Error("the rate's row does not say what was let in")
	}
}

// thousand lets a thousand callers try at once, and says how many were let in and how many refused: as want says, or for
// their rate.
func (b *bundle) thousand(visit func() metered.Visit, want error) (let, refused int64) {
	b.t.Helper()
	var in, out atomic.Int64
	var callers sync.WaitGroup
	for range 1000 {
		v := visit()
		callers.Go(func() {
			treat := guarded
			if want == nil {
				treat = counted
			}
			err := b.inTx(func(tx pgx.Tx) error {
				entries, err := b.enterTx(tx, treat, v)
				if err != nil {
					return err
				}
				over, _ := errors.AsType[*metered.OverRateError](entries[0].Err)
				switch {
				case entries[0].Err == nil:
					in.Add(1)
				case over != nil && want == nil, errors.Is(entries[0].Err, want):
					out.Add(1)
				default:
					b.t.Error(entries[0].Err)
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

// Groups that share tokens and rates, new ones among them, in crossing orders, with some of them refused or ignored: none
// deadlocks, and what they were let in for is what the rows say.
func TestTurnstilesAtOnce(t *testing.T) {
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
		visits, presents, scopesOf := make([]metered.Visit, members), make([]int, members), make([]string, members)
		for i := range visits {
			presents[i] = (i*(2*g+1) + 7*g) % len(tokens)
			if i%9 == 8 {
				presents[i] = presents[i-1] // twice in one group
			}
			scopesOf[i] = fmt.Sprint("scope-", (i*(2*g+1)+g)%scopes)
			spend := redeem(tokens[presents[i]])
			if i%5 == 4 {
				spend.Subject = strange.Subject
			}
			amount := int64(1)
			if i%11 == 10 {
				amount = room // all that would fit in a full one
			}
			visits[i] = b.visitOf(b.tenant, &spend, hourly(scopesOf[i], amount, room), metered.Rate{Scope: "all", Amount: 1, Limit: 1e6, Window: time.Hour})
		}
		running.Go(func() {
			entries := b.enterOrFail(func(i int) metered.Treatment { return metered.Treatment((i + g) % 3) }, visits)
			mu.Lock()
			defer mu.Unlock()
			for i, e := range entries {
				if e.Err != nil || (i+g)%3 == int(metered.Ignored) {
					continue
				}
				if hours[scopesOf[i]]++; i%11 == 10 {
					hours[scopesOf[i]] += room - 1
				}
				if (i+g)%3 == int(metered.Guarded) {
					spent[presents[i]]++
				}
			}
		})
	}
	running.Wait()
	var unspent []int
	for i, n := range spent {
		if n > 1 {
			t.Errorf("token %d was spent %d times", i, n)
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
		t.Errorf("hours that were counted (-let in +rows):\n%s", diff)
	}
}

func (b *bundle) enterOrFail(treat func(int) metered.Treatment, visits []metered.Visit) (entries []metered.Entry) {
	err := b.inTx(func(tx pgx.Tx) (err error) {
		entries, err = b.enterTx(tx, treat, visits...)
		return err
	})
	if err != nil {
		b.t.Error(err)
	}
	return entries
}

// A group that holds a rate asks for no token any more, and for no other rate before it: whoever holds those waits for it.
func TestTurnstileWaitsInOrder(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		first, second func(b *bundle, token metered.Token) []metered.Visit
	}{
		"a token refused": {
			func(b *bundle, token metered.Token) []metered.Visit {
				spend := redeem(token)
				spend.Subject = "session-2"
				return []metered.Visit{b.visitOf(b.tenant, &spend, hourly("s", 1, 24))}
			},
			func(b *bundle, token metered.Token) []metered.Visit {
				return []metered.Visit{b.visit(token, hourly("s", 1, 24))}
			},
		},
		"a token presented twice": {
			func(b *bundle, token metered.Token) []metered.Visit {
				return []metered.Visit{b.visit(token, hourly("s", 1, 24)), b.visit(token, hourly("s", 1, 24))}
			},
			func(b *bundle, token metered.Token) []metered.Visit {
				return []metered.Visit{b.visit(token, hourly("s", 1, 24))}
			},
		},
		"more than a rate holds": {
			func(b *bundle, token metered.Token) []metered.Visit {
				own := hourly("customer", 1, 1)
				return []metered.Visit{b.visit(token, hourly("s", 1, 24), own), b.visit(b.mint(), hourly("s", 1, 24), own)}
			},
			func(b *bundle, _ metered.Token) []metered.Visit {
				return []metered.Visit{b.visit(b.mint(), hourly("s", 1, 24), hourly("customer", 1, 1))}
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
				turnstile, err := metered.NewTurnstile(first)
				b.must(err)
				batch := &pgx.Batch{}
				turnstile.Queue(batch)
				b.must(tx.SendBatch(t.Context(), batch).Close())
				go func() {
					ended <- b.inTx(func(tx pgx.Tx) error {
						_, err := b.enterTx(tx, guarded, second...)
						return err
					})
				}()
				b.awaitWaiting(1)
				_, err = turnstile.PassTx(t.Context(), tx, guarded)
				return err
			}))
			b.must(<-ended)
		})
	}
}
