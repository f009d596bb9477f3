package verify

// Every hold of a variant counts in its "reserved" until the hold ends, whether
// the hold is due or not and whether the variant is tracked or not.
const stockReservedSQL = `
SELECT tenant_id, variant_id, s.reserved, held.quantity AS held
FROM inventory_stocks AS s
FULL JOIN (
    SELECT r.tenant_id, r.resource_key AS variant_id, sum(r.quantity) AS quantity
    FROM reservations AS r
    WHERE r.resource_kind = 'inventory.variant' AND r.status = 'held'
    GROUP BY r.tenant_id, r.resource_key
) AS held USING (tenant_id, variant_id)
WHERE s.reserved IS NULL OR s.reserved <> coalesce(held.quantity, 0)`

const stockBoundsSQL = `
SELECT s.tenant_id, s.variant_id, s.stock, s.reserved, s.tracked, s.backorder
FROM inventory_stocks AS s
WHERE s.reserved < 0 OR (s.reserved > s.stock AND s.tracked AND NOT s.backorder)`

// Changes of a stock and commits of its holds draw their audit ids under the
// lock of the stock's row, so their ids have the order of events. The check
// leaves out variants whose last change may be pruned, and variants that no
// verb has set.
const stockAccountedSQL = `
WITH last AS MATERIALIZED (
    SELECT DISTINCT ON (a.tenant_id, a.target_id)
           a.tenant_id, a.after->>'variant_id' AS variant_id, a.audit_id, a.created_at, (a.after->>'stock')::bigint AS stock
    FROM audit_log AS a
    WHERE a.action IN ('stock.set', 'stock.adjusted')
    ORDER BY a.tenant_id, a.target_id, a.audit_id DESC
), sold AS MATERIALIZED (
    SELECT last.tenant_id, last.variant_id, sum((a.after->>'quantity')::bigint) AS quantity
    FROM last
    JOIN audit_log AS a ON a.tenant_id = last.tenant_id AND a.after->>'resource_key' = last.variant_id
                       AND a.audit_id > last.audit_id
    WHERE a.action = 'reservation.committed' AND a.after->>'resource_kind' = 'inventory.variant'
    GROUP BY last.tenant_id, last.variant_id
)
SELECT tenant_id, variant_id, s.stock, last.stock AS stock_as_last_changed, coalesce(sold.quantity, 0) AS committed_since
FROM last
LEFT JOIN sold USING (tenant_id, variant_id)
LEFT JOIN inventory_stocks AS s USING (tenant_id, variant_id)
WHERE last.created_at >= @since
  AND s.stock IS DISTINCT FROM last.stock - coalesce(sold.quantity, 0)`

var stockChecks = []check{
	{"stock_reserved", "Every variant's reserved is the sum of its holds.", stockReservedSQL},
	{"stock_bounds", "Reserved is between 0 and stock, unless the variant allows backorder or is not tracked.", stockBoundsSQL},
	{"stock_accounted", "A stock is what it was last set or adjusted to, less what was committed since.", stockAccountedSQL},
}
