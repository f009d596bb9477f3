package carts_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/audit"
	"github.com/holdfast/holdfast/internal/carts"
	"github.com/holdfast/holdfast/internal/inventory"
	"github.com/holdfast/holdfast/internal/pg"
	"github.com/holdfast/holdfast/internal/pgtest"
	"github.com/holdfast/holdfast/internal/queues"
	"github.com/holdfast/holdfast/internal/requestrows"
	"github.com/holdfast/holdfast/internal/testkit"
	"github.com/holdfast/holdfast/requests"
	"github.com/holdfast/holdfast/reservations"
)

func remove(t *testing.T, b *testkit.Fixture, cart, variant string) requests.Removed {
	t.Helper()
	removed, err := carts.Remove(t.Context(), b.DB, b.Tenant, cart, variant, reservations.Abandoned, shopper)
	pgtest.Must(t, err)
	return removed
}

// lapse moves the deadline of a hold one second into the past.
func lapse(b *testkit.Fixture, r requests.Request) {
	b.TB.Helper()
	b.Exec(`UPDATE reservations
		SET first_held_at = first_held_at - interval '1 day', held_at = held_at - interval '1 day', expires_at = clock_timestamp() - interval '1 second'
		WHERE reservation_id = $1`, r.RequestID)
}

// Remove cancels queued requests and releases holds: of one variant, then of
// the rest of the cart. Other carts do not change.
func TestRemove(t *testing.T) {
	t.Parallel()
	b := newNormal(t)
	lane := b.Lane(queues.LaneConfig{})
	b.Stock("shoe", 10)
	b.Stock("sock", 10)
	held, others := b.Submit("a", "shoe", 2), b.Submit("b", "shoe", 1)
	b.Submit("a", "sock", 3)
	b.Tick(lane)
	queued := b.SubmitAs(requestrows.Submission{CartID: "a", VariantID: "shoe", Quantity: 4, CorrelationID: "c-asked", ActorID: "hf_other0"})
	queuedSock, othersQueued := b.Submit("a", "sock", 1), b.Submit("b", "shoe", 1)

	removed := remove(t, b, "a", "shoe")
	if diff := cmp.Diff([]uuid.UUID{queued.RequestID}, removed.Cancelled); diff != "" || len(removed.Released) != 1 || removed.Released[0].ReservationID != held.RequestID {
		t.Errorf("released %+v, cancelled (-want +got):\n%s", removed.Released, diff)
	}
	b.Want(queued, requests.Failed, requests.Cancelled)
	if r := b.Get(held).Reservation; r.Status != reservations.Released || r.ReleaseReason != reservations.Abandoned {
		t.Errorf("%+v, want it released as abandoned", r)
	}
	for _, r := range []requests.Request{queuedSock, othersQueued} {
		b.Want(r, requests.Queued, "")
	}
	removed = remove(t, b, "a", "")
	if len(removed.Cancelled) != 1 || len(removed.Released) != 1 {
		t.Errorf("the whole cart: %+v", removed)
	}
	b.Want(queuedSock, requests.Failed, requests.Cancelled)
	if removed := remove(t, b, "a", ""); len(removed.Cancelled)+len(removed.Released) != 0 {
		t.Errorf("an empty cart: %+v", removed)
	}
	stranger := *b
	stranger.Tenant = uuid.New()
	if removed := remove(t, &stranger, "b", ""); len(removed.Cancelled)+len(removed.Released) != 0 {
		t.Errorf("another tenant's cart: %+v", removed)
	}
	b.Tick(lane)
	b.Want(others, requests.Done, "")
	b.Want(othersQueued, requests.Done, "")
	b.Want(queued, requests.Failed, requests.Cancelled) // its answer never changes
	if n := b.Int(`SELECT reserved FROM inventory_stocks WHERE variant_id = 'shoe'`); n != 2 {
		t.Errorf("reserved %d, want 2", n)
	}
	b.CheckInvariants()

	records, err := audit.History(t.Context(), b.DB, b.Tenant, queued.RequestID)
	pgtest.Must(t, err)
	if len(records) != 1 || records[0].Action != "request.failed" {
		t.Fatalf("%d audit rows of the cancelled request, want one", len(records))
	}
	want := shopper // the actor that cancelled it, not the one that made it
	want.Reason = string(reservations.Abandoned)
	if diff := cmp.Diff(want, records[0].Origin); diff != "" {
		t.Errorf("the cancellation's origin (-want +got):\n%s", diff)
	}
}

