package queues_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/internal/admission"
	"github.com/holdfast/holdfast/internal/inventory"
	"github.com/holdfast/holdfast/internal/pgtest"
	"github.com/holdfast/holdfast/internal/queues"
	"github.com/holdfast/holdfast/internal/requestrows"
	"github.com/holdfast/holdfast/requests"
)

// noTick is a lane that drains only after a wake, and what its own drains have
// left.
var noTick = queues.LaneConfig{TickEvery: time.Hour}

// lockHolds locks the holds of a cart in another session.
func (f *conformance) lockHolds(cart string) pgtest.Locked {
	f.TB.Helper()
	return f.Lock(`SELECT FROM reservations WHERE tenant_id = $1 AND holder_id = $2 FOR UPDATE`, f.Tenant, cart)
}

// decided waits until the request is finished. No tick helps.
func (f *conformance) decided(r requests.Request) {
	f.TB.Helper()
	f.Until(fmt.Sprintf("the request of cart %s is decided", r.CartID), func() bool { return f.Get(r).Status.Finished() })
}

// leavesLockedHold: another session has locked the hold of a cart that changes
// its quantity. Only that cart's requests wait, and they are decided in their
// order once the lock is free, without a wake or a tick.
func leavesLockedHold(f *conformance) {
	f.Stock("shoe", 1000)
	held := f.Submit("a", "shoe", 1)
	f.Tick(f.Lane(queues.LaneConfig{}))
	f.Want(held, requests.Done, "")
	lane := f.Lane(noTick)
	f.Run(lane)
	other := f.lockHolds("a")
	set := f.SubmitAs(requestrows.Submission{Kind: requests.Set, CartID: "a", VariantID: "shoe", Quantity: 3})
	add := f.Submit("a", "shoe", 1)
	lane.Wake(set.Slot)
	var last requests.Request
	for i := range 20 {
		last = f.Submit(fmt.Sprint("cart-", i), "shoe", 1)
		lane.Wake(last.Slot)
		f.decided(last)
		f.Want(last, requests.Done, "")
	}
	f.Want(set, requests.Queued, "")
	f.Want(add, requests.Queued, "")
	if mark := f.Mark(set); mark >= set.Sequence {
		f.TB.Errorf("the mark is %d, past the queued request %d", mark, set.Sequence)
	}
	other.Release()
	f.decided(add)
	f.Want(set, requests.Done, "")
	f.Want(add, requests.Done, "")
	if n := f.Int(`SELECT sum(quantity) FROM reservations WHERE holder_id = 'a' AND status = 'held'`); n != 4 {
		f.TB.Errorf("the cart holds %d, want 3 and then one more", n)
	}
	f.cartsInOrder()
	f.CheckInvariants()
}

// leavesLockedDueHold: another session has locked a due hold. Requests that fit
// without its unit are decided, and one request waits for it.
func leavesLockedDueHold(f *conformance) {
	f.Stock("shoe", 21)
	stuck := f.Submit("stuck", "shoe", 1)
	f.Tick(f.Lane(queues.LaneConfig{}))
	f.Want(stuck, requests.Done, "")
	f.Lapse()
	other := f.lockHolds("stuck")
	var adds []requests.Request
	for i := range 21 {
		adds = append(adds, f.Submit(fmt.Sprint("cart-", i), "shoe", 1))
	}
	last := adds[len(adds)-1]
	lane := f.Lane(noTick)
	f.Run(lane)
	lane.Wake(last.Slot)
	f.Until("all that fit are held", func() bool {
		return f.Int(`SELECT count(*) FROM reservations WHERE status = 'held' AND holder_id LIKE 'cart-%'`) == 20
	})
	if n := f.Int(`SELECT count(*) FROM reservation_requests WHERE status = 'queued'`); n != 1 {
		f.TB.Errorf("%d requests are queued, want the one that needs the locked unit", n)
	}
	if f.Hot {
		f.Want(last, requests.Queued, "")
		late := f.Submit("late", "shoe", 1)
		lane.Wake(late.Slot)
		f.decided(late)
		f.Want(late, requests.Failed, requests.OutOfStock)
	}
	other.Release()
	for _, r := range adds {
		f.decided(r)
		f.Want(r, requests.Done, "")
	}
	f.CheckInvariants()
}

// retriesBesideLockedHold: a request in isolated retry depends on a locked hold.
// It waits without the stock's lock, and without counting an attempt.
func retriesBesideLockedHold(f *conformance) {
	f.Stock("shoe", 10)
	held := f.Submit("a", "shoe", 1)
	lane := f.Lane(queues.LaneConfig{})
	f.Tick(lane)
	f.Want(held, requests.Done, "")
	other := f.lockHolds("a")
	set := f.Fixture.SubmitAs(requestrows.Submission{Kind: requests.Set, CartID: "a", VariantID: "shoe", Quantity: 3})
	lapse := func() {
		f.Exec(`UPDATE reservation_requests SET status = 'processing', attempts = 3, claim_expires_at = clock_timestamp() WHERE request_id = $1`, set.RequestID)
	}
	lapse()
	if report, err := lane.Recover(f.TB.Context(), 1); err != nil || report.Retried != 1 || report.Claimed != 0 {
		f.TB.Errorf("%+v, %v, want one attempt that decides nothing", report, err)
	}
	if v := f.Get(set); v.Status != requests.Processing || v.Attempts != 3 {
		f.TB.Errorf("%s after %d attempts, want processing after 3", v.Status, v.Attempts)
	}
	add := f.Fixture.SubmitAs(requestrows.Submission{CartID: "b", VariantID: "shoe", Quantity: 1})
	f.TickUntil(lane, add)
	other.Release()
	lapse()
	f.TickUntil(lane, set)
	f.Want(set, requests.Done, "")
	f.CheckInvariants()
}

