package queuestest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/internal/admission"
	"github.com/holdfast/holdfast/internal/inventory"
	"github.com/holdfast/holdfast/internal/queues"
	"github.com/holdfast/holdfast/internal/requestrows"
	"github.com/holdfast/holdfast/requests"
)

// noTick is a lane that drains only after a wake, and what its own drains have
// left.
var noTick = queues.LaneConfig{TickEvery: time.Hour}

// lockHolds locks the holds of a cart in another session.
func (b *Bench) lockHolds(cart string) Locked {
	b.TB.Helper()
	return b.Lock(`SELECT FROM reservations WHERE tenant_id = $1 AND holder_id = $2 FOR UPDATE`, b.Tenant, cart)
}

// decided waits until the request is finished. No tick helps.
func (b *Bench) decided(r requests.Request) {
	b.TB.Helper()
	b.Eventually(fmt.Sprintf("the request of cart %s is decided", r.CartID), func() bool { return b.Get(r).Status.Finished() })
}

// leavesLockedHold: another session has locked the hold of a cart that changes
// its quantity. Only that cart's requests wait, and they are decided in their
// order once the lock is free, without a wake or a tick.
func leavesLockedHold(b *Bench) {
	b.Stock("shoe", 1000)
	held := b.Submit("a", "shoe", 1)
	b.Tick(b.Lane(queues.LaneConfig{}))
	b.Want(held, requests.Done, "")
	lane := b.Lane(noTick)
	b.Run(lane)
	other := b.lockHolds("a")
	set := b.SubmitAs(requestrows.Submission{Kind: requests.Set, CartID: "a", VariantID: "shoe", Quantity: 3})
	add := b.Submit("a", "shoe", 1)
	lane.Wake(set.Slot)
	var last requests.Request
	for i := range 20 {
		last = b.Submit(fmt.Sprint("cart-", i), "shoe", 1)
		lane.Wake(last.Slot)
		b.decided(last)
		b.Want(last, requests.Done, "")
	}
	b.Want(set, requests.Queued, "")
	b.Want(add, requests.Queued, "")
	if mark := b.Mark(set); mark >= set.Sequence {
		b.TB.Errorf("the mark is %d, past the queued request %d", mark, set.Sequence)
	}
	other.Release()
	b.decided(add)
	b.Want(set, requests.Done, "")
	b.Want(add, requests.Done, "")
	if n := b.Int(`SELECT sum(quantity) FROM reservations WHERE holder_id = 'a' AND status = 'held'`); n != 4 {
		b.TB.Errorf("the cart holds %d, want 3 and then one more", n)
	}
	b.cartsInOrder()
	b.Sound()
}

// leavesLockedDueHold: another session has locked a due hold. Requests that fit
// without its unit are decided, and one request waits for it.
func leavesLockedDueHold(b *Bench) {
	b.Stock("shoe", 21)
	stuck := b.Submit("stuck", "shoe", 1)
	b.Tick(b.Lane(queues.LaneConfig{}))
	b.Want(stuck, requests.Done, "")
	b.Lapse()
	other := b.lockHolds("stuck")
	var adds []requests.Request
	for i := range 21 {
		adds = append(adds, b.Submit(fmt.Sprint("cart-", i), "shoe", 1))
	}
	last := adds[len(adds)-1]
	lane := b.Lane(noTick)
	b.Run(lane)
	lane.Wake(last.Slot)
	b.Eventually("all that fit are held", func() bool {
		return b.Int(`SELECT count(*) FROM reservations WHERE status = 'held' AND holder_id LIKE 'cart-%'`) == 20
	})
	if n := b.Int(`SELECT count(*) FROM reservation_requests WHERE status = 'queued'`); n != 1 {
		b.TB.Errorf("%d requests are queued, want the one that needs the locked unit", n)
	}
	if b.Hot {
		b.Want(last, requests.Queued, "")
		late := b.Submit("late", "shoe", 1)
		lane.Wake(late.Slot)
		b.decided(late)
		b.Want(late, requests.Failed, requests.OutOfStock)
	}
	other.Release()
	for _, r := range adds {
		b.decided(r)
		b.Want(r, requests.Done, "")
	}
	b.Sound()
}

// retriesBesideLockedHold: a request in isolated retry depends on a locked hold.
// It waits without the stock's lock, and without counting an attempt.
func retriesBesideLockedHold(b *Bench) {
	b.Stock("shoe", 10)
	held := b.Submit("a", "shoe", 1)
	lane := b.Lane(queues.LaneConfig{})
	b.Tick(lane)
	b.Want(held, requests.Done, "")
	other := b.lockHolds("a")
	set := b.SubmitQueued(requestrows.Submission{Kind: requests.Set, CartID: "a", VariantID: "shoe", Quantity: 3})
	lapse := func() {
		b.Exec(`UPDATE reservation_requests SET status = 'processing', attempts = 3, claim_expires_at = clock_timestamp() WHERE request_id = $1`, set.RequestID)
	}
	lapse()
	if report, err := lane.Recover(b.TB.Context(), 1); err != nil || report.Retried != 1 || report.Claimed != 0 {
		b.TB.Errorf("%+v, %v, want one attempt that decides nothing", report, err)
	}
	if v := b.Get(set); v.Status != requests.Processing || v.Attempts != 3 {
		b.TB.Errorf("%s after %d attempts, want processing after 3", v.Status, v.Attempts)
	}
	add := b.SubmitQueued(requestrows.Submission{CartID: "b", VariantID: "shoe", Quantity: 1})
	b.Until(lane, add)
	other.Release()
	lapse()
	b.Until(lane, set)
	b.Want(set, requests.Done, "")
	b.Sound()
}

