package ratelimit_test

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/ratelimit"
)

// The error of a rate that has too little left is an ExceededError, and has the
// rate and its state.
func TestExceeded(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	rate := hourly("s", 25, 24)
	err := b.decide(countAll, b.item(noToken, rate))[0].Err
	over, ok := errors.AsType[*ratelimit.ExceededError](err)
	if !ok || !isExceeded(err) || over.Rate != rate || over.Remaining != 24 {
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

// A rate that transactions lock one after the other is locked nearly all the
// time, but blocks no item. Neither does a concurrent call of Blocked.
func TestBusyIsNotBlocked(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	busy := hourly("busy", 1, 24)
	b.decide(countAll, b.itemOf(b.tenant, nil, busy))
	batch, _, err := newBatch([]item{b.itemOf(b.tenant, nil, busy)})
	b.must(err)
	lock := func(mode string) pgx.Tx {
		tx, err := b.db.Begin(t.Context())
		b.must(err)
		if mode != "" {
			_, err = tx.Exec(t.Context(), `SELECT FROM budget_rates FOR `+mode)
			b.must(err)
		}
		return tx
	}
	for name, modes := range map[string][2]string{ // the locks during its two reads
		"two transactions, one after the other": {"UPDATE", "NO KEY UPDATE"},
		"a concurrent call":                     {"SHARE", "SHARE"},
		"a concurrent call, then a transaction": {"SHARE", "UPDATE"},
		"a transaction, then none":              {"UPDATE", ""},
	} {
		owner, mode, reads := lock(modes[0]), modes[0], 0
		found, err := batch.Blocked(t.Context(), b.db, func(*pgx.Batch, func(int, string)) {
			if next := modes[reads]; next != mode {
				b.must(owner.Rollback(t.Context()))
				owner, mode = lock(next), next
			}
			reads++
		})
		b.must(err)
		b.must(owner.Rollback(t.Context()))
		if reads != 2 || len(found.Items) > 0 || len(found.Rates) > 0 {
			t.Errorf("%s: found %+v in %d reads", name, found, reads)
		}
	}
}
