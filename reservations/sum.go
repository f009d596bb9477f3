package reservations

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/audit"
)

const sumDueSQL = `
SELECT r.tenant_id, r.resource_key, sum(r.quantity)::bigint
FROM reservations r
JOIN unnest($2::uuid[], $3::text[]) AS wanted (tenant_id, resource_key) USING (tenant_id, resource_key)
WHERE r.resource_kind = $1 AND r.status = 'held' AND (r.resource_key, r.expires_at) <= (wanted.resource_key, $4)
GROUP BY r.tenant_id, r.resource_key`

// Sum is a number of units of one resource.
type Sum struct {
	TenantID    uuid.UUID
	ResourceKey string
	Quantity    int64
}

// SumDue counts the units held past their deadline at now, a reading of the database's clock, for each of the resources
// (tenantIDs[i], keys[i]) that has any. Asked after the resource's row was locked, it counts every hold but for those
// being extended at this moment; LockTx tells.
func SumDue(ctx context.Context, db audit.Querier, kind string, tenantIDs []uuid.UUID, keys []string, now time.Time) ([]Sum, error) {
	rows, err := db.Query(ctx, sumDueSQL, kind, tenantIDs, keys, now)
	if err != nil {
		return nil, fmt.Errorf("sum due %s: %w", kind, err)
	}
	sums, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Sum])
	if err != nil {
		return nil, fmt.Errorf("sum due %s: %w", kind, err)
	}
	return sums, nil
}
