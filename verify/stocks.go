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
WHERE s.reserved IS NULL AND held.quantity > 0 OR s.reserved <> coalesce(held.quantity, 0)`

const stockBoundsSQL = `
SELECT s.tenant_id, s.variant_id, s.stock, s.reserved, s.tracked, s.backorder
FROM inventory_stocks AS s
WHERE s.reserved < 0 OR (s.reserved > s.stock + coalesce(s.preorder_max, 0) AND s.tracked AND NOT (s.backorder AND s.preorder_max IS NULL))`

// changedReservedSQL is stockReservedSQL for the variants whose holds or stocks
// the record has changed.
const changedReservedSQL = `
SELECT s.tenant_id, s.variant_id, s.reserved, held.quantity AS held
FROM (
    SELECT DISTINCT a.tenant_id, coalesce(a.resource_key, a.after->>'variant_id') AS variant_id
    FROM audit_log AS a
    WHERE a.audit_id > @after
      AND (a.action LIKE 'stock.%' OR (a.action LIKE 'reservation.%' AND a.resource_kind = 'inventory.variant'))
) AS changed
JOIN inventory_stocks AS s USING (tenant_id, variant_id)
CROSS JOIN LATERAL (
    SELECT coalesce(sum(r.quantity), 0) AS quantity
    FROM reservations AS r
    WHERE r.tenant_id = s.tenant_id AND r.resource_key = s.variant_id AND r.resource_kind = 'inventory.variant' AND r.status = 'held'
      AND r.quantity > 0 AND r.expires_at >= s.due_from
) AS held
WHERE s.reserved <> held.quantity`

// stockRecord selects the changes of stocks after an audit id, each with the
// previous one of the same stock. Changes of a stock and commits of its holds
// draw their audit ids under the lock of the stock's row, so their ids have the
// order of events: sold is how many units were committed up to a change.
const stockRecord = `
WITH event AS (
    SELECT a.tenant_id, a.audit_id, a.created_at, a.action LIKE 'stock.%' AS changed,
           coalesce(a.resource_key, a.after->>'variant_id') AS variant_id,
           a.before, a.after, coalesce(a.quantity, 0) AS quantity
    FROM audit_log AS a
    WHERE a.audit_id > @after
      AND (a.action IN ('stock.set', 'stock.adjusted', 'stock.deleted')
           OR (a.action = 'reservation.committed' AND a.resource_kind = 'inventory.variant'))
), counted AS MATERIALIZED (
    SELECT event.*, sum(quantity) OVER stock AS sold, sum(quantity) OVER (PARTITION BY tenant_id, variant_id) AS sold_until_now
    FROM event
    WINDOW stock AS (PARTITION BY tenant_id, variant_id ORDER BY audit_id)
), change AS MATERIALIZED (
    SELECT counted.*, lead(audit_id) OVER stock IS NULL AS last, lag(after) OVER stock AS previous,
           lag(sold) OVER stock AS sold_before, lag(created_at) OVER stock AS previous_at
    FROM counted
    WHERE changed
    WINDOW stock AS (PARTITION BY tenant_id, variant_id ORDER BY audit_id)
)`

// stockAccountedSQL leaves out variants whose last change may be pruned.
const stockAccountedSQL = stockRecord + `
SELECT tenant_id, variant_id, s.stock, (last.after->>'stock')::bigint AS stock_as_last_changed, last.sold_until_now - last.sold AS committed_since
FROM (SELECT * FROM change WHERE last) AS last
LEFT JOIN inventory_stocks AS s USING (tenant_id, variant_id)
WHERE last.created_at >= @since
  AND s.stock IS DISTINCT FROM (last.after->>'stock')::bigint - (last.sold_until_now - last.sold)`

// Every verb that makes a stock or gives a block its first units records it.
const stockRecordedSQL = `
SELECT s.tenant_id, s.variant_id, s.stock, s.units, s.created_at
FROM inventory_stocks AS s
LEFT JOIN (
    SELECT DISTINCT a.tenant_id, a.after->>'variant_id' AS variant_id
    FROM audit_log AS a
    WHERE a.action IN ('stock.set', 'stock.adjusted')
) AS record USING (tenant_id, variant_id)
WHERE record.variant_id IS NULL AND s.created_at >= @since::timestamptz + @margin::interval AND NOT (s.named_units AND s.units = 0)`

const stockChainedSQL = stockRecord + `
SELECT tenant_id, variant_id, audit_id, before, previous, sold - sold_before AS committed_between
FROM change
WHERE previous_at >= @since AND previous ? 'stock' -- else the stock was deleted before
  AND ((before->>'stock')::bigint IS DISTINCT FROM (previous->>'stock')::bigint - (sold - sold_before)
       OR before - 'stock' - 'reserved' IS DISTINCT FROM previous - 'stock' - 'reserved')`

// A block's record has no field that an import could change, except its stock.
const stockSettingsSQL = `
SELECT s.tenant_id, s.variant_id, s.tracked, s.backorder, s.hold_ttl_seconds, s.max_per_cart, s.lane, s.admission, last.after
FROM (
    SELECT DISTINCT ON (a.tenant_id, a.target_id) a.tenant_id, a.after->>'variant_id' AS variant_id, a.after
    FROM audit_log AS a
    WHERE a.audit_id > @after AND a.action IN ('stock.set', 'stock.adjusted')
    ORDER BY a.tenant_id, a.target_id, a.audit_id DESC
) AS last
JOIN inventory_stocks AS s USING (tenant_id, variant_id)
WHERE ((last.after->>'tracked')::boolean, (last.after->>'backorder')::boolean, (last.after->>'hold_ttl_seconds')::integer,
       (last.after->>'max_per_cart')::integer, last.after->>'lane', last.after->>'admission', (last.after->>'preorder_max')::bigint, last.after->'sale')
      IS DISTINCT FROM (s.tracked, s.backorder, s.hold_ttl_seconds, s.max_per_cart, s.lane, s.admission, s.preorder_max, s.sale)`

// What is left of an allotment is held until its end. What carts hold from it is
// not more than was taken.
const allotmentHeldSQL = `
SELECT a.tenant_id, a.variant_id, a.allotment_id, a.quantity, a.expires_at, rest.status, rest.quantity AS left, taken.held
FROM allotments AS a
LEFT JOIN reservations AS rest ON rest.tenant_id = a.tenant_id AND rest.reservation_id = a.reservation_id
CROSS JOIN LATERAL (
    SELECT coalesce(sum(r.quantity), 0) AS held
    FROM reservations AS r
    WHERE r.tenant_id = a.tenant_id AND r.resource_key = a.variant_id AND r.resource_kind = 'inventory.variant' AND r.status = 'held'
      AND r.quantity > 0 AND r.allotment_id = a.allotment_id AND r.holder_id <> '/'
) AS taken
WHERE a.expires_at > @now::timestamptz + @margin::interval
  AND (rest.status = 'held' AND rest.holder_id = '/' AND rest.resource_key = a.variant_id AND rest.allotment_id = a.allotment_id
       AND rest.expires_at = a.expires_at AND rest.quantity BETWEEN 0 AND a.quantity - taken.held) IS NOT TRUE
