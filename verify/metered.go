package verify

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// meteredSQL is whether the tables of metered commands exist.
const meteredSQL = `SELECT to_regclass('budget_ledger') IS NOT NULL`

// A settlement is later than what it settles, and both are purged by age.
const settlesEntrySQL = `
SELECT s.tenant_id, s.scope, s.recorded_at, s.reserved_at, s.amount, l.amount AS reserved
FROM budget_ledger AS s
LEFT JOIN budget_ledger AS l ON l.tenant_id = s.tenant_id AND l.scope = s.scope AND l.recorded_at = s.reserved_at AND l.reserved_at IS NULL
WHERE s.reserved_at IS NOT NULL
  AND (s.amount + l.amount < 0
       OR l.amount IS NULL AND s.reserved_at > (SELECT min(oldest.recorded_at) FROM budget_ledger AS oldest) + interval '1 day')`

// A scope is purged only when nothing in it counts any more, and then its
// entries are older than a day.
const entryHasScopeSQL = `
SELECT l.tenant_id, l.scope, max(l.recorded_at) AS last_recorded_at, s.last_at
FROM budget_ledger AS l
LEFT JOIN budget_scopes AS s USING (tenant_id, scope)
GROUP BY l.tenant_id, l.scope, s.last_at
HAVING max(l.recorded_at) > coalesce(s.last_at, @now::timestamptz - interval '1 day')`

// A bucket counts the entries of its period, settlements in that of what they
// settle. Only the buckets within the window of the scope's last charge are
// complete: older ones may have been purged from the ledger.
const budgetCountedSQL = `
WITH bucket AS MATERIALIZED (
    SELECT s.tenant_id, s.scope, s.last_at, s.sums[n] AS seconds, s.sums[n] * 1000000 / 60 AS width,
           s.sums[n + 1] AS index, s.sums[n + 2] AS amount
    FROM budget_scopes AS s
    CROSS JOIN LATERAL generate_series(1, cardinality(s.sums) - 2, 3) AS n
), entry AS MATERIALIZED (
    SELECT l.tenant_id, l.scope, (extract(epoch FROM coalesce(l.reserved_at, l.recorded_at)) * 1000000)::bigint AS at, l.amount
    FROM budget_ledger AS l
), counted AS MATERIALIZED (
    SELECT w.tenant_id, w.scope, w.seconds, e.at / w.width AS index, sum(e.amount) AS amount
    FROM (SELECT DISTINCT tenant_id, scope, seconds, width FROM bucket) AS w
    JOIN entry AS e USING (tenant_id, scope)
    GROUP BY w.tenant_id, w.scope, w.seconds, e.at / w.width
)
SELECT tenant_id, scope, b.seconds, b.index, b.amount, counted.amount AS amount_of_entries
FROM bucket AS b
LEFT JOIN counted USING (tenant_id, scope, seconds, index)
WHERE b.index * b.width >= (extract(epoch FROM b.last_at) * 1000000)::bigint - b.seconds * 1000000
  AND b.amount <> coalesce(counted.amount, 0)`

var meteredTableChecks = []tableCheck{
	{name: "settlement_has_entry", meaning: "Every settlement of a budget belongs to an entry, and takes back no more than it.", sql: settlesEntrySQL},
	{name: "entry_has_scope", meaning: "Every entry of a budget belongs to a scope that has counted it.", sql: entryHasScopeSQL},
	{name: "budget_counted", meaning: "The sums of a budget's scope are those of its entries.", sql: budgetCountedSQL},
}

// meteredChecks are those of metered commands, none without their tables.
func meteredChecks(ctx context.Context, tx pgx.Tx) ([]tableCheck, error) {
	var exist bool
	if err := tx.QueryRow(ctx, meteredSQL).Scan(&exist); err != nil {
		return nil, fmt.Errorf("verify: look for the tables of metered commands: %w", err)
	}
	if !exist {
		return nil, nil
	}
	return meteredTableChecks, nil
}
