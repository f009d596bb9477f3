package verify

// A done request without a reservation is right in one case: its variant was not tracked when it was decided. The
// stock's audit rows say when that was: each row's after holds until the next row, the first row's before until then, and
// the variant as it is now where no row is left. A change is seen by others a little after its audit row was written, when
// it commits; the margin at both ends of a period stands for that.
const doneHeldSQL = `
WITH lacking AS MATERIALIZED (
    SELECT r.tenant_id, r.request_id, r.kind, r.cart_id, r.variant_id, r.quantity, r.updated_at
    FROM reservation_requests AS r
    WHERE r.status = 'done' AND r.updated_at >= @since
      AND NOT EXISTS (
          SELECT FROM reservations AS h WHERE h.tenant_id = r.tenant_id AND h.reservation_id = r.request_id)
), change AS MATERIALIZED (
    SELECT a.tenant_id, a.after->>'variant_id' AS variant_id, a.created_at,
           (a.before->>'tracked')::boolean AS tracked_before, (a.after->>'tracked')::boolean AS tracked_after,
           lag(a.audit_id) OVER line IS NULL AS first, lead(a.created_at) OVER line AS until
    FROM audit_log AS a
    WHERE a.action IN ('stock.set', 'stock.adjusted')
    WINDOW line AS (PARTITION BY a.tenant_id, a.target_id ORDER BY a.audit_id)
), untracked AS MATERIALIZED (
    SELECT tenant_id, variant_id, created_at AS since, coalesce(until, 'infinity') AS until
    FROM change
    WHERE NOT tracked_after
    UNION ALL
    SELECT tenant_id, variant_id, '-infinity', created_at
    FROM change
    WHERE first AND NOT tracked_before
    UNION ALL
    SELECT s.tenant_id, s.variant_id, '-infinity', 'infinity'
    FROM inventory_stocks AS s
    WHERE NOT s.tracked
      AND NOT EXISTS (SELECT FROM change AS c WHERE c.tenant_id = s.tenant_id AND c.variant_id = s.variant_id)
)
SELECT l.*
FROM lacking AS l
WHERE NOT EXISTS (
    SELECT
    FROM untracked AS u
    WHERE u.tenant_id = l.tenant_id AND u.variant_id = l.variant_id
      AND l.updated_at BETWEEN u.since - @margin::interval AND u.until + @margin::interval)`

const holdMatchesSQL = `
SELECT r.tenant_id, r.request_id, r.status, r.reason, r.cart_id, r.variant_id, r.quantity,
       h.resource_kind, h.holder_id, h.resource_key, h.quantity AS quantity_held
FROM reservation_requests AS r
JOIN reservations AS h ON h.tenant_id = r.tenant_id AND h.reservation_id = r.request_id
WHERE r.status <> 'done' OR h.resource_kind <> 'inventory.variant' OR h.holder_id <> r.cart_id
   OR h.resource_key <> r.variant_id OR h.quantity <> r.quantity`

const holdHasRequestSQL = `
SELECT h.tenant_id, h.reservation_id, h.holder_id, h.resource_key, h.quantity, h.status, h.held_at
FROM reservations AS h
WHERE h.resource_kind = 'inventory.variant' AND h.held_at >= @since::timestamptz + @margin::interval
  AND NOT EXISTS (
      SELECT FROM reservation_requests AS r WHERE r.tenant_id = h.tenant_id AND r.request_id = h.reservation_id)`

// A hold that was due when the set was decided is left to expire and counts for nothing.
const setReplacedSQL = `
SELECT r.tenant_id, r.request_id, r.cart_id, r.variant_id, h.held_at, other.reservation_id AS left_held, other.ended_at
FROM reservation_requests AS r
JOIN reservations AS h ON h.tenant_id = r.tenant_id AND h.reservation_id = r.request_id
JOIN reservations AS other ON other.tenant_id = h.tenant_id AND other.holder_id = h.holder_id
                          AND other.resource_kind = h.resource_kind AND other.resource_key = h.resource_key
WHERE r.kind = 'set' AND r.status = 'done'
  AND other.held_at < h.held_at AND other.expires_at > h.held_at
  AND (other.ended_at IS NULL OR other.ended_at > h.held_at)`

const failedRecordedSQL = `
WITH record AS MATERIALIZED (
    SELECT a.tenant_id, a.target_id, count(*) AS rows, min(a.after->>'reason') AS reason
    FROM audit_log AS a
    WHERE a.action = 'request.failed'
    GROUP BY a.tenant_id, a.target_id
)
SELECT r.tenant_id, r.request_id, r.status, r.reason, r.updated_at, coalesce(record.rows, 0) AS audit_rows,
       record.reason AS audit_reason
FROM reservation_requests AS r
LEFT JOIN record ON record.tenant_id = r.tenant_id AND record.target_id = r.request_id
WHERE CASE
    WHEN r.status <> 'failed' THEN record.rows > 0
    WHEN r.updated_at >= @since THEN record.rows IS DISTINCT FROM 1 OR record.reason IS DISTINCT FROM r.reason
    ELSE record.rows > 1
END`

// An order can be proved only where the earlier request was certainly visible before the later one was written: a minute
// apart. A request that was decided alone (attempts), or not in the lane (cancelled, or done at admission), proves nothing
// about the ones before it.
const hotOrderSQL = `
WITH line AS MATERIALIZED (
    SELECT r.tenant_id, r.request_id, r.variant_id, r.sequence, r.status, r.attempts, r.created_at,
           CASE WHEN r.status IN ('done', 'failed') THEN r.updated_at ELSE 'infinity' END AS decided_at,
           min(r.updated_at) FILTER (
               WHERE r.attempts = 0 AND (h.reservation_id IS NOT NULL
                                         OR r.reason IN ('out_of_stock', 'limit_exceeded', 'unknown_variant'))
           ) OVER (
               PARTITION BY r.tenant_id, r.variant_id ORDER BY r.created_at
               RANGE BETWEEN @margin::interval FOLLOWING AND UNBOUNDED FOLLOWING
           ) AS later_decided_at
    FROM reservation_requests AS r
    LEFT JOIN reservations AS h ON h.tenant_id = r.tenant_id AND h.reservation_id = r.request_id
    WHERE r.lane = 'hot'
)
SELECT tenant_id, request_id, variant_id, sequence, status, created_at, decided_at, later_decided_at
FROM line
WHERE attempts = 0 AND decided_at > later_decided_at`

var requestChecks = []check{
	{"done_request_held", "Every done request has its reservation, unless its variant was not tracked when it was decided.", doneHeldSQL},
	{"hold_matches_request", "A request's reservation belongs to a done request and has its cart, variant and quantity.", holdMatchesSQL},
	{"hold_has_request", "Every reservation of a variant was made for a request.", holdHasRequestSQL},
	{"set_replaced", "A request that set a quantity left nothing else held of what its cart had of the variant.", setReplacedSQL},
	{"failed_request_recorded", "Every failed request has one audit row with its reason, and no other request has one.", failedRecordedSQL},
	{"hot_in_order", "Nobody in the hot lane was decided before somebody who came a minute earlier for the same variant.", hotOrderSQL},
}
