package queuestest

import (
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/holdfast/holdfast/internal/queues"
	"github.com/holdfast/holdfast/requests"
)

// quickRetries ends a request after two attempts.
var quickRetries = queues.LaneConfig{TickEvery: 50 * time.Millisecond, DrainConfig: queues.DrainConfig{Retry: queues.RetryConfig{
	AttemptsMax: 2, Backoff: 50 * time.Millisecond, BackoffMax: 50 * time.Millisecond,
}}}

// overTried counts the requests that were tried more often than quickRetries
// allows, or have ended because of it.
const overTried = `SELECT count(*) FROM reservation_requests WHERE claim_epoch > 3 OR reason = 'internal_error'`

// While an error fails every hold, two processes end no request, although other
// requests are rejected meanwhile. The requests are decided once the error is
// gone.
func survivesWrongConstraint(b *Bench) {
	b.Stock("shoe", 1000)
	b.Exec(`ALTER TABLE reservations ADD CONSTRAINT wrong CHECK (quantity < 0) NOT VALID`)
	if b.Hot {
		b.Stock("gone", 1)
		b.Exec(`DELETE FROM inventory_stocks WHERE variant_id = 'gone'`)
	}
	var held, rejected []requests.Request
	for i := range 100 {
		if i%20 == 9 {
			rejected = append(rejected, b.Submit(fmt.Sprint("cart-", i), "gone", 1))
		} else {
			held = append(held, b.Submit(fmt.Sprint("cart-", i), "shoe", 1))
		}
	}
	logs := [2]*strings.Builder{{}, {}}
	var lanes []*queues.Lane
	for _, log := range logs {
		lanes = append(lanes, b.LoggedLane(slog.New(slog.NewTextHandler(log, nil)), quickRetries))
	}
	stop := b.Run(lanes...)
	b.Eventually("a request was tried more often than it may fail, and a process has noticed", func() bool {
		return b.Int(overTried) > 0 && (lanes[0].BreakerOpen() || lanes[1].BreakerOpen())
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

// Poison requests in a row, more of them than open the breaker, end
// individually, and the requests behind them are decided.
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
	lane := b.Lane(quickRetries)
	for _, r := range bad {
		b.Until(lane, r)
		b.Want(r, requests.Failed, requests.InternalError)
	}
	for _, r := range good {
		b.Want(r, requests.Done, "")
	}
	b.Sound()
}

// An error that fails every request ends none of them, even if each variant has
// few requests, in all slots of the lane.
func survivesThinOutage(b *Bench) {
	const variants = 30
	for i := range variants {
		b.Stock(fmt.Sprint("variant-", i), 10)
	}
	b.Exec(`ALTER TABLE reservations ADD CONSTRAINT wrong CHECK (quantity < 0) NOT VALID`)
	for i := range 2 * variants {
		b.Submit(fmt.Sprint("cart-", i), fmt.Sprint("variant-", i%variants), 1)
	}
	stop := b.Run(b.Lane(quickRetries))
	b.Eventually("a request was tried more often than it may fail", func() bool {
		return b.Int(overTried) > 0
	})
	b.Exec(`ALTER TABLE reservations DROP CONSTRAINT wrong`)
	b.allDone(2 * variants)
	stop()
	b.Sound()
}

// A variant whose requests all fail to be held delays no request of another
// variant, however many it has queued, and loses none of its own.
func skipsBrokenVariant(b *Bench) {
	b.Stock("broken", 1000)
	b.Stock("good", 1000)
	b.Exec(`ALTER TABLE reservations ADD CONSTRAINT wrong CHECK (resource_key <> 'broken') NOT VALID`)
	for i := range 100 {
		b.Submit(fmt.Sprint("cart-", i), "broken", 1)
	}
	stop := b.Run(b.Lane(quickRetries))
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

// After an outage longer than AgeMax, the old requests are rejected in batches,
// and the newer ones are held.
func recoversAfterLongOutage(b *Bench) {
	b.Stock("shoe", 1000)
	b.Stock("sock", 1000)
	b.Exec(`ALTER TABLE reservations ADD CONSTRAINT wrong CHECK (quantity < 0) NOT VALID`)
	for i := range 100 {
		b.Submit(fmt.Sprint("cart-", i), []string{"shoe", "sock"}[i%2], 1)
	}
	stop := b.Run(b.Lane(quickRetries))
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

// A variant whose requests can't even be rejected, because its stock can't be
// read, ends none of them until they are older than requests may wait. Then it
// ends all of them, though none of the variant was decided: those that were tried
// as internal errors, the others as expired.
func endsOldRequests(b *Bench) {
	b.Stock("broken", 1000)
	b.Exec(`ALTER TABLE inventory_stocks ALTER COLUMN hold_ttl_seconds TYPE bigint`)
	b.Exec(`UPDATE inventory_stocks SET hold_ttl_seconds = 1::bigint << 40`) // more than the program reads
	const asked = 8
	for i := range asked {
		b.Submit(fmt.Sprint("cart-", i), "broken", 1)
	}
	stop := b.Run(b.Lane(quickRetries))
	b.Eventually("a request was tried more often than it may fail", func() bool {
		return b.Int(overTried) > 0
	})
	if n := b.Int(`SELECT count(*) FROM reservation_requests WHERE status IN ('queued', 'processing')`); n != asked {
		b.TB.Errorf("%d of %d requests are unfinished, want all: an error that fails all of them ends none", n, asked)
	}
	b.Exec(`UPDATE reservation_requests SET created_at = created_at - interval '1 hour'`)
	b.Eventually("the old requests end", func() bool {
		return b.Int(`SELECT count(*) FROM reservation_requests WHERE status = 'failed'`) == asked
	})
	stop()
	if n := b.Int(`SELECT count(*) FROM reservation_requests WHERE reason <> CASE attempts WHEN 0 THEN 'expired_in_queue' ELSE 'internal_error' END`); n != 0 {
		b.TB.Errorf("%d requests ended for another reason", n)
	}
	if n := b.Int(`SELECT count(*) FROM audit_log WHERE action = 'request.failed'`); n != asked {
		b.TB.Errorf("%d audit rows of failed requests, want %d", n, asked)
	}
	b.Sound()
}

// allDone waits until n requests are decided, and fails the test unless all are
// held.
func (b *Bench) allDone(n int64) {
	b.TB.Helper()
	b.Eventually("all requests are decided", func() bool {
		return b.Int(`SELECT count(*) FROM reservation_requests WHERE status IN ('done', 'failed')`) == n
	})
	if held := b.Int(`SELECT count(*) FROM reservation_requests WHERE status = 'done'`); held != n {
		b.TB.Errorf("%d of %d requests are held", held, n)
	}
}
