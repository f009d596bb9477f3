package ops

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/audit"
	"github.com/holdfast/holdfast/internal/lanes"
	"github.com/holdfast/holdfast/internal/signals"
)

const arrivalsSQL = `
SELECT coalesce(sum(s.rate) FILTER (WHERE s.tenant_id = '00000000-0000-0000-0000-000000000000'), 0),
       coalesce(sum(s.rate) FILTER (WHERE s.variant_id <> '' AND h.variant_id IS NOT NULL), 0)
FROM hot_signals s
LEFT JOIN hot_variants h ON h.tenant_id = s.tenant_id AND h.variant_id = s.variant_id AND h.state <> 'leaving'
WHERE s.measured_at BETWEEN clock_timestamp() - $1::interval AND clock_timestamp()`

// Arrivals returns how many requests per second arrive in each lane, over all
// tenants and processes, by the signals of the last windows. A hot variant that
// is not among the most frequent variants of a process counts for the normal
// lane. All is 0 where no process counts them.
func Arrivals(ctx context.Context, db audit.Querier) (map[lanes.Lane]float64, error) {
	rows, _ := db.Query(ctx, arrivalsSQL, signals.MaxAge)
	rates, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByPos[struct{ All, Hot float64 }])
	if err != nil {
		return nil, fmt.Errorf("read the arrival rates: %w", err)
	}
	return map[lanes.Lane]float64{lanes.Hot: rates.Hot, lanes.Normal: max(rates.All-rates.Hot, 0)}, nil
}

// Busy is a variant that requests arrive for.
type Busy struct {
	VariantID string
	// Rate is how many requests per second arrive for it.
	Rate float64
}

// recentMax is how many of a tenant's newest requests Busiest reads.
const recentMax = 200

// busiestSQL reads a tenant's newest requests by their ids, which are made in
// the order of time. Rates within a factor of four count as equal: a rate of one
// second varies, and its variants would change places each second.
const busiestSQL = `
WITH arriving AS MATERIALIZED (
    SELECT s.variant_id, sum(s.rate) AS rate
    FROM hot_signals s
    WHERE s.tenant_id = $1 AND s.variant_id <> '' AND s.measured_at BETWEEN clock_timestamp() - $2::interval AND clock_timestamp()
    GROUP BY s.variant_id
), moved AS MATERIALIZED (
    SELECT h.variant_id
    FROM hot_variants h
    WHERE h.tenant_id = $1
    ORDER BY h.moved_at DESC
    LIMIT $3
), recent AS MATERIALIZED (
    SELECT newest.variant_id, count(*) AS requests
    FROM (
        SELECT r.variant_id
        FROM reservation_requests r
        WHERE r.tenant_id = $1
        ORDER BY r.request_id DESC
        LIMIT $4
    ) newest
    GROUP BY newest.variant_id
), candidate AS MATERIALIZED (
    SELECT variant_id FROM arriving
    UNION
    SELECT variant_id FROM moved
    UNION
    SELECT variant_id FROM recent
), ranked AS MATERIALIZED (
    SELECT candidate.variant_id, coalesce(arriving.rate, 0) AS rate, moved.variant_id IS NOT NULL AS hot,
           CASE WHEN arriving.rate > 0 THEN floor(ln(greatest(arriving.rate, 1)) / ln(4)) ELSE -1 END AS level,
           CASE WHEN arriving.rate > 0 THEN 0 ELSE coalesce(recent.requests, 0) END AS requests
    FROM candidate
    LEFT JOIN arriving ON arriving.variant_id = candidate.variant_id
    LEFT JOIN moved ON moved.variant_id = candidate.variant_id
    LEFT JOIN recent ON recent.variant_id = candidate.variant_id
), placed AS MATERIALIZED (
    SELECT ranked.*, row_number() OVER (PARTITION BY hot ORDER BY level DESC, requests DESC, variant_id) AS place
    FROM ranked
)
SELECT variant_id, rate
FROM placed
ORDER BY NOT hot OR place > $5 / 2, level DESC, requests DESC, variant_id
LIMIT $5`

// Busiest returns up to limit variants of the tenant that matter most now: up to
// half of them hot ones, then those with the most arriving requests, then those
// of the tenant's newest requests. Variants with similar rates are in the order
// of their ids. A variant that does not exist can be among them.
func Busiest(ctx context.Context, db audit.Querier, tenantID uuid.UUID, limit int) ([]Busy, error) {
	rows, _ := db.Query(ctx, busiestSQL, tenantID, signals.MaxAge, HotMax, recentMax, limit)
	busiest, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Busy])
	if err != nil {
		return nil, fmt.Errorf("read the busiest variants: %w", err)
	}
	return busiest, nil
}

// HotVariant is a hot variant as operators see it.
type HotVariant struct {
	lanes.Variant
	// Why is the reason for which the detector moved it; nil for a pinned one.
	Why *string
	// Rate is how many requests per second arrived for it at the detector's
	// last pass.
	Rate float64
}

// HotMax is how many hot variants HotVariants returns at most.
const HotMax = 1000

const hotVariantsSQL = `
SELECT h.variant_id, h.slot, h.state, h.pinned, h.moved_at, h.why, coalesce(o.rate, 0) AS rate
FROM hot_variants h
LEFT JOIN hot_observations o ON o.tenant_id = h.tenant_id AND o.variant_id = h.variant_id
WHERE h.tenant_id = $1
ORDER BY rate DESC, h.variant_id
LIMIT $2`

// HotVariants returns the tenant's hot variants, the busiest first.
func HotVariants(ctx context.Context, db audit.Querier, tenantID uuid.UUID) ([]HotVariant, error) {
	rows, _ := db.Query(ctx, hotVariantsSQL, tenantID, HotMax)
	variants, err := pgx.CollectRows(rows, pgx.RowToStructByPos[HotVariant])
	if err != nil {
		return nil, fmt.Errorf("list hot variants: %w", err)
	}
	return variants, nil
}
