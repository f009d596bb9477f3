package ops

import (
	"context"
	"fmt"
	"math"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/audit"
	"github.com/holdfast/holdfast/internal/auditrows"
)

// HistoryMax is how many records a history has at most, the newest ones.
const HistoryMax = 1000

// recordColumns are the columns of an audit.Record, read by records.
const recordColumns = `a.target_id, a.audit_id, a.created_at, a.action, a.actor_kind, coalesce(a.actor_id, ''),
       coalesce(a.correlation_id, ''), coalesce(a.reason, ''), `

const newestSQL = `
SELECT *
FROM (
    SELECT found.*
    FROM unnest($2::uuid[]) AS of (target_id)
    CROSS JOIN LATERAL (
        SELECT ` + recordColumns + auditrows.Columns + `
        FROM audit_log a
        WHERE a.tenant_id = $1 AND a.target_id = of.target_id AND a.audit_id < $4
        ORDER BY a.audit_id DESC
        LIMIT $3
    ) AS found
    ORDER BY found.audit_id DESC
    LIMIT $3
) newest
ORDER BY audit_id`

// Newest returns the newest limit rows of the record of several distinct
// targets, oldest first. If before is not 0, it returns the newest ones whose
// AuditID is lower. A row of a transaction that is still running then may appear
// among older ones later.
func Newest(ctx context.Context, db audit.Querier, tenantID uuid.UUID, targets []uuid.UUID, before int64, limit int) ([]audit.Record, error) {
	if before == 0 {
		before = math.MaxInt64
	}
	ids := make([][16]byte, len(targets))
	for i := range targets {
		ids[i] = targets[i]
	}
	return records(ctx, db, tenantID, fmt.Sprintf("%d targets", len(targets)), newestSQL, ids, limit, before)
}

// unitHistorySQL finds the rows by audit_log_units_idx. The first step is
// materialized, so that the planner does not read audit_log_id_idx backwards
// until it has found enough rows.
const unitHistorySQL = `
WITH of_unit AS MATERIALIZED (
    SELECT target_id, audit_id
    FROM audit_log
    WHERE unit_ids IS NOT NULL
      AND (unit_ids || ('"' || tenant_id::text || '"')::jsonb || hashtextextended(resource_key, 0)::text::jsonb)
          @> jsonb_build_array($3::text, $1::uuid, hashtextextended($2::text, 0))
      AND tenant_id = $1 AND resource_key = $2::text AND unit_ids ? $3::text
),
newest AS (
    SELECT target_id, audit_id
    FROM of_unit
    ORDER BY audit_id DESC
    LIMIT $4
)
SELECT ` + recordColumns + auditrows.ColumnsWithoutUnits + `
FROM newest n
JOIN audit_log a ON a.tenant_id = $1 AND a.target_id = n.target_id AND a.audit_id = n.audit_id
ORDER BY a.audit_id`

// UnitHistory returns the record of all reservations that had the unit of the
// block, oldest first, at most its newest HistoryMax rows. Before and After do
// not contain the list of units. It returns no rows if no reservation had it.
func UnitHistory(ctx context.Context, db audit.Querier, tenantID uuid.UUID, block, unitID string) ([]audit.Record, error) {
	return records(ctx, db, tenantID, fmt.Sprintf("unit %s of block %s", unitID, block), unitHistorySQL, block, unitID, HistoryMax)
}

// records reads records of a tenant by a statement, whose first argument is the
// tenant.
func records(ctx context.Context, db audit.Querier, tenantID uuid.UUID, of, sql string, args ...any) ([]audit.Record, error) {
	rows, _ := db.Query(ctx, sql, append([]any{tenantID}, args...)...)
	found, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (audit.Record, error) {
		r := audit.Record{Entry: audit.Entry{TenantID: tenantID}}
		err := auditrows.Scan(row, &r.Action, &r.Before, &r.After, (*[16]byte)(&r.TargetID), &r.AuditID, &r.CreatedAt, &r.Action,
			&r.Actor.Kind, &r.Actor.ID, &r.CorrelationID, &r.Reason)
		return r, err
	})
	if err != nil {
		return nil, fmt.Errorf("history of %s: %w", of, err)
	}
	return found, nil
}