UNION ALL
SELECT r.tenant_id, r.resource_key, r.allotment_id, r.quantity, r.expires_at, r.status, r.quantity, NULL
FROM reservations AS r
WHERE r.resource_kind = 'inventory.variant' AND r.status = 'held' AND r.holder_id = '/' AND r.expires_at > @now::timestamptz + @margin::interval
  AND NOT EXISTS (SELECT FROM allotments AS a WHERE a.tenant_id = r.tenant_id AND a.reservation_id = r.reservation_id)`

// A group may have been made by a change that set no limit, or its last change may
// be pruned.
const groupRecordedSQL = `
SELECT g.tenant_id, g.group_id, g.max_per_customer, g.customer_period_seconds, last.after
FROM stock_groups AS g
LEFT JOIN (
    SELECT DISTINCT ON (a.tenant_id, a.target_id) a.tenant_id, a.after
    FROM audit_log AS a
    WHERE a.action = 'group.set'
    ORDER BY a.tenant_id, a.target_id, a.audit_id DESC
) AS last ON last.tenant_id = g.tenant_id AND last.after->>'group' = g.group_id
WHERE CASE
    WHEN last.after IS NULL THEN g.max_per_customer IS NOT NULL AND g.created_at >= @since::timestamptz + @margin::interval
    ELSE ((last.after->>'max_per_customer')::integer, (last.after->>'customer_period_seconds')::integer)
         IS DISTINCT FROM (g.max_per_customer, g.customer_period_seconds)
END`

var stockChecks = []tableCheck{
	{name: "stock_reserved", meaning: "Every variant's reserved is the sum of its holds.", sql: stockReservedSQL, changedSQL: changedReservedSQL},
	{name: "stock_bounds", meaning: "Reserved is between 0 and stock, unless the variant allows backorder or is not tracked.", sql: stockBoundsSQL, changed: true},
	{name: "stock_accounted", meaning: "A stock is what it was last set or adjusted to, less what was committed since.", sql: stockAccountedSQL, changed: true},
	{name: "stock_recorded", meaning: "Every stock has an audit row that made it.", sql: stockRecordedSQL},
	{name: "stock_chained", meaning: "Each change of a stock starts from what the previous one left, less what was committed between them.", sql: stockChainedSQL, changed: true},
	{name: "allotment_held", meaning: "What is left of every allotment is held until its end, and carts hold no more than was taken from it.", sql: allotmentHeldSQL},
	{name: "group_recorded", meaning: "The limit of every group is the one that its last audit row recorded.", sql: groupRecordedSQL},
	{name: "stock_settings", meaning: "A stock's settings are those that its last audit row recorded.", sql: stockSettingsSQL, changed: true},
}
