package carts_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/internal/carts"
	"github.com/holdfast/holdfast/internal/inventory"
	"github.com/holdfast/holdfast/internal/lanes"
	"github.com/holdfast/holdfast/internal/queues"
	"github.com/holdfast/holdfast/internal/requestrows"
	"github.com/holdfast/holdfast/internal/tenants"
	"github.com/holdfast/holdfast/internal/testkit"
	"github.com/holdfast/holdfast/requests"
	"github.com/holdfast/holdfast/reservations"
)

// oneGroup makes the calls in one group, in their order, and describes each
// answer. It ends the Groups.
func oneGroup(t *testing.T, g *carts.Groups, calls []carts.Call) []string {
	t.Helper()
	answers := make([]string, len(calls))
	var waiting sync.WaitGroup
	for i, c := range calls {
		waiting.Go(func() {
			r, err := g.Do(t.Context(), c)
			conflict, isConflict := errors.AsType[*reservations.ConflictError](err)
			switch {
			case isConflict:
				answers[i] = "is " + string(conflict.Actual)
			case err != nil:
				answers[i] = err.Error()
			default:
				answers[i] = fmt.Sprint("changes ", len(r.Reservations))
			}
		})
		awaitGathered(t, g, i+1)
	}
	defer startGroups(g)()
	waiting.Wait()
	return answers
}

// Calls of one group that work on the same holds take effect in their order,
// however they are split into transactions.
func TestCallsOfOneCartKeepTheirOrder(t *testing.T) {
	t.Parallel()
	b := testkit.New(t, lanes.Normal)
	for _, v := range modelVariants {
		b.Stock(v, 100)
	}
	lane := b.Lane(queues.LaneConfig{})
	checkout := carts.Call{Call: inventory.Call{Action: inventory.CheckoutCart}}
	extend := carts.Call{Call: inventory.Call{Action: inventory.ExtendCart, By: time.Minute, LifetimeMax: time.Hour}}
	remove := carts.Call{Call: inventory.Call{Action: inventory.ReleaseCart, Reason: reservations.CartRemoved}}
	removeShoe := remove
	removeShoe.VariantID = "shoe"
	extendShoe := carts.Call{Call: inventory.Call{Action: inventory.ExtendHold, VariantID: "shoe", By: time.Minute, LifetimeMax: time.Hour}}
	commitShoe := carts.Call{Call: inventory.Call{Action: inventory.CommitHold, VariantID: "shoe"}}
	releaseSock := carts.Call{Call: inventory.Call{Action: inventory.ReleaseHold, VariantID: "sock", Reason: reservations.CartRemoved}}
	const empty = "inventory: the cart holds nothing"
	for i, c := range []struct {
		lost  bool // whether the cart's shoe has an unseen expiry
		calls []carts.Call
		want  string
	}{
		{false, []carts.Call{checkout, checkout}, "changes 2, " + empty},
		{false, []carts.Call{extend, checkout, extend}, "changes 2, changes 2, " + empty},
		{false, []carts.Call{removeShoe, checkout, remove}, "changes 1, changes 1, changes 0"},
		{true, []carts.Call{removeShoe, checkout}, "changes 0, changes 1"},
		{true, []carts.Call{remove, extend}, "changes 1, " + empty},
		{false, []carts.Call{extendShoe, releaseSock, checkout}, "changes 1, changes 1, changes 1"},
		{false, []carts.Call{commitShoe, commitShoe}, "changes 1, is committed"},
		// The last call does not overlap the first one, but overlaps the second
		// one.
		{false, []carts.Call{extendShoe, checkout, releaseSock}, "changes 1, changes 2, is committed"},
		{false, []carts.Call{commitShoe, remove, releaseSock}, "changes 1, changes 1, is released"},
	} {
		cart := fmt.Sprint("cart-", i)
		holds := map[string]requests.Request{"shoe": b.Submit(cart, "shoe", 1), "sock": b.Submit(cart, "sock", 2)}
		b.Tick(lane)
		if c.lost {
			b.Exec(`UPDATE reservations SET expires_at = clock_timestamp() WHERE reservation_id = $1`, holds["shoe"].RequestID)
			if _, err := inventory.ExpireDue(t.Context(), b.DB, 10); err != nil {
				t.Fatal(err)
			}
		}
		calls := make([]carts.Call, len(c.calls))
		for n, call := range c.calls {
			call.TenantID = b.Tenant
			if call.Action <= inventory.ExtendCart {
				call.CartID = cart
			} else {
				call.ReservationID, call.VariantID = holds[call.VariantID].RequestID, ""
			}
			calls[n] = call
		}
		g, err := carts.New(b.DB, carts.Config{})
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(oneGroup(t, g, calls), ", "); got != c.want {
			t.Errorf("case %d: %s, want %s", i, got, c.want)
		}
	}
	b.CheckInvariants()
}

