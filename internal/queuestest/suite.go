package queuestest

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/holdfast/holdfast/audit"
	"github.com/holdfast/holdfast/internal/admission"
	"github.com/holdfast/holdfast/internal/carts"
	"github.com/holdfast/holdfast/internal/inventory"
	"github.com/holdfast/holdfast/internal/lanes"
	"github.com/holdfast/holdfast/internal/queues"
	"github.com/holdfast/holdfast/internal/requestrows"
	"github.com/holdfast/holdfast/internal/reservationrows"
	"github.com/holdfast/holdfast/requests"
	"github.com/holdfast/holdfast/reservations"
)

// byDirect is what direct decision does in a case.
type byDirect int

const (
	never   byDirect = iota // the case tests queued requests, and does not run
	may                     // it may decide none of the requests
	decides                 // it decides some of them
)

// cases are the suite.
var cases = []struct {
	name   string
	run    func(*Bench)
	direct byDirect
}{
	{"grants the earliest until the stock is gone", grantsEarliest, decides},
	{"lets the small one behind the large one through", firstFit, decides},
	{"gives every reason", reasons, decides},
	{"gets due holds back when it comes up short", reclaims, decides},
	{"expires a backlog of due holds in batches", expiresBacklog, may},
	{"changes a quantity, both or neither", replaces, decides},
	{"isolates a poison row", isolatesPoison, decides},
	{"isolates many poison rows at little more than the cost of one", isolatesMany, may},
	{"fails a poison row after its attempts", failsPoison, may},
	{"isolates poison rows that follow each other", isolatesPoisonInARow, may},
	{"ends no request while every request fails", survivesWrongConstraint, may},
	{"ends no request while every request fails, a few of each variant", survivesThinOutage, never},
	{"keeps no variant waiting for a broken one", skipsBrokenVariant, may},
	{"recovers from an outage longer than requests may wait", recoversAfterLongOutage, never},
	{"ends what is older than requests may wait, though its rejection fails too", endsOldRequests, never},
	{"counts no outage as an attempt", countsNoOutage, may},
	{"gets through in smaller batches what is too slow for one", slowsDown, never},
	{"leaves nothing behind when its connection dies", survivesLostConnection, never},
	{"shares the work between processes", sharesWork, decides},
	{"decides what an admission committed late", lateAdmission, decides},
	{"decides what an admission prepared and committed later", preparedAdmission, decides},
	{"moves its mark while unrelated transactions are open", outsiders, never},
	{"obeys a pause", obeysPause, decides},
	{"obeys a rate cap", obeysCap, decides},
	{"leaves out what was cancelled", leavesOutCancelled, never},
	{"leaves the requests of a cart whose hold is locked", leavesLockedHold, decides},
	{"leaves what needs the unit of a locked due hold", leavesLockedDueHold, decides},
	{"retries beside a locked hold", retriesBesideLockedHold, may},
	{"decides everything in a storm of locks", stormOfLocks, decides},
}

// Run runs the suite for the lane of the given name.
func Run(t *testing.T, lane lanes.Lane, newLane NewLane) {
	t.Helper()
	for _, test := range cases {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			test.run(New(t, lane, newLane))
		})
	}
}

func grantsEarliest(b *Bench) {
	b.Stock("shoe", 100)
	in := b.settled(admission.IntakeConfig{})
	var callers sync.WaitGroup
	for i := range 250 {
		s := requestrows.Submission{TenantID: b.Tenant, CartID: fmt.Sprint("cart-", i), VariantID: "shoe", Quantity: 1, Waits: b.waits()}
		callers.Go(func() {
			if _, err := in.Submit(b.TB.Context(), s); err != nil {
				b.TB.Error(err)
			}
		})
	}
	callers.Wait()
	report := b.Tick(b.Lane(queues.LaneConfig{}))
	held, rejected := b.Int(`SELECT count(*) FROM reservations`), b.Int(`SELECT count(*) FROM reservation_requests WHERE reason = 'out_of_stock'`)
	if held != 100 || rejected != 150 {
		b.TB.Errorf("held %d, rejected %d, want 100 and 150", held, rejected)
	}
	if b.path == Queued && (report.Held != 100 || report.Rejected != 150) {
		b.TB.Errorf("the drains report held %d, rejected %d, want 100 and 150", report.Held, report.Rejected)
	}
	b.InOrder("shoe")
	b.Sound()
}