// cartsInOrder fails the test if a request was decided in an earlier transaction
// than one that its cart made before it for the same variant. A request is
// finished at the time at which its transaction has the stock's lock.
func (f *conformance) cartsInOrder() {
	f.TB.Helper()
	if n := f.Int(`
		SELECT count(*)
		FROM (SELECT r.updated_at < lag(r.updated_at) OVER (PARTITION BY r.tenant_id, r.cart_id, r.variant_id ORDER BY r.sequence) AS early
		      FROM reservation_requests r) decided
		WHERE early`); n != 0 {
		f.TB.Errorf("%d requests were decided before an earlier one of their cart", n)
	}
}

// grantsInOrder fails the test if a request of the carts was granted in an
// earlier transaction than one that came before it was decided. The requests
// are for one unit each.
func (f *conformance) grantsInOrder(carts string) {
	f.TB.Helper()
	if n := f.Int(`
		SELECT count(*)
		FROM reservation_requests later
		JOIN reservation_requests earlier ON earlier.sequence < later.sequence AND earlier.updated_at > later.updated_at
		WHERE later.status = 'done' AND later.cart_id LIKE $1 AND earlier.cart_id LIKE $1`, carts); n != 0 {
		f.TB.Errorf("%d times a request was granted before an earlier one of the same size was decided", n)
	}
}

// stormOfLocks: sessions lock random holds, and let others become due, while
// carts add and change quantities and a sweep runs. In the end everything is
// decided, nothing is oversold, and the order was kept.
func stormOfLocks(f *conformance) {
	f.Stock("shoe", 30)
	f.Exec(`UPDATE inventory_stocks SET max_per_cart = 3 WHERE variant_id = 'shoe'`)
	in := f.settled(admission.IntakeConfig{QueueMax: 1000, Committers: 1}) // so requests are visible in the order of their sequence
	f.Run(f.Lane(queues.LaneConfig{TickEvery: 20 * time.Millisecond, DrainConfig: queues.DrainConfig{Batch: 7}}))
	ctx, stop := context.WithCancel(f.TB.Context())
	defer stop()
	var sessions sync.WaitGroup
	for seed := range uint64(2) {
		sessions.Go(func() { f.disturb(ctx, rand.New(rand.NewPCG(seed, 0))) })
	}
	var callers sync.WaitGroup
	for c := range 4 {
		random := rand.New(rand.NewPCG(uint64(c), 1))
		waits := f.waits()
		callers.Go(func() {
			for i := range 40 {
				s := requestrows.Submission{TenantID: f.Tenant, CartID: fmt.Sprint("plain-", c, "-", i), VariantID: "shoe", Quantity: 1, Waits: waits}
				if random.IntN(2) == 0 {
					s.CartID, s.Quantity = fmt.Sprint("busy-", c, "-", random.IntN(2)), 1+random.Int32N(3)
					if random.IntN(2) == 0 {
						s.Kind = requests.Set
					}
				}
				if _, err := in.Submit(ctx, s); err != nil {
					f.TB.Error(err)
				}
			}
		})
	}
	callers.Wait()
	stop()
	sessions.Wait()
	f.Until("all are decided", func() bool {
		return f.Int(`SELECT count(*) FROM reservation_requests WHERE status NOT IN ('done', 'failed')`) == 0
	})
	f.cartsInOrder()
	if f.Hot && f.path == queued {
		f.grantsInOrder("plain-%")
	}
	f.CheckInvariants()
}

// disturb locks random holds, makes random holds due, and sweeps, until ctx
// ends. A lock is kept until another request is decided.
func (f *conformance) disturb(ctx context.Context, random *rand.Rand) {
	const some = `SELECT reservation_id FROM reservations WHERE tenant_id = $1 AND status = 'held' ORDER BY random() LIMIT $2 FOR UPDATE SKIP LOCKED`
	for ctx.Err() == nil {
		err := pgx.BeginFunc(context.WithoutCancel(ctx), f.DB, func(tx pgx.Tx) error {
			n := 1 + random.IntN(8)
			if random.IntN(3) == 0 {
				_, err := tx.Exec(f.TB.Context(), `
					UPDATE reservations
					SET first_held_at = first_held_at - interval '1 hour', held_at = held_at - interval '1 hour', expires_at = expires_at - interval '1 hour'
					WHERE reservation_id IN (`+some+`)`, f.Tenant, n)
				return err
			}
			if _, err := tx.Exec(f.TB.Context(), some, f.Tenant, n); err != nil {
				return err
			}
			before := f.Int(`SELECT count(*) FROM audit_log`)
			f.Until("another request is decided", func() bool {
				return ctx.Err() != nil || f.Int(`SELECT count(*) FROM audit_log`) != before
			})
			return nil
		})
		if err == nil {
			_, err = inventory.ExpireDue(context.WithoutCancel(ctx), f.DB, 5)
		}
		if err != nil {
			f.TB.Error(err)
			return
		}
	}
}