// Remove waits for a request that is being decided, in either lane, and
// releases its hold.
func TestRemoveWaitsForTheDrain(t *testing.T) {
	t.Parallel()
	for name, b := range map[string]*testkit.Fixture{"normal": newNormal(t), "hot": newHot(t)} {
		t.Run(name, func(t *testing.T) {
			b.Stock("shoe", 1)
			b.Tick(b.Lane(queues.LaneConfig{}))
			for try := 0; !removeBehindDrain(t, b); try++ {
				if try == 20 {
					t.Fatal("no removal found the drain in its transaction")
				}
			}
			if n := b.Int(`SELECT reserved FROM inventory_stocks`); n != 0 {
				t.Errorf("reserved %d, want 0", n)
			}
			b.CheckInvariants()
		})
	}
}

// removeBehindDrain removes a cart while a drain decides its request. It reports
// false if the drain gave up before: a drain of the hot lane waits briefly.
func removeBehindDrain(t *testing.T, b *testkit.Fixture) bool {
	t.Helper()
	r := b.Submit("a", "shoe", 1)
	stalled := b.Lock(`LOCK TABLE reservations IN SHARE MODE`) // blocks the drain during its transaction
	ticked, removed := make(chan error), make(chan requests.Removed, 1)
	go func() {
		_, err := b.Lane(queues.LaneConfig{}).Tick(t.Context())
		ticked <- err
	}()
	b.Blocked()
	go func() {
		gone, err := carts.Remove(t.Context(), b.DB, b.Tenant, "a", "shoe", reservations.CartRemoved, shopper)
		if err != nil {
			t.Error(err)
		}
		removed <- gone
	}()
	pgtest.Until(t, "the removal waits for the drain, or has ended", func() bool {
		return len(removed) == 1 ||
			b.Int(`SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`) == 2
	})
	pgtest.Must(t, stalled.Rollback(t.Context()))
	pgtest.Must(t, <-ticked)
	gone := <-removed
	if len(gone.Cancelled) == 1 {
		b.Want(r, requests.Failed, requests.Cancelled)
		return false
	}
	if len(gone.Released) != 1 {
		t.Errorf("%+v, want the new hold released", gone)
	}
	b.Want(r, requests.Done, "")
	return true
}

// A request in isolated retry can be cancelled between its attempts. The worker
// with the claim finds that its claim has ended.
func TestRemoveDuringIsolatedRetry(t *testing.T) {
	t.Parallel()
	b := newNormal(t)
	r := b.Submit("a", "shoe", 1)
	claimed, err := requestrows.MarkProcessing(t.Context(), b.DB, requestrows.RefOf(&r), time.Minute)
	if err != nil || len(claimed) != 1 {
		t.Fatalf("%+v, %v", claimed, err)
	}
	if _, err := carts.Checkout(t.Context(), b.DB, b.Tenant, "a", shopper); !errors.Is(err, requestrows.ErrRequestsPending) {
		t.Errorf("checkout meanwhile: %v, want ErrRequestsPending", err)
	}
	if removed := remove(t, b, "a", ""); len(removed.Cancelled) != 1 {
		t.Errorf("%+v, want it cancelled", removed)
	}
	tx := b.Begin()
	ours, err := requestrows.LockClaimTx(t.Context(), tx, claimed[0])
	if err != nil || len(ours) != 0 {
		t.Errorf("the claim is still valid: %+v, %v", ours, err)
	}
	err = requestrows.FinishTx(t.Context(), tx, claimed, []requests.Reason{""}, time.Now(), shopper)
	if err == nil {
		t.Error("a cancelled request was finished again")
	}
	b.Want(r, requests.Failed, requests.Cancelled)
}