// cartsInOrder fails the test if a request was decided in an earlier transaction
// than one that its cart made before it for the same variant. A request is
// finished at the time at which its transaction has the stock's lock.
func (b *Bench) cartsInOrder() {
	b.TB.Helper()
	if n := b.Int(`
		SELECT count(*)
		FROM (SELECT r.updated_at < lag(r.updated_at) OVER (PARTITION BY r.tenant_id, r.cart_id, r.variant_id ORDER BY r.sequence) AS early
		      FROM reservation_requests r) decided
		WHERE early`); n != 0 {
		b.TB.Errorf("%d requests were decided before an earlier one of their cart", n)
	}
}

// grantsInOrder fails the test if a request of the carts was granted in an
// earlier transaction than one that came before it was decided. The requests
// are for one unit each.
func (b *Bench) grantsInOrder(carts string) {
	b.TB.Helper()
	if n := b.Int(`
		SELECT count(*)
		FROM reservation_requests later
		JOIN reservation_requests earlier ON earlier.sequence < later.sequence AND earlier.updated_at > later.updated_at
		WHERE later.status = 'done' AND later.cart_id LIKE $1 AND earlier.cart_id LIKE $1`, carts); n != 0 {
		b.TB.Errorf("%d times a request was granted before an earlier one of the same size was decided", n)
	}
}

// stormOfLocks: sessions lock random holds, and let others become due, while
// carts add and change quantities and a sweep runs. In the end everything is
// decided, nothing is oversold, and the order was kept.
func stormOfLocks(b *Bench) {
	b.Stock("shoe", 30)
	b.Exec(`UPDATE inventory_stocks SET max_per_cart = 3 WHERE variant_id = 'shoe'`)
	in := b.settled(admission.IntakeConfig{QueueMax: 1000, Committers: 1}) // so requests are visible in the order of their sequence
	b.Run(b.Lane(queues.LaneConfig{TickEvery: 20 * time.Millisecond, DrainConfig: queues.DrainConfig{Batch: 7}}))
	ctx, stop := context.WithCancel(b.TB.Context())
	defer stop()
	var sessions sync.WaitGroup
	for seed := range uint64(2) {
		sessions.Go(func() { b.disturb(ctx, rand.New(rand.NewPCG(seed, 0))) }) //nolint:gosec // a failure must be repeatable
	}
	var callers sync.WaitGroup
	for c := range 4 {
		random := rand.New(rand.NewPCG(uint64(c), 1)) //nolint:gosec // a failure must be repeatable
		waits := b.waits()
		callers.Go(func() {
			for i := range 40 {
				s := requestrows.Submission{TenantID: b.Tenant, CartID: fmt.Sprint("plain-", c, "-", i), VariantID: "shoe", Quantity: 1, Waits: waits}
				if random.IntN(2) == 0 {
					s.CartID, s.Quantity = fmt.Sprint("busy-", c, "-", random.IntN(2)), 1+random.Int32N(3)
					if random.IntN(2) == 0 {
						s.Kind = requests.Set
					}
				}
				if _, err := in.Submit(ctx, s); err != nil {
					b.TB.Error(err)
				}
			}
		})
	}
	callers.Wait()
	stop()
	sessions.Wait()
	b.Eventually("all are decided", func() bool {
		return b.Int(`SELECT count(*) FROM reservation_requests WHERE status NOT IN ('done', 'failed')`) == 0
	})
	b.cartsInOrder()
	if b.Hot && b.path == Queued {
		b.grantsInOrder("plain-%")
	}
	b.Sound()
}

// disturb locks random holds, makes random holds due, and sweeps, until ctx
// ends. A lock is kept until another request is decided.
func (b *Bench) disturb(ctx context.Context, random *rand.Rand) {
	const some = `SELECT reservation_id FROM reservations WHERE tenant_id = $1 AND status = 'held' ORDER BY random() LIMIT $2 FOR UPDATE SKIP LOCKED`
	for ctx.Err() == nil {
		err := pgx.BeginFunc(context.WithoutCancel(ctx), b.DB, func(tx pgx.Tx) error {
			n := 1 + random.IntN(8)
			if random.IntN(3) == 0 {
				_, err := tx.Exec(b.TB.Context(), `
					UPDATE reservations
					SET first_held_at = first_held_at - interval '1 hour', held_at = held_at - interval '1 hour', expires_at = expires_at - interval '1 hour'
					WHERE reservation_id IN (`+some+`)`, b.Tenant, n)
				return err
			}
			if _, err := tx.Exec(b.TB.Context(), some, b.Tenant, n); err != nil {
				return err
			}
			before := b.Int(`SELECT count(*) FROM audit_log`)
			b.Eventually("another request is decided", func() bool {
				return ctx.Err() != nil || b.Int(`SELECT count(*) FROM audit_log`) != before
			})
			return nil
		})
		if err == nil {
			_, err = inventory.ExpireDue(context.WithoutCancel(ctx), b.DB, 5)
		}
		if err != nil {
			b.TB.Error(err)
			return
		}
	}
}
