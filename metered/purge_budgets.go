package metered

import (
	"context"
	"fmt"
	"time"
)

// least is what no purge may touch: a window of the greatest length reaches back that far.
func (l *BudgetLedger) least() time.Duration { return l.windowMax + l.windowMax/parts + time.Second }

// purgeLedgerSQL asks the clock once, so that it bounds the index.
const purgeLedgerSQL = `
WITH old AS MATERIALIZED (
    SELECT tenant_id, scope, recorded_at
    FROM budget_ledger
    WHERE recorded_at < (SELECT clock_timestamp()) - $1::interval
    ORDER BY recorded_at
    LIMIT $2
    FOR UPDATE SKIP LOCKED
)
DELETE FROM budget_ledger l
USING old
WHERE l.tenant_id = old.tenant_id AND l.scope = old.scope AND l.recorded_at = old.recorded_at`

// Purge deletes up to limit entries, of all tenants, that were recorded longer ago than retention and than any window can
// reach back, the oldest first, and says how many. What was reserved by a purged entry can no longer be settled. Several
// may run at once.
func (l *BudgetLedger) Purge(ctx context.Context, retention time.Duration, limit int) (int64, error) {
	tag, err := l.db.Exec(ctx, purgeLedgerSQL, max(retention, l.least()), limit)
	if err != nil {
		return 0, fmt.Errorf("purge the ledger: %w", err)
	}
	return tag.RowsAffected(), nil
}

// purgeScopesSQL compares the clock with rows, not with an index: last_at has none, so that counting stays cheap.
const purgeScopesSQL = `
WITH piece AS MATERIALIZED (
    SELECT s.tenant_id, s.scope, s.last_at < (SELECT clock_timestamp()) - $4::interval AS idle
    FROM budget_scopes s
    WHERE (s.tenant_id, s.scope) > ($1, $2)
    ORDER BY s.tenant_id, s.scope
    LIMIT $3
), idle AS MATERIALIZED (
    SELECT s.tenant_id, s.scope
    FROM piece
    JOIN budget_scopes s USING (tenant_id, scope)
    WHERE piece.idle AND s.last_at < (SELECT clock_timestamp()) - $4::interval
    FOR UPDATE OF s SKIP LOCKED
), deleted AS (
    DELETE FROM budget_scopes s
    USING idle
    WHERE s.tenant_id = idle.tenant_id AND s.scope = idle.scope
    RETURNING s.scope
)
SELECT p.tenant_id, p.scope, (SELECT count(*) FROM deleted) AS deleted, (SELECT count(*) FROM piece) AS looked
FROM piece p
ORDER BY p.tenant_id DESC, p.scope DESC
LIMIT 1`

// PurgeScopes looks at up to limit scopes behind a position, of all tenants, and deletes those that nothing was charged
// in for longer than any window reaches back: they say what a scope without a row says. Several may run at once.
func (l *BudgetLedger) PurgeScopes(ctx context.Context, after ScopePosition, limit int) (PurgedScopes, error) {
	return purgeIdle(ctx, l.db, "scopes", purgeScopesSQL, after, limit, l.least())
}
