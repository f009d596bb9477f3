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

// After the first poison request, those behind it are isolated without halving
// a full batch again for each of them.
func isolatesMany(f *conformance) {
	f.Stock("shoe", 1000)
	f.Poison()
	const asked, bad = 100, 16
	for i := range asked {
		cart := fmt.Sprint("cart-", i)
		if i%50 < bad*50/asked {
			cart = "bad"
		}
		f.Submit(cart, "shoe", 1)
	}
	var logged pgtest.Log
	retry := queues.RetryConfig{Backoff: time.Minute, BackoffMax: time.Minute}
	f.Log = slog.New(slog.NewTextHandler(&logged, nil))
	lane := f.Lane(queues.LaneConfig{DrainConfig: queues.DrainConfig{Retry: retry}, Concurrency: 1})
	f.Until("all good requests are done", func() bool {
		f.Tick(lane)
		return f.Int(`SELECT count(*) FROM reservation_requests WHERE status = 'done' AND cart_id <> 'bad'`) == asked-bad
	})
	if n := f.Int(`SELECT count(*) FROM reservation_requests WHERE status = 'processing' AND cart_id = 'bad'`); n != bad {
		f.TB.Errorf("%d of %d poison requests are isolated", n, bad)
	}
	if failed := strings.Count(logged.String(), "half its size"); failed > bad {
		f.TB.Errorf("%d batches failed to find %d poison rows", failed, bad)
	}
	f.CheckInvariants()
}

// A request that failed individually keeps its remaining attempts when an
// outage interrupts its retries.
func countsNoOutage(f *conformance) {
	f.Stock("shoe", 10)
	f.Poison()
	bad := f.Submit("bad", "shoe", 1)
	retry := queues.RetryConfig{AttemptsMax: 3, Backoff: time.Millisecond, BackoffMax: time.Millisecond}
	lane := f.Lane(queues.LaneConfig{DrainConfig: queues.DrainConfig{TransactionTimeout: 300 * time.Millisecond, Retry: retry}})
	f.Exec(`UPDATE reservation_requests SET status = 'processing', attempts = 1, claim_epoch = 1, claim_expires_at = clock_timestamp()`)
	stalled := f.LockStock("shoe")
	failed := 0 // a tick within the backoff finds nothing to do
	f.Until("four ticks could not lock the stock", func() bool {
		if _, err := lane.Tick(f.TB.Context()); err != nil {
			failed++
		}
		return failed == 4
	})
	if v := f.Get(bad); v.Status != requests.Processing || v.Attempts != 1 {
		f.TB.Errorf("%s after %d attempts, want processing after 1", v.Status, v.Attempts)
	}
	f.Exec(`ALTER TABLE reservations DROP CONSTRAINT poison`)
	stalled.Release()
	f.TickUntil(f.Lane(queues.LaneConfig{}), bad) // without the short timeout
	f.Want(bad, requests.Done, "")
	f.CheckInvariants()
}

// A full batch that exceeds its timeout is not retried at the same size.
func slowsDown(f *conformance) {
	f.Stock("shoe", 1000)
	for i := range 60 {
		f.Submit(fmt.Sprint("cart-", i), "shoe", 1)
	}
	f.Exec(`ALTER TABLE reservations ADD CONSTRAINT slow CHECK (pg_sleep(0.01)::text = '')`)
	lane := f.Lane(queues.LaneConfig{DrainConfig: queues.DrainConfig{TransactionTimeout: 400 * time.Millisecond}, Concurrency: 1})
	f.Until("all requests are done", func() bool {
		if _, err := lane.Tick(f.TB.Context()); err != nil {
			f.TB.Log(err)
		}
		return f.Int(`SELECT count(*) FROM reservation_requests WHERE status = 'done'`) == 60
	})
	f.CheckInvariants()
}

// A request may need the units of more due holds than one transaction can
// expire. It neither fails nor stops its lane.
func expiresBacklog(f *conformance) {
	const held = 12_000
	f.Stock("shoe", held)
	f.Stock("sock", 1)
	f.Exec(`UPDATE inventory_stocks SET reserved = $1 WHERE variant_id = 'shoe'`, held)
	f.Exec(`
		INSERT INTO reservations (tenant_id, reservation_id, resource_kind, resource_key, holder_id, quantity, first_held_at, held_at, expires_at)
		SELECT $1, gen_random_uuid(), 'inventory.variant', 'shoe', 'cart-' || n, 1, past.at, past.at, past.at
		FROM generate_series(1, $2::integer) AS n, (SELECT clock_timestamp() - interval '1 hour' AS at) AS past`, f.Tenant, held)
	large, late, other := f.Submit("a", "shoe", held), f.Submit("b", "shoe", 1), f.Submit("b", "sock", 1)
	f.Tick(f.Lane(queues.LaneConfig{DrainConfig: queues.DrainConfig{TransactionTimeout: time.Minute}})) // also on a busy machine
	f.Want(large, requests.Done, "")
	f.Want(late, requests.Failed, requests.OutOfStock)
	f.Want(other, requests.Done, "")
	if n := f.Int(`SELECT reserved FROM inventory_stocks WHERE variant_id = 'shoe'`); n != held {
		f.TB.Errorf("reserved %d, want %d", n, held)
	}
	const largestSQL = `
SELECT max(expired)
FROM (SELECT count(*) AS expired FROM audit_log WHERE action = 'reservation.expired' GROUP BY xmin::text) AS together`
	if n := f.Int(largestSQL); n > 5000 {
		f.TB.Errorf("%d holds expired in one transaction", n)
	}
}