func firstFit(b *Bench) {
	b.Stock("shoe", 5)
	first, large, small := b.Submit("a", "shoe", 3), b.Submit("b", "shoe", 4), b.Submit("c", "shoe", 2)
	b.Tick(b.Lane(queues.LaneConfig{}))
	b.Want(first, requests.Done, "")
	b.Want(large, requests.Failed, requests.OutOfStock)
	b.Want(small, requests.Done, "")
	b.Sound()
}

func reasons(b *Bench) {
	b.Stock("shoe", 10)
	b.Exec(`UPDATE inventory_stocks SET max_per_cart = 3 WHERE variant_id = 'shoe'`)
	b.Stock("book", 0)
	b.Exec(`UPDATE inventory_stocks SET backorder = true WHERE variant_id = 'book'`)
	if b.Hot {
		b.Stock("gone", 1) // pinned, then deleted: unknown in the hot lane too
		b.Exec(`DELETE FROM inventory_stocks WHERE variant_id = 'gone'`)
	}
	two, third, over := b.Submit("a", "shoe", 2), b.Submit("a", "shoe", 1), b.Submit("a", "shoe", 1)
	stale := b.SubmitQueued(requestrows.Submission{CartID: "b", VariantID: "shoe", Quantity: 1})
	b.Exec(`UPDATE reservation_requests SET created_at = created_at - interval '1 hour' WHERE request_id = $1`, stale.RequestID)
	unknown, backordered := b.Submit("a", "gone", 1), b.Submit("a", "book", 7)
	b.Tick(b.Lane(queues.LaneConfig{}))
	b.Want(two, requests.Done, "")
	b.Want(third, requests.Done, "")
	b.Want(over, requests.Failed, requests.LimitExceeded)
	b.Want(stale, requests.Failed, requests.ExpiredInQueue)
	b.Want(unknown, requests.Failed, requests.UnknownVariant)
	b.Want(backordered, requests.Done, "")
	b.Sound()
	if n := b.Int(`SELECT count(*) FROM audit_log WHERE action = 'request.failed'`); n != 3 {
		b.TB.Errorf("%d audit rows of failed requests, want 3", n)
	}
}

func reclaims(b *Bench) {
	b.Stock("shoe", 3)
	lane := b.Lane(queues.LaneConfig{})
	old := b.Submit("a", "shoe", 2)
	b.Tick(lane)
	b.Lapse()
	if s, err := inventory.Get(b.TB.Context(), b.DB, b.Tenant, "shoe"); err != nil || s.Available != 3 {
		b.TB.Errorf("available %d (%v), want 3: what is held past its deadline is available", s.Available, err)
	}
	buyer, late := b.Submit("b", "shoe", 3), b.Submit("c", "shoe", 1)
	b.Tick(lane)
	b.Want(buyer, requests.Done, "")
	b.Want(late, requests.Failed, requests.OutOfStock)
	if got := b.Get(old).Reservation.Status; got != reservations.Expired {
		b.TB.Errorf("the due hold is %s, want expired", got)
	}
	b.Sound()
}

func replaces(b *Bench) {
	b.Stock("shoe", 10)
	add := b.Submit("a", "shoe", 4)
	set := b.SubmitAs(requestrows.Submission{Kind: requests.Set, CartID: "a", VariantID: "shoe", Quantity: 9})
	other := b.Submit("b", "shoe", 1)
	tooMany := b.SubmitAs(requestrows.Submission{Kind: requests.Set, CartID: "a", VariantID: "shoe", Quantity: 10})
	fewer := b.SubmitAs(requestrows.Submission{Kind: requests.Set, CartID: "a", VariantID: "shoe", Quantity: 2})
	b.Tick(b.Lane(queues.LaneConfig{}))
	b.Want(add, requests.Done, "")
	b.Want(set, requests.Done, "")
	b.Want(other, requests.Done, "")
	b.Want(tooMany, requests.Failed, requests.OutOfStock)
	b.Want(fewer, requests.Done, "")
	first, last := b.Get(add).Reservation, b.Get(fewer).Reservation
	if first.ReleaseReason != reservationrows.Replaced || last.Status != reservations.Held || last.Quantity != 2 {
		b.TB.Errorf("first %+v, last %+v, want the first replaced and the last held for 2", first, last)
	}
	if !last.FirstHeldAt.Equal(first.FirstHeldAt) {
		b.TB.Error("the lifetime of a changed quantity does not count from the first hold")
	}
	if n := b.Int(`SELECT reserved FROM inventory_stocks WHERE variant_id = 'shoe'`); n != 3 {
		b.TB.Errorf("reserved %d, want 3", n)
	}
	b.Sound()
}

