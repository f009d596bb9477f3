package check

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/internal/chaos/traffic"
)

// oversoldSQL is one statement, so it sees one snapshot. It leaves out the rows of
// tenants that arrive in this cell or have left it.
const oversoldSQL = `
SELECT s.tenant_id::text, s.variant_id, s.stock, s.reserved, held.quantity
FROM inventory_stocks AS s
CROSS JOIN LATERAL (
    SELECT coalesce(sum(r.quantity), 0)::bigint AS quantity
    FROM reservations AS r
    WHERE r.tenant_id = s.tenant_id AND r.resource_key = s.variant_id AND r.status = 'held'
) AS held
WHERE (s.reserved < 0 OR s.reserved <> held.quantity OR (s.reserved > s.stock AND s.tracked AND NOT s.backorder))
  AND EXISTS (SELECT FROM tenant_state AS t WHERE t.tenant_id = s.tenant_id AND t.state IN ('active', 'moving'))
LIMIT 10`

type oversold struct {
	Tenant, Variant       string
	Stock, Reserved, Held int64
}

// Sample reads every stock once. It reports false if the database did not
// answer.
func Sample(ctx context.Context, db *pgxpool.Pool, findings *traffic.Findings) bool {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	rows, err := db.Query(ctx, oversoldSQL)
	if err != nil {
		return false
	}
	found, err := pgx.CollectRows(rows, pgx.RowToStructByPos[oversold])
	for _, o := range found {
		findings.Add(traffic.RuleNoOversell, "%s of tenant %s has stock %d, reserved %d, and holds of %d", o.Variant, o.Tenant, o.Stock, o.Reserved, o.Held)
	}
	return err == nil
}

const unfinishedSQL = `SELECT count(*) FROM reservation_requests WHERE status IN ('queued', 'processing')`

// Unfinished is the number of requests that are not decided.
func Unfinished(ctx context.Context, db *pgxpool.Pool) (count int, err error) {
	err = db.QueryRow(ctx, unfinishedSQL).Scan(&count)
	return count, err
}

const stuckSQL = `
SELECT r.request_id::text || ' ' || r.status || ' ' || r.lane || '/' || r.slot || ' ' || r.variant_id || ' sequence ' || r.sequence
       || ' attempts ' || r.attempts || ' created ' || r.created_at || ' low water ' || coalesce(s.low_water::text, 'none')
FROM reservation_requests AS r
LEFT JOIN lane_slots AS s ON s.lane = r.lane AND s.slot = r.slot
WHERE r.status IN ('queued', 'processing')
ORDER BY r.sequence
LIMIT 5`

// Stuck describes some requests that are not decided.
func Stuck(ctx context.Context, db *pgxpool.Pool) ([]string, error) {
	rows, err := db.Query(ctx, stuckSQL)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}
