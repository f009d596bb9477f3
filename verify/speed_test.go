package verify_test

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"strconv"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/internal/pgtest"
	"github.com/holdfast/holdfast/verify"
)

// With -verify.requests=600000 the database has about 2.2 million rows.
var requestsToFill = flag.Int("verify.requests", 60_000, "how many requests BenchmarkRun fills a database with")

// fillSQL makes the rows of decided requests: of ten one is rejected, one held,
// two are expired and six committed. All are consistent.
var fillSQL = []string{
	`CREATE TEMP TABLE sale ON COMMIT DROP AS
	SELECT n, ('00000000-0000-7000-8000-' || lpad(to_hex(n % 20), 12, '0'))::uuid AS tenant_id,
	       ('00000000-0000-7000-9000-' || lpad(to_hex(n), 12, '0'))::uuid AS id,
	       CASE WHEN n % 3 = 0 THEN 'hot' ELSE 'normal' END AS lane, 'variant-' || n % 500 AS variant_id, 'cart-' || n / 3 AS cart_id,
	       clock_timestamp() - interval '3 hours' + n * interval '1 ms' AS at,
	       CASE WHEN n % 10 = 0 THEN 'failed' WHEN n % 10 = 1 THEN 'held' WHEN n % 10 < 4 THEN 'expired' ELSE 'committed' END AS status
	FROM generate_series(1, $1::integer) AS n`,
	`INSERT INTO lane_slots (lane, slot, low_water) VALUES ('hot', 0, $1)`,
	`INSERT INTO reservation_requests (tenant_id, request_id, created_at, updated_at, quantity, lane, status, cart_id, variant_id, reason,
	                                   idempotency_key, fingerprint, correlation_id)
	SELECT tenant_id, id, at, at + interval '5 ms', 1, lane, CASE status WHEN 'failed' THEN 'failed' ELSE 'done' END, cart_id, variant_id,
	       CASE status WHEN 'failed' THEN 'out_of_stock' END, 'key-' || n, decode(repeat('00', 32), 'hex'), 'c-' || n
	FROM sale ORDER BY n`,
	`INSERT INTO reservations (tenant_id, reservation_id, resource_kind, resource_key, holder_id, quantity, status, release_reason,
	                           first_held_at, held_at, expires_at, ended_at)
	SELECT tenant_id, id, 'inventory.variant', variant_id, cart_id, 1, status, CASE status WHEN 'expired' THEN 'ttl' END,
	       at + interval '5 ms', at + interval '5 ms', at + interval '15 minutes',
	       CASE status WHEN 'expired' THEN at + interval '16 minutes' WHEN 'committed' THEN at + interval '1 minute' END
	FROM sale WHERE status <> 'failed' ORDER BY n`,
	`INSERT INTO inventory_stocks (tenant_id, variant_id, stock, reserved)
	SELECT tenant_id, variant_id, 1000000 - count(*) FILTER (WHERE status = 'committed'), count(*) FILTER (WHERE status = 'held')
	FROM sale GROUP BY tenant_id, variant_id`,
	`INSERT INTO audit_log (tenant_id, target_id, created_at, action, actor_kind, after)
	SELECT tenant_id, gen_random_uuid(), clock_timestamp() - interval '4 hours', 'stock.set', 'user',
	       jsonb_build_object('variant_id', variant_id, 'stock', 1000000, 'reserved', 0, 'tracked', tracked, 'backorder', backorder,
	           'hold_ttl_seconds', hold_ttl_seconds, 'max_per_cart', max_per_cart, 'lane', lane, 'admission', admission)
	FROM inventory_stocks`,
	`INSERT INTO audit_log (tenant_id, target_id, created_at, action, actor_kind, correlation_id, resource_kind, resource_key, holder_id, quantity,
	                       expires_at, release_reason, before, after)
	SELECT tenant_id, id, event.at, event.action, 'user', 'c-' || n, kind, CASE WHEN kind <> '' THEN variant_id END,
	       CASE WHEN kind <> '' THEN cart_id END, CASE WHEN kind <> '' THEN 1 END, CASE WHEN kind <> '' THEN sale.at + interval '15 minutes' END,
	       CASE event.action WHEN 'reservation.expired' THEN 'ttl' END, event.before, event.after
	FROM sale
	CROSS JOIN LATERAL (VALUES
	    (sale.at + interval '5 ms', 'reservation.held', 'inventory.variant', NULL::jsonb, NULL::jsonb, status <> 'failed'),
	    (sale.at + interval '5 ms', 'request.failed', NULL, jsonb_build_object('status', 'queued'), jsonb_build_object('status', 'failed',
	        'reason', 'out_of_stock', 'cart_id', cart_id, 'variant_id', variant_id, 'quantity', 1), status = 'failed'),
	    (sale.at + interval '1 minute', 'reservation.committed', 'inventory.variant', NULL, NULL, status = 'committed'),
	    (sale.at + interval '16 minutes', 'reservation.expired', 'inventory.variant', NULL, NULL, status = 'expired')
	) AS event (at, action, kind, before, after, happened)
	WHERE event.happened
	ORDER BY event.at`,
}

