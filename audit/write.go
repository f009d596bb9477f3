package audit

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/internal/horizon"
)

// writeSQL gives the transaction its id before it draws the first audit_id, which is what the tail's marks rest on.
const writeSQL = `
INSERT INTO audit_log (tenant_id, target_id, action, actor_kind, actor_id, correlation_id, reason, before, after)
SELECT e.tenant_id, e.target_id, e.action, e.actor_kind, nullif(e.actor_id, ''), nullif(e.correlation_id, ''),
       nullif(e.reason, ''), nullif(e.before, '')::jsonb, e.after::jsonb
FROM unnest($1::uuid[], $2::uuid[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[], $9::text[])
     AS e (tenant_id, target_id, action, actor_kind, actor_id, correlation_id, reason, before, after)
WHERE ` + horizon.Own + ` IS NOT NULL`

// WriteTx records the entries in tx, in their order. The caller holds the lock of every target's row.
func WriteTx(ctx context.Context, tx pgx.Tx, entries []Entry) error {
	if len(entries) == 0 {
		return nil
	}
	b := &pgx.Batch{}
	Queue(b, entries)
	if err := tx.SendBatch(ctx, b).Close(); err != nil {
		return fmt.Errorf("write %d audit entries: %w", len(entries), err)
	}
	return nil
}

// Queue adds one statement to b that records the entries in their order. The caller holds the lock of every target's
// row when the batch runs.
func Queue(b *pgx.Batch, entries []Entry) {
	n := len(entries)
	if n == 0 {
		return
	}
	tenants, targets := make([]uuid.UUID, n), make([]uuid.UUID, n)
	text := make([]string, 7*n)
	column := func(i int) []string { return text[i*n : (i+1)*n : (i+1)*n] }
	action, kind, actor, correlation, reason, before, after := column(0), column(1), column(2), column(3), column(4), column(5), column(6)
	for i, e := range entries {
		tenants[i], targets[i] = e.TenantID, e.TargetID
		action[i], actor[i], correlation[i], reason[i] = e.Action, e.Actor.ID, e.CorrelationID, e.Reason
		kind[i] = string(e.Actor.Kind)
		if kind[i] == "" {
			kind[i] = string(KindSystem)
		}
		before[i], after[i] = string(e.Before), string(e.After)
	}
	b.Queue(writeSQL, tenants, targets, action, kind, actor, correlation, reason, before, after)
}
