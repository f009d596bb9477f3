package reservationrows

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/audit"
)

// sumDueSQL reads each resource individually. With a plain join, on a table
// that grew since it was last analysed, the planner may read all holds once for
// each resource.
const sumDueSQL = `
SELECT wanted.tenant_id, wanted.resource_key, due.quantity
FROM unnest($2::uuid[], $3::text[]) AS wanted (tenant_id, resource_key)
CROSS JOIN LATERAL (
    SELECT sum(r.quantity)::bigint AS quantity
    FROM reservations r
    WHERE r.tenant_id = wanted.tenant_id AND r.resource_kind = $1 AND r.resource_key = wanted.resource_key
      AND r.status = 'held' AND r.expires_at <= $4
) AS due
WHERE due.quantity IS NOT NULL`

// Sum is a number of units of one resource.
type Sum struct {
	TenantID    uuid.UUID
	ResourceKey string
	Quantity    int64
}

// SumDue counts the units held past their deadline at now, a reading of the
// database's clock, for each of the resources (tenantIDs[i], keys[i]) that has
// any. If the caller has locked the resources' rows, the sum counts every due
// hold, and perhaps some that another transaction is extending; LockTx returns
// the extended deadline.
func SumDue(ctx context.Context, db audit.Querier, kind string, tenantIDs []uuid.UUID, keys []string, now time.Time) ([]Sum, error) {
	rows, _ := db.Query(ctx, sumDueSQL, kind, tenantIDs, keys, now)
	sums, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Sum])
	if err != nil {
		return nil, fmt.Errorf("sum due %s: %w", kind, err)
	}
	return sums, nil
}
