package queuestest

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
func isolatesMany(b *Bench) {
	b.Stock("shoe", 1000)
	b.Poison()
	const asked, bad = 100, 16
	for i := range asked {
		cart := fmt.Sprint("cart-", i)
		if i%50 < bad*50/asked {
			cart = "bad"
		}
		b.Submit(cart, "shoe", 1)
	}
	logged := &strings.Builder{}
	retry := queues.RetryConfig{Backoff: time.Minute, BackoffMax: time.Minute}
	lane := b.LoggedLane(slog.New(slog.NewTextHandler(logged, nil)), queues.LaneConfig{DrainConfig: queues.DrainConfig{Retry: retry}, Concurrency: 1})
	b.Eventually("all good requests are done", func() bool {
		b.Tick(lane)
		return b.Int(`SELECT count(*) FROM reservation_requests WHERE status = 'done' AND cart_id <> 'bad'`) == asked-bad
	})
	if n := b.Int(`SELECT count(*) FROM reservation_requests WHERE status = 'processing' AND cart_id = 'bad'`); n != bad {
		b.TB.Errorf("%d of %d poison requests are isolated", n, bad)
	}
	if failed := strings.Count(logged.String(), "half its size"); failed > bad {
		b.TB.Errorf("%d batches failed to find %d poison rows", failed, bad)
	}
	b.Sound()
}

// A request that failed individually keeps its remaining attempts when an
// outage interrupts its retries.
func countsNoOutage(b *Bench) {
	b.Stock("shoe", 10)
	b.Poison()
	bad := b.Submit("bad", "shoe", 1)
	retry := queues.RetryConfig{AttemptsMax: 3, Backoff: time.Millisecond, BackoffMax: time.Millisecond}
	lane := b.Lane(queues.LaneConfig{DrainConfig: queues.DrainConfig{TransactionTimeout: 300 * time.Millisecond, Retry: retry}})
	b.Exec(`UPDATE reservation_requests SET status = 'processing', attempts = 1, claim_epoch = 1, claim_expires_at = clock_timestamp()`)
	stalled := b.LockStock("shoe")
	for range 4 {
		if _, err := lane.Tick(b.TB.Context()); err == nil {
			b.TB.Error("a tick that could not lock the stock returned no error")
		}
	}
	if v := b.Get(bad); v.Status != requests.Processing || v.Attempts != 1 {
		b.TB.Errorf("%s after %d attempts, want processing after 1", v.Status, v.Attempts)
	}
	b.Exec(`ALTER TABLE reservations DROP CONSTRAINT poison`)
	stalled.Release()
	b.Until(b.Lane(queues.LaneConfig{}), bad) // without the short timeout
	b.Want(bad, requests.Done, "")
	b.Sound()
}

// A full batch that exceeds its timeout is not retried at the same size.
func slowsDown(b *Bench) {
	b.Stock("shoe", 1000)
	for i := range 60 {
		b.Submit(fmt.Sprint("cart-", i), "shoe", 1)
	}
	b.Exec(`ALTER TABLE reservations ADD CONSTRAINT slow CHECK (pg_sleep(0.01)::text = '')`)
	lane := b.Lane(queues.LaneConfig{DrainConfig: queues.DrainConfig{TransactionTimeout: 400 * time.Millisecond}, Concurrency: 1})
	pgtest.Until(b.TB, "all requests are done", func() bool {
		if _, err := lane.Tick(b.TB.Context()); err != nil {
			b.TB.Log(err)
		}
		return b.Int(`SELECT count(*) FROM reservation_requests WHERE status = 'done'`) == 60
	})
	b.Sound()
}

// A request may need the units of more due holds than one transaction can
// expire. It neither fails nor stops its lane.
func expiresBacklog(b *Bench) {
	const held = 12_000
	b.Stock("shoe", held)
	b.Stock("sock", 1)
	b.Exec(`UPDATE inventory_stocks SET reserved = $1 WHERE variant_id = 'shoe'`, held)
	b.Exec(`
		INSERT INTO reservations (tenant_id, reservation_id, resource_kind, resource_key, holder_id, quantity, first_held_at, held_at, expires_at)
		SELECT $1, gen_random_uuid(), 'inventory.variant', 'shoe', 'cart-' || n, 1, past.at, past.at, past.at
		FROM generate_series(1, $2::integer) AS n, (SELECT clock_timestamp() - interval '1 hour' AS at) AS past`, b.Tenant, held)
	large, late, other := b.Submit("a", "shoe", held), b.Submit("b", "shoe", 1), b.Submit("b", "sock", 1)
	b.Tick(b.Lane(queues.LaneConfig{}))
	b.Want(large, requests.Done, "")
	b.Want(late, requests.Failed, requests.OutOfStock)
	b.Want(other, requests.Done, "")
	if n := b.Int(`SELECT reserved FROM inventory_stocks WHERE variant_id = 'shoe'`); n != held {
		b.TB.Errorf("reserved %d, want %d", n, held)
	}
	const largestSQL = `
SELECT max(expired)
FROM (SELECT count(*) AS expired FROM audit_log WHERE action = 'reservation.expired' GROUP BY xmin::text) AS together`
	if n := b.Int(largestSQL); n > 5000 {
		b.TB.Errorf("%d holds expired in one transaction", n)
	}
}