// fill makes the rows and returns how many.
func fill(tb testing.TB, db *pgxpool.Pool, requests int) (rows int64) {
	tb.Helper()
	pgtest.Must(tb, pgx.BeginFunc(context.Background(), db, func(tx pgx.Tx) error {
		for i, sql := range fillSQL {
			args := []any{requests}[:max(0, 1-max(0, i-1))]
			tag, err := tx.Exec(context.Background(), sql, args...)
			if err != nil {
				return err
			}
			if i > 0 {
				rows += tag.RowsAffected()
			}
		}
		return nil
	}))
	_, err := db.Exec(context.Background(), `VACUUM (ANALYZE)`)
	pgtest.Must(tb, err)
	return rows
}

// BenchmarkRun reports how many rows a run on two connections checks per second,
// and one on one connection per second of the CPU that its Postgres process uses
// (on Linux).
func BenchmarkRun(b *testing.B) {
	db := pgtest.New(b)
	rows := fill(b, db, *requestsToFill)
	b.ResetTimer()
	for range b.N {
		report, err := verify.Run(context.Background(), db, verify.Config{})
		pgtest.Must(b, err)
		if !report.OK {
			b.Error(report.Summary())
		}
	}
	b.ReportMetric(float64(rows)*float64(b.N)/b.Elapsed().Seconds(), "rows/s")
	b.StopTimer()
	pgtest.Must(b, pgx.BeginFunc(context.Background(), db, func(tx pgx.Tx) error {
		before := cpuSeconds(tx)
		_, err := verify.RunTx(context.Background(), tx, verify.Config{})
		if cpu := cpuSeconds(tx) - before; cpu > 0 {
			b.ReportMetric(float64(rows)/cpu, "rows/cpu-s")
		}
		return err
	}))
}

// cpuSeconds is how much CPU the transaction's Postgres process has used, 0 if
// that can't be read. The kernel counts in hundredths of a second (proc(5)).
func cpuSeconds(tx pgx.Tx) float64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", tx.Conn().PgConn().PID()))
	if err != nil {
		return 0
	}
	fields := bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:])
	user, _ := strconv.ParseFloat(string(fields[11]), 64)
	system, _ := strconv.ParseFloat(string(fields[12]), 64)
	return (user + system) / 100
}

// A database of thousands of consistent rows is checked in several pieces.
func TestRunInPieces(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	fill(t, db, 25_000)
	pieces, last := 0, verify.Progress{}
	report, err := verify.Run(t.Context(), db, verify.Config{Progress: func(p verify.Progress) {
		if p.Step == "targets" {
			pieces++
		}
		if p.Done <= last.Done || p.Steps < last.Steps || p.Done > p.Steps {
			t.Errorf("progress of %+v after %+v", p, last)
		}
		last = p
	}})
	pgtest.Must(t, err)
	if !report.OK || pieces < 3 {
		t.Errorf("%s, in %d pieces", report.Summary(), pieces)
	}
}