// Remove acknowledges the holds that the cart lost to expiry, so that the rest
// can be checked out.
func TestRemoveAcknowledges(t *testing.T) {
	t.Parallel()
	b := newNormal(t)
	b.Stock("shoe", 1)
	b.Stock("sock", 1)
	lost, kept := b.Submit("a", "shoe", 1), b.Submit("a", "sock", 1)
	b.Tick(b.Lane(queues.LaneConfig{}))
	lapse(b, lost)
	if _, err := inventory.ExpireDue(t.Context(), b.DB, 10); err != nil {
		t.Fatal(err)
	}
	pending := b.Submit("a", "hat", 1)
	checkout := func() ([]reservations.Reservation, error) {
		return carts.Checkout(t.Context(), b.DB, b.Tenant, "a", shopper)
	}
	if _, err := checkout(); !errors.Is(err, requestrows.ErrRequestsPending) {
		t.Errorf("%v, want ErrRequestsPending first", err)
	}
	remove(t, b, "a", "hat")
	b.Want(pending, requests.Failed, requests.Cancelled)
	if _, err := checkout(); !errors.Is(err, inventory.ErrHoldExpired) {
		t.Errorf("%v, want ErrHoldExpired", err)
	}
	remove(t, b, "a", "shoe")
	committed, err := checkout()
	if err != nil || len(committed) != 1 || committed[0].ReservationID != kept.RequestID {
		t.Errorf("%+v, %v; want the sock", committed, err)
	}
	if _, err := checkout(); !errors.Is(err, inventory.ErrCartEmpty) {
		t.Errorf("%v, want ErrCartEmpty", err)
	}
	b.CheckInvariants()
}

// An invalid reason is rejected before anything is cancelled.
func TestRemoveForInvalidReason(t *testing.T) {
	t.Parallel()
	b := newNormal(t)
	r := b.Submit("a", "shoe", 1)
	err := pgx.BeginFunc(t.Context(), b.DB, func(tx pgx.Tx) error {
		_, err := carts.RemoveTx(t.Context(), tx, b.Tenant, "a", "", "whim", shopper)
		if invalid, ok := errors.AsType[*inventory.InvalidError](err); !ok || invalid.Field != "reason" {
			t.Errorf("%v, want reason reported as invalid", err)
		}
		return nil
	})
	pgtest.Must(t, err)
	b.Want(r, requests.Queued, "")
}

// A removal fails if the cart has more undecided requests than RemoveMax. No
// request is cancelled.
func TestRemoveIsBounded(t *testing.T) {
	t.Parallel()
	b := newNormal(t)
	fill := func(cart string, n int) {
		b.Exec(`INSERT INTO reservation_requests (tenant_id, request_id, lane, cart_id, variant_id, quantity)
			SELECT $1, gen_random_uuid(), 'normal', $2, 'shoe', 1 FROM generate_series(1, $3::integer)`, b.Tenant, cart, n)
	}
	fill("large", requestrows.CancelMax)
	fill("too large", requestrows.CancelMax+1)
	if removed := remove(t, b, "large", ""); len(removed.Cancelled) != requestrows.CancelMax {
		t.Errorf("%d cancelled, want %d", len(removed.Cancelled), requestrows.CancelMax)
	}
	if _, err := carts.Remove(t.Context(), b.DB, b.Tenant, "too large", "", reservations.Operator, shopper); err == nil {
		t.Error("more were cancelled than one removal may cancel")
	}
	if n := b.Int(`SELECT count(*) FROM reservation_requests WHERE cart_id = 'too large' AND status = 'queued'`); n != requestrows.CancelMax+1 {
		t.Errorf("%d left, want all", n)
	}
}

