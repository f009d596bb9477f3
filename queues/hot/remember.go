package hot

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

const watchSQL = `
INSERT INTO hot_watches (tenant_id, variant_id, rate, waiting, busy_since, quiet_since)
SELECT w.tenant_id, w.variant_id, w.rate, w.waiting, w.busy_since, w.quiet_since
FROM unnest($1::uuid[], $2::text[], $3::double precision[], $4::integer[], $5::timestamptz[], $6::timestamptz[])
     AS w (tenant_id, variant_id, rate, waiting, busy_since, quiet_since)
ON CONFLICT (tenant_id, variant_id) DO UPDATE
SET rate = excluded.rate, waiting = excluded.waiting, busy_since = excluded.busy_since, quiet_since = excluded.quiet_since`

const unwatchSQL = `
DELETE FROM hot_watches w
WHERE NOT EXISTS (
    SELECT
    FROM unnest($1::uuid[], $2::text[]) AS kept (tenant_id, variant_id)
    WHERE kept.tenant_id = w.tenant_id AND kept.variant_id = w.variant_id)`

// fadeSQL goes round rows that are being written at this moment. A signal from the future is one from before the clock was
// set back.
const fadeSQL = `
WITH faded AS MATERIALIZED (
    SELECT tenant_id, variant_id, source
    FROM hot_signals
    WHERE noted_at NOT BETWEEN clock_timestamp() - $1::interval AND clock_timestamp()
    LIMIT $2
    FOR UPDATE SKIP LOCKED
)
DELETE FROM hot_signals s
USING faded
WHERE s.tenant_id = faded.tenant_id AND s.variant_id = faded.variant_id AND s.source = faded.source`

// fadeAfter is how long a signal stays after it has said its last, fadeMax how many are cleared away in one pass.
const (
	fadeAfter = 10 * time.Second
	fadeMax   = 10_000
)

const passedSQL = `UPDATE hot_detector SET ran_at = $1, seen = greatest(seen, $2)`

// leave writes what the next pass must know.
func (p *pass) leave(ctx context.Context, tx pgx.Tx, watches []subject) error {
	n := len(watches)
	tenants, variants, rates, waiting := make([][16]byte, n), make([]string, n), make([]float64, n), make([]int, n)
	busy, quiet := make([]*time.Time, n), make([]*time.Time, n)
	for i := range watches {
		w := &watches[i]
		tenants[i], variants[i], rates[i], waiting[i], busy[i], quiet[i] = w.TenantID, w.VariantID, w.Rate, w.Waiting, w.BusySince, w.QuietSince
	}
	b := &pgx.Batch{}
	b.Queue(unwatchSQL, tenants, variants)
	b.Queue(watchSQL, tenants, variants, rates, waiting, busy, quiet)
	b.Queue(fadeSQL, fadeAfter, fadeMax)
	b.Queue(passedSQL, p.now, p.newest)
	if err := tx.SendBatch(ctx, b).Close(); err != nil {
		return fmt.Errorf("remember the pass: %w", err)
	}
	return nil
}
