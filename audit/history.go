package audit

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// Querier reads: a pool, a connection or a transaction.
type Querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// HistoryMax is how many of a target's newest rows History returns at most.
const HistoryMax = 1000

const historySQL = `
SELECT *
FROM (
    SELECT audit_id, created_at, action, actor_kind, coalesce(actor_id, ''), coalesce(correlation_id, ''),
           coalesce(reason, ''), before, after
    FROM audit_log
    WHERE tenant_id = $1 AND target_id = $2
    ORDER BY audit_id DESC
    LIMIT $3
) newest
ORDER BY audit_id`

// History returns the record of one target, oldest first, at most its newest HistoryMax rows; none if the tenant has no
// such target.
func History(ctx context.Context, db Querier, tenantID, targetID uuid.UUID) ([]Record, error) {
	rows, err := db.Query(ctx, historySQL, tenantID, targetID, HistoryMax)
	if err != nil {
		return nil, fmt.Errorf("history of %s: %w", targetID, err)
	}
	records, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (Record, error) {
		r := Record{Entry: Entry{TenantID: tenantID, TargetID: targetID}}
		err := row.Scan(&r.AuditID, &r.CreatedAt, &r.Action, &r.Actor.Kind, &r.Actor.ID, &r.CorrelationID, &r.Reason, &r.Before, &r.After)
		return r, err
	})
	if err != nil {
		return nil, fmt.Errorf("history of %s: %w", targetID, err)
	}
	return records, nil
}

// MarshalJSON gives the record the shape it has over HTTP.
func (r Record) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		AuditID       int64           `json:"audit_id"`
		Action        string          `json:"action"`
		ActorKind     ActorKind       `json:"actor_kind"`
		ActorID       string          `json:"actor_id,omitempty"`
		CorrelationID string          `json:"correlation_id,omitempty"`
		Reason        string          `json:"reason,omitempty"`
		Before        json.RawMessage `json:"before"`
		After         json.RawMessage `json:"after"`
		CreatedAt     time.Time       `json:"created_at"`
	}{r.AuditID, r.Action, r.Actor.Kind, r.Actor.ID, r.CorrelationID, r.Reason, r.Before, r.After, r.CreatedAt})
}
