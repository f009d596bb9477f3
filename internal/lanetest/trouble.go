package lanetest

import (
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/holdfast/holdfast/queues"
	"github.com/holdfast/holdfast/requests"
)

// Once one poison row was found, those behind it are found without halving a full batch again for each.
func isolatesMany(b *Bench) {
	b.Stock("shoe", 1000)
	b.Poison()
	var good, bad []requests.Request
	for i := range 200 {
		if i%50 < 8 {
			bad = append(bad, b.Submit("bad", "shoe", 1))
		} else {
			good = append(good, b.Submit(fmt.Sprint("cart-", i), "shoe", 1))
		}
	}
	said := &strings.Builder{}
	careful := queues.CarefulConfig{Backoff: time.Minute, BackoffMax: time.Minute}
	lane := b.LoggedLane(slog.New(slog.NewTextHandler(said, nil)), queues.LaneConfig{DrainConfig: queues.DrainConfig{Careful: careful}, Concurrency: 1})
	for _, r := range good {
		b.Until(lane, r)
		b.Want(r, requests.Done, "")
	}
	for _, r := range bad {
		b.Want(r, requests.Processing, "")
	}
	if halved := strings.Count(said.String(), "tried in halves"); halved > len(bad) {
		b.TB.Errorf("%d batches failed to find %d poison rows", halved, len(bad))
	}
	b.Sound()
}

// A row that failed by itself, and then can't be tried for a while, has all its attempts left when it can.
func countsNoOutage(b *Bench) {
	b.Stock("shoe", 10)
	b.Poison()
	bad := b.Submit("bad", "shoe", 1)
	careful := queues.CarefulConfig{AttemptsMax: 3, Backoff: time.Millisecond, BackoffMax: time.Millisecond}
	lane := b.Lane(queues.LaneConfig{DrainConfig: queues.DrainConfig{TransactionTimeout: 300 * time.Millisecond, Careful: careful}})
	b.Exec(`UPDATE reservation_requests SET status = 'processing', attempts = 1, claim_epoch = 1, claim_expires_at = clock_timestamp()`)
	stalled := b.LockStock("shoe")
	for range 4 {
		if _, err := lane.Tick(b.TB.Context()); err == nil {
			b.TB.Error("a tick that could not lock the stock says it was fine")
		}
	}
	if v := b.Get(bad); v.Status != requests.Processing || v.Attempts != 1 {
		b.TB.Errorf("%s after %d attempts, want processing after 1", v.Status, v.Attempts)
	}
	b.Exec(`ALTER TABLE reservations DROP CONSTRAINT poison`)
	stalled.Release()
	b.Until(lane, bad)
	b.Want(bad, requests.Done, "")
	b.Sound()
}

// A full batch that can't be done in its time must not be tried for ever.
func slowsDown(b *Bench) {
	b.Stock("shoe", 1000)
	for i := range 60 {
		b.Submit(fmt.Sprint("cart-", i), "shoe", 1)
	}
	b.Exec(`ALTER TABLE reservations ADD CONSTRAINT slow CHECK (pg_sleep(0.01)::text = '')`)
	lane := b.Lane(queues.LaneConfig{DrainConfig: queues.DrainConfig{TransactionTimeout: 400 * time.Millisecond}, Concurrency: 1})
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); {
		if _, err := lane.Tick(b.TB.Context()); err != nil {
			b.TB.Log(err)
		}
		if b.Int(`SELECT count(*) FROM reservation_requests WHERE status = 'done'`) == 60 {
			b.Sound()
			return
		}
	}
	b.TB.Error("a batch that takes too long keeps the lane for ever")
}

// One request for more units than one transaction can get back from due holds must neither fail nor stop its lane.
func makesRoom(b *Bench) {
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
