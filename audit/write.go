package audit

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/internal/horizon"
	"github.com/holdfast/holdfast/internal/unnest"
)

// writeSQL gives the transaction its id before it draws the first audit_id, which is what the tail's marks rest on. A
// column that is the same for all comes once; target_id never does.
const writeSQL = `
INSERT INTO audit_log (tenant_id, target_id, action, actor_kind, actor_id, correlation_id, reason, before, after)
SELECT coalesce(e.tenant_id, ($1::uuid[])[1]), e.target_id, coalesce(e.action, ($3::text[])[1]),
       coalesce(e.actor_kind, ($4::text[])[1]), nullif(coalesce(e.actor_id, ($5::text[])[1]), ''),
       nullif(coalesce(e.correlation_id, ($6::text[])[1]), ''), nullif(coalesce(e.reason, ($7::text[])[1]), ''),
       nullif(coalesce(e.before, ($8::text[])[1]), '')::jsonb, coalesce(e.after, ($9::text[])[1])::jsonb
FROM unnest($1::uuid[], $2::uuid[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[], $9::text[])
     AS e (tenant_id, target_id, action, actor_kind, actor_id, correlation_id, reason, before, after)
WHERE ` + horizon.Own + ` IS NOT NULL`

// WriteTx records the entries in tx, in their order. The caller holds the lock of every target's row. It reads nothing, so
// it is right at every isolation level.
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
	tenants, targets := make([][16]byte, n), make([][16]byte, n)
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
	b.Queue(writeSQL, unnest.Once(tenants), targets, unnest.Once(action), unnest.Once(kind), unnest.Once(actor),
		unnest.Once(correlation), unnest.Once(reason), unnest.Once(before), unnest.Once(after))
}