// Lapse makes all holds an hour older, so that they are due.
func (b *Bench) Lapse() {
	b.TB.Helper()
	b.Exec(`UPDATE reservations SET first_held_at = first_held_at - interval '1 hour', held_at = held_at - interval '1 hour', expires_at = expires_at - interval '1 hour'`)
}

// Poison makes every hold of the cart "bad" fail, so its request fails in any
// batch.
func (b *Bench) Poison() {
	b.Exec(`ALTER TABLE reservations ADD CONSTRAINT poison CHECK (holder_id <> 'bad')`)
}

func isolatesPoison(b *Bench) {
	b.Stock("shoe", 100)
	b.Poison()
	var good []requests.Request
	for i := range 20 {
		good = append(good, b.Submit(fmt.Sprint("cart-", i), "shoe", 1))
		if i == 7 {
			good = append(good, b.Submit("bad", "shoe", 1))
		}
	}
	bad := good[8]
	lane := b.Lane(queues.LaneConfig{DrainConfig: queues.DrainConfig{Retry: queues.RetryConfig{Backoff: time.Minute, BackoffMax: time.Minute}}})
	report := b.Tick(lane)
	if report.Retried != 1 {
		b.TB.Errorf("%+v, want one isolated retry", report)
	}
	for _, r := range good {
		if r.RequestID != bad.RequestID {
			b.Want(r, requests.Done, "")
		}
	}
	if v := b.Get(bad); v.Status != requests.Processing || v.Attempts != 1 {
		b.TB.Errorf("the poison row is %s after %d attempts, want processing after 1", v.Status, v.Attempts)
	}
	b.Exec(`ALTER TABLE reservations DROP CONSTRAINT poison`)
	b.Exec(`UPDATE reservation_requests SET claim_expires_at = clock_timestamp() WHERE request_id = $1`, bad.RequestID)
	b.Tick(lane)
	b.Want(bad, requests.Done, "")
	b.Sound()
}

func failsPoison(b *Bench) {
	b.Stock("shoe", 100)
	b.Poison()
	bad := b.Submit("bad", "shoe", 1)
	good := b.Submit("good", "shoe", 1)
	retry := queues.RetryConfig{AttemptsMax: 3, Backoff: time.Millisecond, BackoffMax: 4 * time.Millisecond}
	lane := b.Lane(queues.LaneConfig{DrainConfig: queues.DrainConfig{Retry: retry}})
	b.Until(lane, bad)
	b.Want(bad, requests.Failed, requests.InternalError)
	b.Want(good, requests.Done, "")
	if v := b.Get(bad); v.Attempts != 3 {
		b.TB.Errorf("%d attempts, want 3", v.Attempts)
	}
	if n := b.Int(`SELECT count(*) FROM reservation_requests WHERE claim_expires_at IS NOT NULL`); n != 0 {
		b.TB.Errorf("%d finished rows still carry a claim", n)
	}
	b.Sound()
}

func survivesLostConnection(b *Bench) {
	b.Stock("shoe", 10)
	r := b.Submit("a", "shoe", 1)
	stalled := b.Lock(`LOCK TABLE reservations IN SHARE MODE`)
	lane := b.Lane(queues.LaneConfig{})
	failed := make(chan error)
	go func() {
		_, err := lane.Tick(b.TB.Context())
		failed <- err
	}()
	b.Blocked()
	b.Exec(`SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`)
	if err := <-failed; err == nil {
		b.TB.Error("a tick whose connection died returned no error")
	}
	stalled.Release()
	if v := b.Get(r); v.Status != requests.Queued || v.Attempts != 0 {
		b.TB.Errorf("%s after %d attempts, want queued after none: an outage is not the row's fault", v.Status, v.Attempts)
	}
	b.Until(lane, r)
	b.Want(r, requests.Done, "")
	b.Sound()
}

