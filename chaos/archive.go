package main

import (
	"context"
	"fmt"
	"time"

	"github.com/holdfast/holdfast/internal/tenants"
)

// archiveSQL inserts finished requests of the past, and committed holds for a
// tenth of those that are done. They are older than verify's retention, so
// verify requires no counterparts. The programs run with a long
// REQUEST_RETENTION, so they are not purged.
const archiveSQL = `
WITH archived AS (
    INSERT INTO reservation_requests (tenant_id, request_id, created_at, updated_at, quantity, lane, slot, status, reason,
                                      cart_id, variant_id, correlation_id, idempotency_key, fingerprint)
    SELECT $1::uuid, gen_random_uuid(), past.at, past.at + interval '40 milliseconds', 1 + n % 3,
           CASE WHEN n % 4 = 0 THEN 'hot' ELSE 'normal' END, CASE WHEN n % 4 = 0 THEN n / 4 % 4 ELSE 0 END,
           CASE WHEN n % 5 = 0 THEN 'failed' ELSE 'done' END, CASE WHEN n % 5 = 0 THEN 'out_of_stock' END,
           'cart-' || md5('cart ' || n / 3), 'article ' || n % 5000, 'c-' || md5('call ' || n), 'key-' || md5('key ' || n),
           sha256(convert_to('call ' || n, 'UTF8'))
    FROM generate_series($2::bigint, $3::bigint) AS n
    CROSS JOIN LATERAL (SELECT clock_timestamp() - interval '400 hours' + $4::interval * n AS at) AS past
    RETURNING tenant_id, request_id, cart_id, variant_id, quantity, status, created_at
)
INSERT INTO reservations (tenant_id, reservation_id, resource_kind, resource_key, holder_id, quantity, status,
                          first_held_at, held_at, expires_at, ended_at)
SELECT tenant_id, request_id, 'inventory.variant', variant_id, cart_id, quantity, 'committed',
       created_at, created_at, created_at + interval '15 minutes', created_at + interval '1 minute'
FROM archived
WHERE status = 'done' AND get_byte(uuid_send(request_id), 0) < 26`

// archiveMarksSQL sets the low-water marks that drains would have moved past
// those requests.
const archiveMarksSQL = `
UPDATE lane_slots
SET low_water = (SELECT max(sequence) FROM reservation_requests)
WHERE slot >= 0`

const (
	archiveBatch = 50_000
	// archiveSpan is the time over which the requests are spread.
	archiveSpan = 200 * time.Hour
)

// fill inserts the given number of finished requests. Then it vacuums the
// tables and makes a checkpoint, as in an old installation.
func (t *harness) fill(ctx context.Context) error {
	tenant, err := tenants.Ensure(ctx, t.db(), "archive")
	if err != nil {
		return err
	}
	began, reported := time.Now(), time.Now()
	for n := 1; n <= t.rows; n += archiveBatch {
		last := min(n+archiveBatch-1, t.rows)
		if _, err := t.db().Exec(ctx, archiveSQL, tenant.TenantID, n, last, archiveSpan/time.Duration(t.rows)); err != nil {
			return fmt.Errorf("make finished requests: %w", err)
		}
		if time.Since(reported) > time.Second || last == t.rows {
			reported = time.Now()
			t.printf("%4.0fs  %d of %d finished requests", time.Since(began).Seconds(), last, t.rows)
		}
	}
	for _, sql := range []string{archiveMarksSQL, `VACUUM (ANALYZE) reservation_requests`, `VACUUM (ANALYZE) reservations`, `CHECKPOINT`} {
		if _, err := t.db().Exec(ctx, sql); err != nil {
			return fmt.Errorf("vacuum the finished requests: %w", err)
		}
	}
	return nil
}