// lockSlowly claims a key, and closes claimed. It waits until another
// transaction waits for the key, locks the stock of a variant, and ends when
// another transaction waits for the stock, or with an error when ctx ends: a
// wait of 10 ms can end unseen.
func lockSlowly(ctx context.Context, b *testkit.Fixture, c carts.Call, variant string, claimed chan<- struct{}) error {
	return pgx.BeginFunc(ctx, b.DB, func(tx pgx.Tx) error {
		_, err := tenants.ClaimKeyTx(ctx, tx, c.TenantID, c.Key, c.Fingerprint)
		if err == nil {
			err = requestrows.ReserveKeyTx(ctx, tx, c.TenantID, c.Key)
		}
		if err != nil {
			return err
		}
		close(claimed)
		waitsForIt(ctx, b)
		const lockSQL = `SELECT FROM inventory_stocks WHERE tenant_id = $1 AND variant_id = $2 FOR NO KEY UPDATE`
		if _, err := tx.Exec(ctx, lockSQL, c.TenantID, variant); err != nil {
			return err
		}
		waitsForIt(ctx, b)
		return errReplayed // rolls back, which frees the key
	})
}

// waitsForIt waits until a session waits for a lock, or ctx ends.
func waitsForIt(ctx context.Context, b *testkit.Fixture) {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	const waitingSQL = `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`
	for b.Int(waitingSQL) == 0 {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// A call is made as a single call, and again in a group. The first has its key
// and waits for the stock. The group has the stock and waits for the key. The
// group ends its wait: it answers the repetition with ErrNotGrouped, and makes
// the other calls together.
func TestGroupGivesWayToAKeyInUse(t *testing.T) {
	t.Parallel()
	b := testkit.New(t, lanes.Normal)
	b.Stock("shoe", 100)
	names := []string{"a", "b", "c"}
	calls := make([]carts.Call, len(names))
	for i, cart := range names {
		b.Submit(cart, "shoe", 1)
		calls[i].Action, calls[i].TenantID, calls[i].CartID = inventory.CheckoutCart, b.Tenant, cart
	}
	b.Tick(b.Lane(queues.LaneConfig{}))
	calls[1] = keyed("k", calls[1])
	ctx, answered := context.WithTimeout(context.WithoutCancel(t.Context()), 5*time.Minute)
	defer answered()
	claimed := make(chan struct{})
	var first sync.WaitGroup
	first.Go(func() {
		if err := lockSlowly(ctx, b, calls[1], "shoe", claimed); !errors.Is(err, errReplayed) && !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
	<-claimed
	g, err := carts.New(ownPool(t, b.DB, 4), carts.Config{})
	if err != nil {
		t.Fatal(err)
	}
	got := strings.Join(oneGroup(t, g, calls), ", ")
	answered()
	first.Wait()
	if want := "changes 1, " + carts.ErrNotGrouped.Error() + ", changes 1"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if n := b.Int(`SELECT count(DISTINCT xmin::text) FROM audit_log WHERE action = 'reservation.committed'`); n != 1 {
		t.Errorf("the others were committed in %d transactions, want 1", n)
	}
}
