package metered

import (
	"context"
	"fmt"
	"time"
)

// purgeLedgerSQL asks the clock once, so that it bounds the index. With the last of a scope's entries goes its row: with
// nothing in any window it says what a scope without a row says.
const purgeLedgerSQL = `
WITH cut AS MATERIALIZED (
    SELECT clock_timestamp() - $1::interval AS at
), old AS MATERIALIZED (
    SELECT tenant_id, scope, recorded_at
    FROM budget_ledger
    WHERE recorded_at < (SELECT at FROM cut)
    ORDER BY recorded_at
    LIMIT $2
    FOR UPDATE SKIP LOCKED
), deleted AS (
    DELETE FROM budget_ledger l
    USING old
    WHERE l.tenant_id = old.tenant_id AND l.scope = old.scope AND l.recorded_at = old.recorded_at
    RETURNING l.tenant_id, l.scope
), idle AS MATERIALIZED (
    SELECT s.tenant_id, s.scope
    FROM (SELECT DISTINCT tenant_id, scope FROM deleted) AS touched
    JOIN budget_scopes s USING (tenant_id, scope)
    WHERE s.last_at < (SELECT at FROM cut)
    FOR UPDATE OF s SKIP LOCKED
), removed AS (
    DELETE FROM budget_scopes s
    USING idle
    WHERE s.tenant_id = idle.tenant_id AND s.scope = idle.scope
)
SELECT count(*) FROM deleted`

// Purge deletes up to limit entries, of all tenants, that were recorded longer ago than retention and than any window can
// reach back, the oldest first, and the scopes that nothing was reserved in since; it says how many entries. What was
// reserved by a purged entry can no longer be settled. Several may run at once.
func (l *BudgetLedger) Purge(ctx context.Context, retention time.Duration, limit int) (purged int64, err error) {
	least := l.windowMax + l.windowMax/parts + time.Second
	if err := l.db.QueryRow(ctx, purgeLedgerSQL, max(retention, least), limit).Scan(&purged); err != nil {
		return 0, fmt.Errorf("purge the ledger: %w", err)
	}
	return purged, nil
}
