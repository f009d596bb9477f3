package audit

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// Querier reads: a pool, a connection or a transaction. An error of Query is
// also the error of its rows, as the documentation of [pgx.Conn.Query] states.
// So a caller that reads the rows with a helper of pgx may ignore the first.
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

// History returns the record of one target, oldest first, at most its newest
// HistoryMax rows. It returns no rows if the tenant has no such target.
func History(ctx context.Context, db Querier, tenantID, targetID uuid.UUID) ([]Record, error) {
	rows, _ := db.Query(ctx, historySQL, tenantID, targetID, HistoryMax)
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

const newestSQL = `
SELECT *
FROM (
    SELECT found.*
    FROM unnest($2::uuid[]) AS of (target_id)
    CROSS JOIN LATERAL (
        SELECT a.target_id, a.audit_id, a.created_at, a.action, a.actor_kind, coalesce(a.actor_id, ''), coalesce(a.correlation_id, ''),
               coalesce(a.reason, ''), a.before, a.after
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
func Newest(ctx context.Context, db Querier, tenantID uuid.UUID, targets []uuid.UUID, before int64, limit int) ([]Record, error) {
	if before == 0 {
		before = math.MaxInt64
	}
	ids := make([][16]byte, len(targets))
	for i := range targets {
		ids[i] = targets[i]
	}
	rows, err := db.Query(ctx, newestSQL, tenantID, ids, limit, before)
	if err != nil {
		return nil, fmt.Errorf("history of %d targets: %w", len(targets), err)
	}
	records, err := pgx.CollectRows(rows, toRecordOf(tenantID))
	if err != nil {
		return nil, fmt.Errorf("history of %d targets: %w", len(targets), err)
	}
	return records, nil
}

// toRecordOf reads the rows of several targets of a tenant.
func toRecordOf(tenantID uuid.UUID) pgx.RowToFunc[Record] {
	return func(row pgx.CollectableRow) (Record, error) {
		r := Record{Entry: Entry{TenantID: tenantID}}
		err := row.Scan((*[16]byte)(&r.TargetID), &r.AuditID, &r.CreatedAt, &r.Action, &r.Actor.Kind, &r.Actor.ID, &r.CorrelationID, &r.Reason, &r.Before, &r.After)
		return r, err
	}
}

// unitHistorySQL finds the rows by audit_log_units_idx. The first step is
// materialized, so that the planner does not read audit_log_id_idx backwards
// until it has found enough rows.
const unitHistorySQL = `
WITH of_unit AS MATERIALIZED (
    SELECT target_id, audit_id
    FROM audit_log
    WHERE after ? 'unit_ids'
      AND ((after -> 'unit_ids') || (after -> 'resource_key') || ('"' || tenant_id::text || '"')::jsonb)
          @> jsonb_build_array($2::text, $3::text, $1::uuid)
      AND tenant_id = $1 AND after ->> 'resource_key' = $2::text AND after -> 'unit_ids' ? $3::text
),
newest AS (
    SELECT target_id, audit_id
    FROM of_unit
    ORDER BY audit_id DESC
    LIMIT $4
)
SELECT a.target_id, a.audit_id, a.created_at, a.action, a.actor_kind, coalesce(a.actor_id, ''), coalesce(a.correlation_id, ''),
       coalesce(a.reason, ''), a.before - 'unit_ids', a.after - 'unit_ids'
FROM newest n
JOIN audit_log a ON a.tenant_id = $1 AND a.target_id = n.target_id AND a.audit_id = n.audit_id
ORDER BY a.audit_id`

// UnitHistory returns the record of all reservations that had the unit of the
// block, oldest first, at most its newest HistoryMax rows. Before and After do
// not contain the list of units. It returns no rows if no reservation had it.
func UnitHistory(ctx context.Context, db Querier, tenantID uuid.UUID, block, unitID string) ([]Record, error) {
	rows, err := db.Query(ctx, unitHistorySQL, tenantID, block, unitID, HistoryMax)
	if err != nil {
		return nil, fmt.Errorf("history of unit %s of block %s: %w", unitID, block, err)
	}
	records, err := pgx.CollectRows(rows, toRecordOf(tenantID))
	if err != nil {
		return nil, fmt.Errorf("history of unit %s of block %s: %w", unitID, block, err)
	}
	return records, nil
}

// MarshalJSON returns the record's JSON form in the HTTP API.
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

// ReconstructState returns a target's state by its record: it merges the
// members of every After, oldest record first, so that a later value replaces
// an earlier one. The merge is shallow: a member that is an object is replaced
// whole. Without records the state is nil.
//
// Error: one that names the id of a record whose After is not a JSON object.
func ReconstructState(history []Record) (map[string]json.RawMessage, error) {
	var state map[string]json.RawMessage
	for i := range history {
		var after map[string]json.RawMessage
		if err := json.Unmarshal(history[i].After, &after); err != nil || after == nil {
			return nil, fmt.Errorf("reconstruct from audit row %d: its state is not an object: %w", history[i].AuditID, err)
		}
		if state == nil {
			state = make(map[string]json.RawMessage, len(after))
		}
		maps.Copy(state, after)
	}
	return state, nil
}
