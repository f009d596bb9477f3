package metered_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/metered"
)

// A rate whose window was made shorter holds nobody up for longer than that, and neither does a clock that was set back.
func TestShorterWindow(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	day := metered.Rate{Scope: "s", Amount: 900, Limit: 1000, Window: 24 * time.Hour}
	if entries := b.enter(counted, b.visitOf(b.tenant, nil, day)); entries[0].Err != nil {
		t.Fatal(entries[0].Err)
	}
	minute := metered.Rate{Scope: "s", Amount: 1, Limit: 600, Window: time.Minute}
	got := b.enter(counted, b.visitOf(b.tenant, nil, minute))[0]
	over, ok := errors.AsType[*metered.OverRateError](got.Err)
	if !ok || over.Wait <= 0 || over.Wait > 200*time.Millisecond || got.Standings[0].Reset > time.Minute+time.Second {
		t.Errorf("%v, standing %+v; want to wait for one of 600 a minute", got.Err, got.Standings)
	}
}

// Of a group that can't go through at once, those are found who need a rate or a token that somebody else has locked.
func TestBlocked(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	locked, free := hourly("locked", 1, 24), hourly("free", 1, 24)
	spendLocked, spendFree := redeem(b.mint()), redeem(b.mint())
	b.enter(counted, b.visitOf(b.tenant, nil, locked, free))
	turnstile, err := metered.NewTurnstile([]metered.Visit{
		b.visitOf(b.tenant, nil, free),
		b.visitOf(b.tenant, nil, free, locked),
		b.visitOf(b.tenant, &spendFree, free),
		b.visitOf(b.tenant, &spendLocked, free),
		b.visitOf(b.tenant, nil, hourly("new", 1, 24)),
		b.visitOf(b.tenant, nil),
	})
	b.must(err)
	want := func(want metered.Blocked) {
		t.Helper()
		got, err := turnstile.Blocked(t.Context(), b.db)
		b.must(err)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("blocked (-want +got):\n%s", diff)
		}
	}
	want(metered.Blocked{})
	b.exec(`DELETE FROM budget_rates WHERE scope = 'new'`) // which the look has made
	b.must(b.inTx(func(tx pgx.Tx) error {
		if _, err := b.enterTx(tx, guarded, b.visitOf(b.tenant, &spendLocked, locked)); err != nil {
			return err
		}
		want(metered.Blocked{Places: []int{1, 3}, Rates: []metered.RateRef{{TenantID: b.tenant, Scope: "locked"}}})
		return nil
	}))
	b.exec(`DELETE FROM budget_rates WHERE scope = 'new'`)
	b.must(b.inTx(func(tx pgx.Tx) error {
		if _, err := b.enterTx(tx, counted, b.visitOf(b.tenant, nil, hourly("new", 1, 24))); err != nil {
			return err
		}
		want(metered.Blocked{Places: []int{4}, Rates: []metered.RateRef{{TenantID: b.tenant, Scope: "new"}}})
		return nil
	}))
	want(metered.Blocked{})
}

// A rate that many groups take one after the other is locked at nearly any moment, and blocks nobody; neither do those who
// look at the same time.
func TestBusyIsNotBlocked(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	busy := hourly("busy", 1, 1_000_000)
	b.enter(counted, b.visitOf(b.tenant, nil, busy))
	ctx, stop := context.WithCancel(t.Context())
	var users, lookers sync.WaitGroup
	var mu sync.Mutex
	var longest time.Duration // of the transactions that had the row
	var blocked []metered.Blocked
	for range 3 {
		users.Go(func() {
			for ctx.Err() == nil {
				began := time.Now()
				if err := b.inTx(func(tx pgx.Tx) error {
					_, err := b.enterTx(tx, counted, b.visitOf(b.tenant, nil, busy))
					return err
				}); err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				longest = max(longest, time.Since(began))
				mu.Unlock()
			}
		})
	}
	for range 2 {
		lookers.Go(func() {
			turnstile, err := metered.NewTurnstile([]metered.Visit{b.visitOf(b.tenant, nil, busy)})
			for range 20 {
				var found metered.Blocked
				if err == nil {
					found, err = turnstile.Blocked(t.Context(), b.db)
				}
				if err != nil {
					t.Error(err)
					return
				}
				if len(found.Rates) > 0 {
					mu.Lock()
					blocked = append(blocked, found)
					mu.Unlock()
				}
			}
		})
	}
	lookers.Wait()
	stop()
	users.Wait()
	if len(blocked) > 0 && longest < 50*time.Millisecond { // on a slow machine one of them may have held the row that long
		t.Errorf("found %+v, though no transaction took longer than %s", blocked, longest)
	}
}