func sharesWork(b *Bench) {
	b.Stock("shoe", 150)
	b.Stock("sock", 1000)
	in := b.settled(admission.IntakeConfig{GroupMax: 7, QueueMax: 1000, Committers: 4})
	served := []*queues.Lane{b.Lane(queues.LaneConfig{DrainConfig: queues.DrainConfig{Batch: 13}}), b.Lane(queues.LaneConfig{}), b.Lane(queues.LaneConfig{})}
	stop := b.Work(served...)
	var callers sync.WaitGroup
	for i := range 400 {
		s := requestrows.Submission{TenantID: b.Tenant, CartID: fmt.Sprint("cart-", i%50), VariantID: [...]string{"shoe", "sock"}[i%2], Quantity: 1, Waits: b.waits()}
		callers.Go(func() {
			if _, err := in.Submit(b.TB.Context(), s); err != nil {
				b.TB.Error(err)
			}
		})
	}
	callers.Wait()
	stop()
	for _, lane := range served {
		b.Tick(lane)
	}
	if held, failed := b.Int(`SELECT count(*) FROM reservations`), b.Int(`SELECT count(*) FROM reservation_requests WHERE reason = 'out_of_stock'`); held != 350 || failed != 50 {
		b.TB.Errorf("held %d, out of stock %d, want 350 and 50", held, failed)
	}
	b.Sound()
}

func obeysPause(b *Bench) {
	b.Stock("shoe", 10)
	lane := b.Lane(queues.LaneConfig{})
	yes, no := true, false
	if err := lanes.Control(b.TB.Context(), b.DB, lane.Name(), lanes.Patch{Paused: &yes}, audit.Origin{}); err != nil {
		b.TB.Fatal(err)
	}
	r := b.Submit("a", "shoe", 1)
	b.Tick(lane)
	b.Want(r, requests.Queued, "")
	if err := lanes.Control(b.TB.Context(), b.DB, lane.Name(), lanes.Patch{Paused: &no}, audit.Origin{}); err != nil {
		b.TB.Fatal(err)
	}
	b.Tick(lane)
	b.Want(r, requests.Done, "")
	later := b.Submit("a", "shoe", 1)
	b.Tick(lane)
	b.Want(later, requests.Done, "")
}

// obeysCap: the bucket of the rate cap begins empty and is filled by the
// database's clock, from which the test reads how many requests are allowed.
func obeysCap(b *Bench) {
	b.Stock("shoe", 1000)
	lane := b.Lane(queues.LaneConfig{ServeFor: time.Millisecond})
	limit := int32(10)
	if err := lanes.Control(b.TB.Context(), b.DB, lane.Name(), lanes.Patch{RateCap: &limit}, audit.Origin{}); err != nil {
		b.TB.Fatal(err)
	}
	const refilledSQL = `SELECT (extract(epoch FROM refilled_at) * 1000000)::bigint FROM lane_slots WHERE lane = $1 AND slot = -1`
	began := b.Int(refilledSQL, lane.Name())
	for range 51 {
		b.Submit("a", "shoe", 1)
	}
	if _, err := lane.Tick(b.TB.Context()); err != nil {
		b.TB.Fatal(err)
	}
	passed := float64(b.Int(refilledSQL, lane.Name())-began) / 1e6
	if decided, allowed := float64(b.Int(`SELECT count(*) FROM reservations`)), passed*float64(limit); decided > allowed+1 {
		b.TB.Errorf("decided %.0f under a cap of %d per second, which allows %.1f in %.2f s", decided, limit, allowed, passed)
	}
	none := int32(0)
	if err := lanes.Control(b.TB.Context(), b.DB, lane.Name(), lanes.Patch{RateCap: &none}, audit.Origin{}); err != nil {
		b.TB.Fatal(err)
	}
	b.Tick(lane)
	b.Submit("a", "shoe", 1)
	b.Tick(lane)
	if n := b.Int(`SELECT count(*) FROM reservations`); n != 52 {
		b.TB.Errorf("decided %d, want 52", n)
	}
}

func leavesOutCancelled(b *Bench) {
	b.Stock("shoe", 1)
	gone, next := b.Submit("gone", "shoe", 1), b.Submit("next", "shoe", 1)
	removal := b.Begin()
	removed, err := carts.RemoveTx(b.TB.Context(), removal, b.Tenant, "gone", "shoe", reservations.CartRemoved, audit.Origin{})
	if err != nil || len(removed.Cancelled) != 1 {
		b.TB.Fatalf("%+v, %v, want one cancelled", removed, err)
	}
	lane := b.Lane(queues.LaneConfig{})
	ticked := make(chan error)
	go func() {
		_, err := lane.Tick(b.TB.Context())
		ticked <- err
	}()
	if b.Hot {
		b.Blocked() // the hot lane waits for the row; the normal lane decides other requests first
	}
	if err := removal.Commit(b.TB.Context()); err != nil {
		b.TB.Fatal(err)
	}
	if err := <-ticked; err != nil {
		b.TB.Fatal(err)
	}
	b.Tick(lane)
	b.Want(gone, requests.Failed, requests.Cancelled)
	b.Want(next, requests.Done, "")
	b.Sound()
}
