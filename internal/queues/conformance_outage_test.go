package queues_test

import (
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/holdfast/holdfast/internal/pgtest"
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
func survivesWrongConstraint(f *conformance) {
	f.Stock("shoe", 1000)
	f.Exec(`ALTER TABLE reservations ADD CONSTRAINT wrong CHECK (quantity < 0) NOT VALID`)
	if f.Hot {
		f.Stock("gone", 1)
		f.Exec(`DELETE FROM inventory_stocks WHERE variant_id = 'gone'`)
	}
	var held, rejected []requests.Request
	for i := range 100 {
		if i%20 == 9 {
			rejected = append(rejected, f.Submit(fmt.Sprint("cart-", i), "gone", 1))
		} else {
			held = append(held, f.Submit(fmt.Sprint("cart-", i), "shoe", 1))
		}
	}
	var logs [2]pgtest.Log
	var lanes []*queues.Lane
	for i := range logs {
		f.Log = slog.New(slog.NewTextHandler(&logs[i], nil))
		lanes = append(lanes, f.Lane(quickRetries))
	}
	stop := f.Run(lanes...)
	f.Until("a request was tried more often than it may fail, and a process has noticed", func() bool {
		return f.Int(overTried) > 0 && (lanes[0].BreakerOpen() || lanes[1].BreakerOpen())
	})
	if n := f.Int(`SELECT count(*) FROM reservation_requests WHERE reason = 'internal_error'`); n != 0 {
		f.TB.Errorf("%d requests ended as internal errors", n)
	}
	f.Exec(`ALTER TABLE reservations DROP CONSTRAINT wrong`)
	f.Until("all requests are decided", func() bool {
		return f.Int(`SELECT count(*) FROM reservation_requests WHERE status IN ('queued', 'processing')`) == 0
	})
	stop()
	for _, r := range held {
		f.Want(r, requests.Done, "")
	}
	for _, r := range rejected {
		f.Want(r, requests.Failed, requests.UnknownVariant)
	}
	for i := range logs {
		log := logs[i].String()
		if n := strings.Count(log, "level=ERROR"); n > 1 {
			f.TB.Errorf("a process reported the outage %d times:\n%s", n, log)
		}
	}
	if n := strings.Count(logs[0].String()+logs[1].String(), "constraint=wrong"); n == 0 {
		f.TB.Error("no process reported the constraint")
	}
	f.CheckInvariants()
}

// Poison requests in a row, more of them than open the breaker, end
// individually, and the requests behind them are decided.
func isolatesPoisonInARow(f *conformance) {
	f.Stock("shoe", 1000)
	f.Poison()
	var good, bad []requests.Request
	for i := range 60 {
		if i >= 20 && i < 27 {
			bad = append(bad, f.Submit("bad", "shoe", 1))
		} else {
			good = append(good, f.Submit(fmt.Sprint("cart-", i), "shoe", 1))
		}
	}
	lane := f.Lane(quickRetries)
	for _, r := range bad {
		f.TickUntil(lane, r)
		f.Want(r, requests.Failed, requests.InternalError)
	}
	for _, r := range good {
		f.Want(r, requests.Done, "")
	}
	f.CheckInvariants()
}

// An error that fails every request ends none of them, even if each variant has
// few requests, in all slots of the lane.
func survivesThinOutage(f *conformance) {
	const variants = 30
	for i := range variants {
		f.Stock(fmt.Sprint("variant-", i), 10)
	}
	f.Exec(`ALTER TABLE reservations ADD CONSTRAINT wrong CHECK (quantity < 0) NOT VALID`)
	for i := range 2 * variants {
		f.Submit(fmt.Sprint("cart-", i), fmt.Sprint("variant-", i%variants), 1)
	}
	stop := f.Run(f.Lane(quickRetries))
	f.Until("a request was tried more often than it may fail", func() bool {
		return f.Int(overTried) > 0
	})
	f.Exec(`ALTER TABLE reservations DROP CONSTRAINT wrong`)
	f.allDone(2 * variants)
	stop()
	f.CheckInvariants()
}

// A variant whose requests all fail to be held delays no request of another
// variant, however many it has queued, and loses none of its own.
func skipsBrokenVariant(f *conformance) {
	f.Stock("broken", 1000)
	f.Stock("good", 1000)
	f.Exec(`ALTER TABLE reservations ADD CONSTRAINT wrong CHECK (resource_key <> 'broken') NOT VALID`)
	for i := range 100 {
		f.Submit(fmt.Sprint("cart-", i), "broken", 1)
	}
	stop := f.Run(f.Lane(quickRetries))
	for i := range 20 {
		good := f.Submit(fmt.Sprint("good-", i), "good", 1)
		f.Until("a request of another variant is decided", func() bool { return f.Get(good).Status == requests.Done })
	}
	if n := f.Int(`SELECT count(*) FROM reservation_requests WHERE status = 'queued' AND variant_id = 'broken'`); n < 50 {
		f.TB.Errorf("%d requests of the broken variant are still queued: its breaker did not open", n)
	}
	f.Exec(`ALTER TABLE reservations DROP CONSTRAINT wrong`)
	f.Until("the variant's requests are decided", func() bool {
		return f.Int(`SELECT count(*) FROM reservation_requests WHERE status IN ('queued', 'processing')`) == 0
	})
	stop()
	f.CheckInvariants()
}

// After an outage longer than AgeMax, the old requests are rejected in batches,
// and the newer ones are held.
func recoversAfterLongOutage(f *conformance) {
	f.Stock("shoe", 1000)
	f.Stock("sock", 1000)
	f.Exec(`ALTER TABLE reservations ADD CONSTRAINT wrong CHECK (quantity < 0) NOT VALID`)
	for i := range 100 {
		f.Submit(fmt.Sprint("cart-", i), []string{"shoe", "sock"}[i%2], 1)
	}
	stop := f.Run(f.Lane(quickRetries))
	f.Until("the breaker is open", func() bool {
		return f.Int(`SELECT count(*) FROM reservation_requests WHERE status = 'processing'`) > 6
	})
	f.Exec(`UPDATE reservation_requests SET created_at = created_at - interval '1 hour'`)
	var fresh []requests.Request
	for i := range 20 {
		fresh = append(fresh, f.Submit(fmt.Sprint("fresh-", i), "shoe", 1))
	}
	f.Exec(`ALTER TABLE reservations DROP CONSTRAINT wrong`)
	f.Until("all requests are decided", func() bool {
		return f.Int(`SELECT count(*) FROM reservation_requests WHERE status IN ('queued', 'processing')`) == 0
	})
	stop()
	for _, r := range fresh {
		f.Want(r, requests.Done, "")
	}
	f.CheckInvariants()
}

// A variant whose requests can't even be rejected, because its stock can't be
// read, ends none of them until they are older than requests may wait. Then it
// ends all of them, though none of the variant was decided: those that were tried
// as internal errors, the others as expired.
func endsOldRequests(f *conformance) {
	f.Stock("broken", 1000)
	f.Exec(`ALTER TABLE inventory_stocks ALTER COLUMN hold_ttl_seconds TYPE bigint`)
	f.Exec(`UPDATE inventory_stocks SET hold_ttl_seconds = 1::bigint << 40`) // more than the program reads
	const asked = 8
	for i := range asked {
		f.Submit(fmt.Sprint("cart-", i), "broken", 1)
	}
	stop := f.Run(f.Lane(quickRetries))
	f.Until("a request was tried more often than it may fail", func() bool {
		return f.Int(overTried) > 0
	})
	if n := f.Int(`SELECT count(*) FROM reservation_requests WHERE status IN ('queued', 'processing')`); n != asked {
		f.TB.Errorf("%d of %d requests are unfinished, want all: an error that fails all of them ends none", n, asked)
	}
	f.Exec(`UPDATE reservation_requests SET created_at = created_at - interval '1 hour'`)
	f.Until("the old requests end", func() bool {
		return f.Int(`SELECT count(*) FROM reservation_requests WHERE status = 'failed'`) == asked
	})
	stop()
	if n := f.Int(`SELECT count(*) FROM reservation_requests WHERE reason <> CASE attempts WHEN 0 THEN 'expired_in_queue' ELSE 'internal_error' END`); n != 0 {
		f.TB.Errorf("%d requests ended for another reason", n)
	}
	if n := f.Int(`SELECT count(*) FROM audit_log WHERE action = 'request.failed'`); n != asked {
		f.TB.Errorf("%d audit rows of failed requests, want %d", n, asked)
	}
	f.CheckInvariants()
}

// allDone waits until n requests are decided, and fails the test unless all are
// held.
func (f *conformance) allDone(n int64) {
	f.TB.Helper()
	f.Until("all requests are decided", func() bool {
		return f.Int(`SELECT count(*) FROM reservation_requests WHERE status IN ('done', 'failed')`) == n
	})
	if held := f.Int(`SELECT count(*) FROM reservation_requests WHERE status = 'done'`); held != n {
		f.TB.Errorf("%d of %d requests are held", held, n)
	}
}
