package main

import (
	"os"
	"slices"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/audit"
	"github.com/holdfast/holdfast/cmd/internal/programtest"
	"github.com/holdfast/holdfast/internal/inventory"
	"github.com/holdfast/holdfast/internal/pg"
	"github.com/holdfast/holdfast/internal/pgtest"
)

const (
	fillLineSQL = `
INSERT INTO reservation_requests (tenant_id, request_id, kind, cart_id, variant_id, quantity, lane, slot)
SELECT $1, gen_random_uuid(), 'wait', 'cart-' || n, 'ticket', 1, 'normal', 0
FROM generate_series(1, $2::integer) AS n
ORDER BY n`

	// offeredSQL is the order in which requests were offered units, by the record.
	offeredSQL = `
SELECT r.sequence
FROM reservation_requests r
JOIN audit_log a ON a.tenant_id = r.tenant_id AND a.target_id = r.request_id AND a.action = 'reservation.held'
ORDER BY a.audit_id`

	inLineSQL = `SELECT sequence FROM reservation_requests ORDER BY sequence LIMIT $1`
)

// Units are freed one by one while two workers make offers, of which one is killed
// again and again. The requests in line are offered them strictly in their order,
// each once, and none is lost. With HOLDFAST_TEST_LONG, 10,000 wait and 100 units
// are freed; without, 1,000 and 40.
func TestKilledWhileOffering(t *testing.T) {
	t.Parallel()
	waiting, units := 1000, 40
	if os.Getenv("HOLDFAST_TEST_LONG") != "" {
		waiting, units = 10_000, 100
	}
	shop := programtest.NewFixture(t)
	shop.Stock("ticket", 0)
	if _, err := shop.DB.Exec(t.Context(), fillLineSQL, shop.Tenant, waiting); err != nil {
		t.Fatal(err)
	}
	workers := []*programtest.Process{programtest.StartProcess(t, shop.Env()), programtest.StartProcess(t, shop.Env())}
	shop.Until("all wait in line", func() bool { return shop.Int(`SELECT count(*) FROM waiting_requests`) == int64(waiting) })
	clerk := audit.Origin{Actor: audit.User("clerk")}
	for i := range units {
		_, err := inventory.Adjust(t.Context(), shop.DB, shop.Tenant, "ticket", 1, clerk)
		pgtest.Must(t, err)
		if i%10 == 5 {
			victim := &workers[i/10%2]
			(*victim).Signal(syscall.SIGKILL)
			if code := (*victim).Wait(); code != -1 {
				t.Fatalf("exit code %d of a worker that was killed", code)
			}
			*victim = programtest.StartProcess(t, shop.Env())
		}
	}
	shop.Until("all units are offered", func() bool { return shop.Int(`SELECT reserved FROM inventory_stocks`) == int64(units) })
	offered, err := pg.Select(t.Context(), shop.DB, pgx.RowTo[int64], offeredSQL)
	pgtest.Must(t, err)
	first, err := pg.Select(t.Context(), shop.DB, pgx.RowTo[int64], inLineSQL, units)
	pgtest.Must(t, err)
	if !slices.Equal(offered, first) {
		t.Errorf("offered were %v, want %v", offered, first)
	}
	if n := shop.Int(`SELECT count(*) FROM waiting_requests`); n != int64(waiting-units) {
		t.Errorf("%d wait in line, want %d", n, waiting-units)
	}
	for _, w := range workers {
		w.Signal(syscall.SIGTERM)
		if code := w.Wait(); code != 0 {
			t.Errorf("exit code %d of a worker that was stopped; it logged:\n%s", code, w.Stderr)
		}
	}
	shop.Verify()
}
