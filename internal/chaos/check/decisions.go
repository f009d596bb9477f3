package check

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/internal/chaos/traffic"
)

// Lock is the time in which a fault kept the stock of a variant locked, or a
// hold of it.
type Lock struct {
	traffic.StockRef
	From, Until time.Time
}

// Decisions is how long after their acceptance the adds of a lane were decided,
// by the database's clock.
type Decisions struct {
	Adds  int     `json:"adds"`
	P50MS float64 `json:"p50_ms"`
	P99MS float64 `json:"p99_ms"`
}

// decisionTimesSQL leaves out the adds of digital variants, which are done when
// they are inserted.
const decisionTimesSQL = `
SELECT r.lane, count(*),
       1000 * percentile_cont(0.5) WITHIN GROUP (ORDER BY extract(epoch FROM r.updated_at - r.created_at)),
       1000 * percentile_cont(0.99) WITHIN GROUP (ORDER BY extract(epoch FROM r.updated_at - r.created_at))
FROM reservation_requests r
WHERE r.tenant_id = ANY ($1) AND EXISTS (SELECT FROM tenant_state t WHERE t.tenant_id = r.tenant_id AND t.state = 'active') AND r.kind = 'add' AND r.reason IS DISTINCT FROM 'cancelled' AND r.updated_at > r.created_at
  AND NOT EXISTS (SELECT
                  FROM unnest($2::uuid[], $3::text[], $4::timestamptz[], $5::timestamptz[]) AS l (tenant_id, variant_id, since, until)
                  WHERE l.tenant_id = r.tenant_id AND l.variant_id = r.variant_id AND l.since < r.updated_at AND l.until > r.created_at)
GROUP BY r.lane`

// DecisionTimes returns the Decisions of each lane, without the adds of variants
// that were locked meanwhile.
func DecisionTimes(ctx context.Context, db *pgxpool.Pool, tenants []*traffic.Tenant, locks []Lock) (map[string]Decisions, error) {
	ids := make([]uuid.UUID, len(tenants))
	for i, t := range tenants {
		ids[i] = t.ID
	}
	of, variants, since, until := make([]uuid.UUID, len(locks)), make([]string, len(locks)), make([]time.Time, len(locks)), make([]time.Time, len(locks))
	for i, l := range locks {
		of[i], variants[i], since[i], until[i] = l.TenantID, l.Variant, l.From, l.Until
	}
	rows, _ := db.Query(ctx, decisionTimesSQL, ids, of, variants, since, until) //nolint:rowserrcheck // ForEachRow checks it
	found := make(map[string]Decisions)
	var lane string
	var d Decisions
	_, err := pgx.ForEachRow(rows, []any{&lane, &d.Adds, &d.P50MS, &d.P99MS}, func() error {
		found[lane] = d
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read how long decisions took: %w", err)
	}
	return found, nil
}