// A checkout runs while a drain decides a request of the cart. The request is
// undecided until the drain commits.
func TestCheckoutDuringDrain(t *testing.T) {
	t.Parallel()
	b := newNormal(t)
	b.Stock("shoe", 5)
	b.Stock("sock", 5)
	lane := b.Lane(queues.LaneConfig{})
	b.Submit("a", "sock", 1)
	b.Tick(lane)
	b.Submit("a", "shoe", 1)
	stalled := b.Lock(`LOCK TABLE reservations IN SHARE MODE`)
	ticked := make(chan error)
	go func() {
		_, err := lane.Tick(t.Context())
		ticked <- err
	}()
	b.Blocked()
	if _, err := carts.Checkout(t.Context(), b.DB, b.Tenant, "a", shopper); !errors.Is(err, requestrows.ErrRequestsPending) {
		t.Errorf("%v, want ErrRequestsPending", err)
	}
	pgtest.Must(t, stalled.Rollback(t.Context()))
	pgtest.Must(t, <-ticked)
	committed, err := carts.Checkout(t.Context(), b.DB, b.Tenant, "a", shopper)
	if err != nil || len(committed) != 2 {
		t.Errorf("%d committed, %v; want both", len(committed), err)
	}
	b.CheckInvariants()
}

// Two concurrent checkouts commit the cart once.
func TestCheckoutsAtOnce(t *testing.T) {
	t.Parallel()
	b := newNormal(t)
	b.Stock("shoe", 50)
	lane := b.Lane(queues.LaneConfig{})
	for i := range 10 {
		cart := fmt.Sprint("cart-", i)
		b.Submit(cart, "shoe", 2)
		b.Tick(lane)
		results := make(chan error, 4)
		for range cap(results) {
			go func() {
				_, err := carts.Checkout(context.Background(), b.DB, b.Tenant, cart, shopper)
				results <- err
			}()
		}
		won := 0
		for range cap(results) {
			if err := <-results; err == nil {
				won++
			} else if !errors.Is(err, inventory.ErrCartEmpty) {
				t.Errorf("%v, want ErrCartEmpty", err)
			}
		}
		if won != 1 {
			t.Errorf("%d checkouts of one cart succeeded", won)
		}
	}
	if stock, reserved := b.Int(`SELECT stock FROM inventory_stocks`), b.Int(`SELECT reserved FROM inventory_stocks`); stock != 30 || reserved != 0 {
		t.Errorf("stock %d, reserved %d, want 30 and 0", stock, reserved)
	}
	b.CheckInvariants()
}

// levels are the isolation levels, and the errors that a verb which needs READ
// COMMITTED returns there.
var levels = map[pgx.TxIsoLevel]error{
	pgx.ReadCommitted: nil, pgx.RepeatableRead: pg.ErrIsolation, pgx.Serializable: pg.ErrIsolation,
}

// A cart gets a hold after the transaction's first statement. A checkout or a
// removal that did not see the hold would miss a part of the cart.
func TestCartVerbsSeeTheWholeCart(t *testing.T) {
	t.Parallel()
	for name, verb := range map[string]func(b *testkit.Fixture, tx pgx.Tx) (int, error){
		"checkout": func(b *testkit.Fixture, tx pgx.Tx) (int, error) {
			ended, err := carts.CheckoutTx(b.TB.Context(), tx, b.Tenant, "a", audit.Origin{})
			return len(ended), err
		},
		"remove": func(b *testkit.Fixture, tx pgx.Tx) (int, error) {
			removed, err := carts.RemoveTx(b.TB.Context(), tx, b.Tenant, "a", "", reservations.CartRemoved, audit.Origin{})
			return len(removed.Released), err
		},
	} {
		for level, want := range levels {
			t.Run(name+" "+string(level), func(t *testing.T) {
				t.Parallel()
				b := newNormal(t)
				b.Stock("shoe", 10)
				b.Stock("sock", 10)
				lane := b.Lane(queues.LaneConfig{})
				b.Submit("a", "shoe", 1)
				b.Tick(lane)
				ended := 0
				err := b.AfterSnapshot(level, func() {
					b.Submit("a", "sock", 1)
					b.Tick(lane)
				}, func(tx pgx.Tx) (err error) {
					ended, err = verb(b, tx)
					return err
				})
				if !errors.Is(err, want) {
					t.Errorf("%v, want %v", err, want)
				}
				if left := b.Int(`SELECT count(*) FROM reservations WHERE status = 'held'`); ended+int(left) != 2 || left == 1 {
					t.Errorf("%d ended and %d left, want all or none of 2", ended, left)
				}
				b.CheckInvariants()
			})
		}
	}
}
