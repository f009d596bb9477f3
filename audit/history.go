package audit

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/internal/auditrows"
)

// Querier reads: a pool, a connection or a transaction. An error of Query is
// also the error of its rows, as the documentation of [pgx.Conn.Query] states.
// So a caller that reads the rows with a helper of pgx may ignore the first.
type Querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// historyMax is how many of a target's newest rows History returns at most.
const historyMax = 1000

// recordColumns is the one column list of a Record, read by toRecord.
const recordColumns = `a.tenant_id, a.target_id, a.audit_id, a.created_at, a.action, a.actor_kind, coalesce(a.actor_id, ''),
       coalesce(a.correlation_id, ''), coalesce(a.reason, ''), ` + auditrows.Columns

// toRecord reads a row of recordColumns. It scans ids as the bytes they are,
// because pgx would read an id by way of its text.
func toRecord(row pgx.CollectableRow) (r Record, err error) {
	err = auditrows.Scan(row, &r.Action, &r.Before, &r.After, (*[16]byte)(&r.TenantID), (*[16]byte)(&r.TargetID), &r.AuditID, &r.CreatedAt,
		&r.Action, &r.Actor.Kind, &r.Actor.ID, &r.CorrelationID, &r.Reason)
	return r, err
}

const historySQL = `
SELECT ` + recordColumns + `
FROM audit_log a
WHERE a.tenant_id = $1 AND a.target_id = $2
ORDER BY a.audit_id DESC
LIMIT $3`

// History returns the record of one target, oldest first, at most its newest
// 1,000 rows. It returns no rows if the tenant has no such target.
func History(ctx context.Context, db Querier, tenantID, targetID uuid.UUID) ([]Record, error) {
	rows, _ := db.Query(ctx, historySQL, tenantID, targetID, historyMax)
	records, err := pgx.CollectRows(rows, toRecord)
	if err != nil {
		return nil, fmt.Errorf("history of %s: %w", targetID, err)
	}
	slices.Reverse(records)
	return records, nil
}

// MarshalJSON returns the record's JSON form in the HTTP API.
func (r Record) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		AuditID       int64           `json:"audit_id"`
		Action        string          `json:"action"`
		ActorKind     string          `json:"actor_kind"`
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
