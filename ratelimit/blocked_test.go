package ratelimit_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/ratelimit"
)

// The error of a rate that has too little left is ErrExceeded, and has the rate
// and its state.
func TestExceeded(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	rate := hourly("s", 25, 24)
	err := b.decide(countAll, b.item(noToken, rate))[0].Err
	over, ok := errors.AsType[*ratelimit.ExceededError](err)
	if !ok || !errors.Is(err, ratelimit.ErrExceeded) || over.Rate != rate || over.Remaining != 24 {
		t.Errorf("%+v, want the rate %+v, with 24 left", err, rate)
	}
}

// A rate whose window was made shorter refuses no longer than the new window.
func TestShorterWindow(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	day := ratelimit.Rate{Scope: "s", Amount: 900, Limit: 1000, Window: 24 * time.Hour}
	if results := b.decide(countAll, b.itemOf(b.tenant, nil, day)); results[0].Err != nil {
		t.Fatal(results[0].Err)
	}
	minute := ratelimit.Rate{Scope: "s", Amount: 1, Limit: 600, Window: time.Minute}
	got := b.decide(countAll, b.itemOf(b.tenant, nil, minute))[0]
	over, ok := errors.AsType[*ratelimit.ExceededError](got.Err)
	if !ok || over.Wait <= 0 || over.Wait > 200*time.Millisecond || got.States[0].Reset > time.Minute+time.Second {
		t.Errorf("%v, states %+v; want a wait for one of 600 per minute", got.Err, got.States)
	}
}

// Of a batch that a lock blocks, Blocked returns the items that need a rate or
// a token which another transaction has locked.
func TestBlocked(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	locked, free := hourly("locked", 1, 24), hourly("free", 1, 24)
	spendLocked, spendFree := redeem(b.mint()), redeem(b.mint())
	b.decide(countAll, b.itemOf(b.tenant, nil, locked, free))
	batch, tokens, err := newBatch([]item{
		b.itemOf(b.tenant, nil, free),
		b.itemOf(b.tenant, nil, free, locked),
		b.itemOf(b.tenant, &spendFree, free),
		b.itemOf(b.tenant, &spendLocked, free),
		b.itemOf(b.tenant, nil, hourly("new", 1, 24)),
		b.itemOf(b.tenant, nil),
	})
	b.must(err)
	want := func(want ratelimit.Blocked) {
		t.Helper()
		got, err := batch.Blocked(t.Context(), b.db, tokens.QueueLockOwners)
		b.must(err)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("blocked (-want +got):\n%s", diff)
		}
	}
	want(ratelimit.Blocked{})
	b.exec(`DELETE FROM budget_rates WHERE scope = 'new'`) // the row that Blocked inserted
	b.must(b.inTx(func(tx pgx.Tx) error {
		if _, err := b.decideTx(tx, redeemAll, b.itemOf(b.tenant, &spendLocked, locked)); err != nil {
			return err
		}
		want(ratelimit.Blocked{Items: []int{1, 3}, Rates: []ratelimit.RateRef{{TenantID: b.tenant, Scope: "locked"}}})
		return nil
	}))
	b.exec(`DELETE FROM budget_rates WHERE scope = 'new'`)
	b.must(b.inTx(func(tx pgx.Tx) error {
		if _, err := b.decideTx(tx, countAll, b.itemOf(b.tenant, nil, hourly("new", 1, 24))); err != nil {
			return err
		}
		want(ratelimit.Blocked{Items: []int{4}, Rates: []ratelimit.RateRef{{TenantID: b.tenant, Scope: "new"}}})
		return nil
	}))
	want(ratelimit.Blocked{})
}

// A rate that many transactions lock one after the other is locked nearly all
// the time, but blocks no item. Two concurrent calls of Blocked do not block
// each other either.
func TestBusyIsNotBlocked(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	busy := hourly("busy", 1, 1_000_000)
	b.decide(countAll, b.itemOf(b.tenant, nil, busy))
	ctx, stop := context.WithCancel(t.Context())
	var users, readers sync.WaitGroup
	var mu sync.Mutex
	long := 0 // transactions that had the row for as long as a wait may last
	var blocked []ratelimit.Blocked
	for range 3 {
		users.Go(func() {
			for ctx.Err() == nil {
				began := time.Now()
				if err := b.inTx(func(tx pgx.Tx) error {
					_, err := b.decideTx(tx, countAll, b.itemOf(b.tenant, nil, busy))
					return err
				}); err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				if time.Now().After(began.Add(50 * time.Millisecond)) {
					long++
				}
				mu.Unlock()
			}
		})
	}
	for range 2 {
		readers.Go(func() {
			batch, tokens, err := newBatch([]item{b.itemOf(b.tenant, nil, busy)})
			for range 20 {
				var found ratelimit.Blocked
				if err == nil {
					found, err = batch.Blocked(t.Context(), b.db, tokens.QueueLockOwners)
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
	readers.Wait()
	stop()
	users.Wait()
	if len(blocked) > 0 && long == 0 { // on a slow machine one of them may have locked the row that long
		t.Errorf("found %+v, though no transaction had the row for that long", blocked)
	}
}
