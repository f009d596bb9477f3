package lanetest

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
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
	ctx, stop := context.WithCancel(b.TB.Context())
	var processes sync.WaitGroup
	for _, lane := range lanes {
		processes.Go(func() { _ = lane.Run(ctx) })
	}
	stopAll := sync.OnceFunc(func() { stop(); processes.Wait() })
	defer stopAll()
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
	stopAll()
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
	b.poison()
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
