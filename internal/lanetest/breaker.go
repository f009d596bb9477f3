package lanetest

import (
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/holdfast/holdfast/queues"
	"github.com/holdfast/holdfast/requests"
)

// impatient is an isolated retry that ends a request after three attempts within half a second.
var impatient = queues.LaneConfig{TickEvery: 100 * time.Millisecond, DrainConfig: queues.DrainConfig{Careful: queues.CarefulConfig{
	AttemptsMax: 3, Backoff: 200 * time.Millisecond, BackoffMax: 200 * time.Millisecond,
}}}

// An error that hits every hold ends no request, in two processes, though other requests are rejected meanwhile. The
// requests are decided once the error is gone.
func survivesWrongConstraint(b *Bench) {
	b.Stock("shoe", 1000)
	b.Exec(`ALTER TABLE reservations ADD CONSTRAINT wrong CHECK (quantity < 0) NOT VALID`)
	if b.Hot {
		b.Stock("gone", 1)
		b.Exec(`DELETE FROM inventory_stocks WHERE variant_id = 'gone'`)
	}
	var held, rejected []requests.Request
	for i := range 200 {
		if i%20 == 9 {
			rejected = append(rejected, b.Submit(fmt.Sprint("cart-", i), "gone", 1))
		} else {
			held = append(held, b.Submit(fmt.Sprint("cart-", i), "shoe", 1))
		}
	}
	logs := [2]*strings.Builder{{}, {}}
	var lanes []*queues.Lane
	for _, log := range logs {
		lanes = append(lanes, b.LoggedLane(slog.New(slog.NewTextHandler(log, nil)), impatient))
	}
	stop := b.Run(lanes...)
	b.Eventually("a request was tried more often than it may fail", func() bool {
		return b.Int(`SELECT count(*) FROM reservation_requests WHERE claim_epoch > 4 OR reason = 'internal_error'`) > 0
	})
	if n := b.Int(`SELECT count(*) FROM reservation_requests WHERE reason = 'internal_error'`); n != 0 {
		b.TB.Errorf("%d requests ended as internal errors", n)
	}
	b.Exec(`ALTER TABLE reservations DROP CONSTRAINT wrong`)
	b.Eventually("all requests are decided", func() bool {
		return b.Int(`SELECT count(*) FROM reservation_requests WHERE status IN ('queued', 'processing')`) == 0
	})
	stop()
	for _, r := range held {
		b.Want(r, requests.Done, "")
	}
	for _, r := range rejected {
		b.Want(r, requests.Failed, requests.UnknownVariant)
	}
	for _, log := range logs {
		if n := strings.Count(log.String(), "level=ERROR"); n > 1 {
			b.TB.Errorf("a process reported the outage %d times:\n%s", n, log)
		}
	}
	if n := strings.Count(logs[0].String()+logs[1].String(), "constraint=wrong"); n == 0 {
		b.TB.Error("no process reported the constraint")
	}
	b.Sound()
}

// Poison requests that follow each other, more of them than open the breaker, end each for itself, and those behind them
// are decided.
func isolatesPoisonInARow(b *Bench) {
	b.Stock("shoe", 1000)
	b.Poison()
	var good, bad []requests.Request
	for i := range 60 {
		if i >= 20 && i < 27 {
			bad = append(bad, b.Submit("bad", "shoe", 1))
		} else {
			good = append(good, b.Submit(fmt.Sprint("cart-", i), "shoe", 1))
		}
	}
	lane := b.Lane(impatient)
	for _, r := range bad {
		b.Until(lane, r)
		b.Want(r, requests.Failed, requests.InternalError)
	}
	for _, r := range good {
		b.Want(r, requests.Done, "")
	}
	b.Sound()
}

