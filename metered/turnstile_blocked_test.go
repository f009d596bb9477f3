package metered_test

import (
	"errors"
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
	b.must(b.inTx(func(tx pgx.Tx) error {
		if _, err := b.enterTx(tx, guarded, b.visitOf(b.tenant, &spendLocked, locked)); err != nil {
			return err
		}
		want(metered.Blocked{Places: []int{1, 3}, Rates: []metered.RateRef{{TenantID: b.tenant, Scope: "locked"}}})
		return nil
	}))
	want(metered.Blocked{})
}