// An error that hits every request ends none of them either if each variant has few, in all slots of the lane.
func survivesThinOutage(b *Bench) {
	const variants = 30
	for i := range variants {
		b.Stock(fmt.Sprint("variant-", i), 10)
	}
	b.Exec(`ALTER TABLE reservations ADD CONSTRAINT wrong CHECK (quantity < 0) NOT VALID`)
	for i := range 2 * variants {
		b.Submit(fmt.Sprint("cart-", i), fmt.Sprint("variant-", i%variants), 1)
	}
	stop := b.Run(b.Lane(impatient))
	b.Eventually("a request was tried more often than it may fail", func() bool {
		return b.Int(`SELECT count(*) FROM reservation_requests WHERE claim_epoch > 4 OR reason = 'internal_error'`) > 0
	})
	b.Exec(`ALTER TABLE reservations DROP CONSTRAINT wrong`)
	b.allDone(2 * variants)
	stop()
	b.Sound()
}

// A variant none of whose requests can be held keeps no other one waiting, whatever it has queued, and loses none.
func skipsBrokenVariant(b *Bench) {
	b.Stock("broken", 1000)
	b.Stock("good", 1000)
	b.Exec(`ALTER TABLE reservations ADD CONSTRAINT wrong CHECK (resource_key <> 'broken') NOT VALID`)
	for i := range 100 {
		b.Submit(fmt.Sprint("cart-", i), "broken", 1)
	}
	stop := b.Run(b.Lane(impatient))
	for i := range 20 {
		good := b.Submit(fmt.Sprint("good-", i), "good", 1)
		b.Eventually("a request of another variant is decided", func() bool { return b.Get(good).Status == requests.Done })
	}
	if n := b.Int(`SELECT count(*) FROM reservation_requests WHERE status = 'queued' AND variant_id = 'broken'`); n < 50 {
		b.TB.Errorf("%d requests of the broken variant are still queued: its breaker did not open", n)
	}
	b.Exec(`ALTER TABLE reservations DROP CONSTRAINT wrong`)
	b.Eventually("the variant's requests are decided", func() bool {
		return b.Int(`SELECT count(*) FROM reservation_requests WHERE status IN ('queued', 'processing')`) == 0
	})
	stop()
	b.Sound()
}

// After an outage that lasted longer than requests may wait, those are rejected in batches, and the newer ones are held.
func recoversAfterLongOutage(b *Bench) {
	b.Stock("shoe", 1000)
	b.Stock("sock", 1000)
	b.Exec(`ALTER TABLE reservations ADD CONSTRAINT wrong CHECK (quantity < 0) NOT VALID`)
	for i := range 300 {
		b.Submit(fmt.Sprint("cart-", i), []string{"shoe", "sock"}[i%2], 1)
	}
	stop := b.Run(b.Lane(impatient))
	b.Eventually("the breaker is open", func() bool {
		return b.Int(`SELECT count(*) FROM reservation_requests WHERE status = 'processing'`) > 6
	})
	b.Exec(`UPDATE reservation_requests SET created_at = created_at - interval '1 hour'`)
	var fresh []requests.Request
	for i := range 20 {
		fresh = append(fresh, b.Submit(fmt.Sprint("fresh-", i), "shoe", 1))
	}
	b.Exec(`ALTER TABLE reservations DROP CONSTRAINT wrong`)
	b.Eventually("all requests are decided", func() bool {
		return b.Int(`SELECT count(*) FROM reservation_requests WHERE status IN ('queued', 'processing')`) == 0
	})
	stop()
	for _, r := range fresh {
		b.Want(r, requests.Done, "")
	}
	b.Sound()
}

// allDone waits until n requests are decided, and fails the test unless all are held.
func (b *Bench) allDone(n int64) {
	b.TB.Helper()
	b.Eventually("all requests are decided", func() bool {
		return b.Int(`SELECT count(*) FROM reservation_requests WHERE status IN ('done', 'failed')`) == n
	})
	if held := b.Int(`SELECT count(*) FROM reservation_requests WHERE status = 'done'`); held != n {
		b.TB.Errorf("%d of %d requests are held", held, n)
	}
}
