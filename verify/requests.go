package verify

// A done request lacks a reservation in one case only: its variant was not
// tracked when the request was decided. The audit rows of the stock show when a
// variant was tracked. Each row's "after" applies until the next row, and the
// first row's "before" until the first row. Without any row the stock's present
// value applies. Other transactions see a change when it commits, shortly after
// its audit row was written, so each period is widened by the margin.
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

// A hold that was due when the set was decided expires later and does not
// count. A hold recorded after the set's own hold is later, even if its times
// are earlier, because the clock may have been set back in between.
const setReplacedSQL = `
SELECT r.tenant_id, r.request_id, r.cart_id, r.variant_id, h.held_at, other.reservation_id AS left_held, other.ended_at
FROM reservation_requests AS r
JOIN reservations AS h ON h.tenant_id = r.tenant_id AND h.reservation_id = r.request_id
JOIN reservations AS other ON other.tenant_id = h.tenant_id AND other.holder_id = h.holder_id
                          AND other.resource_kind = h.resource_kind AND other.resource_key = h.resource_key
WHERE r.kind = 'set' AND r.status = 'done'
  AND other.held_at < h.held_at AND other.expires_at > h.held_at
  AND (other.ended_at IS NULL OR other.ended_at > h.held_at)
  AND (
      (SELECT min(a.audit_id) FROM audit_log AS a
       WHERE a.tenant_id = other.tenant_id AND a.target_id = other.reservation_id AND a.action = 'reservation.held')
      > (SELECT min(a.audit_id) FROM audit_log AS a
         WHERE a.tenant_id = h.tenant_id AND a.target_id = h.reservation_id AND a.action = 'reservation.held')
  ) IS NOT TRUE`

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

// A retry is recorded in the transaction that admits it. The failed request may
// have been pruned before that.
const retryRecordedSQL = `
WITH record AS MATERIALIZED (
    SELECT a.tenant_id, a.target_id, a.after->>'retried_by' AS retried_by, count(*) AS rows
    FROM audit_log AS a
    WHERE a.action = 'request.retried'
    GROUP BY a.tenant_id, a.target_id, a.after->>'retried_by'
)
SELECT r.tenant_id, r.request_id, r.retry_of, r.created_at, coalesce(record.rows, 0) AS audit_rows
FROM reservation_requests AS r
JOIN reservation_requests AS failed ON failed.tenant_id = r.tenant_id AND failed.request_id = r.retry_of
LEFT JOIN record ON record.tenant_id = r.tenant_id AND record.target_id = r.retry_of AND record.retried_by = r.request_id::text
WHERE CASE WHEN r.created_at >= @since THEN record.rows IS DISTINCT FROM 1 ELSE record.rows > 1 END`

// Requests arrive in the order of their sequence. They are decided in the order
// of their audit rows, which are written under the slot's lock. Neither order
// depends on the clock. Times are needed only to decide whether the earlier
// request was visible before the later one was written. It was if they are a
// minute apart. arrived_at never runs backwards, even if the clock does. Until
// the clock has caught up, no order can be proved.
//
// A drain writes its holds before its rejections. So all requests that one
// drain decided about a variant (they share updated_at) count as decided
// together, by the first of their audit rows. A request that was decided in
// isolated retry (attempts), or outside the lane (cancelled, or done at
// admission), proves nothing about the requests before it.
const hotOrderSQL = `
WITH record AS MATERIALIZED (
    SELECT a.tenant_id, a.target_id, min(a.audit_id) AS audit_id
    FROM audit_log AS a
    WHERE a.action IN ('reservation.held', 'request.failed')
    GROUP BY a.tenant_id, a.target_id
), arrival AS MATERIALIZED (
    SELECT r.tenant_id, r.request_id, r.variant_id, r.sequence, r.status, r.attempts, r.created_at, r.updated_at,
           max(r.created_at) OVER (PARTITION BY r.tenant_id, r.variant_id ORDER BY r.sequence) AS arrived_at,
           CASE
               WHEN r.status IN ('done', 'failed') THEN
                   min(record.audit_id) OVER (PARTITION BY r.tenant_id, r.variant_id, r.updated_at, r.status IN ('done', 'failed'))
               ELSE 9223372036854775807
           END AS decided,
           r.attempts = 0 AND record.audit_id IS NOT NULL
           AND (r.status = 'done' OR r.reason IN ('out_of_stock', 'limit_exceeded', 'unknown_variant')) AS in_lane
    FROM reservation_requests AS r
    LEFT JOIN record ON record.tenant_id = r.tenant_id AND record.target_id = r.request_id
    WHERE r.lane = 'hot'
), line AS MATERIALIZED (
    SELECT a.tenant_id, a.request_id, a.variant_id, a.sequence, a.status, a.attempts, a.created_at, a.updated_at, a.decided,
           min(a.decided) FILTER (WHERE a.in_lane) OVER (
               PARTITION BY a.tenant_id, a.variant_id ORDER BY a.arrived_at
               RANGE BETWEEN @margin::interval FOLLOWING AND UNBOUNDED FOLLOWING
           ) AS later_decided
    FROM arrival AS a
)
SELECT tenant_id, request_id, variant_id, sequence, status, created_at, updated_at,
       nullif(decided, 9223372036854775807) AS audit_id, later_decided AS later_audit_id
FROM line
WHERE attempts = 0 AND decided > later_decided`

var requestChecks = []check{
	{"done_request_held", "Every done request has its reservation, unless its variant was not tracked when it was decided.", doneHeldSQL},
	{"hold_matches_request", "A request's reservation belongs to a done request and has its cart, variant and quantity.", holdMatchesSQL},
	{"hold_has_request", "Every reservation of a variant was made for a request.", holdHasRequestSQL},
	{"set_replaced", "A request that set a quantity left its cart no other hold of the variant.", setReplacedSQL},
	{"failed_request_recorded", "Every failed request has one audit row with its reason, and no other request has one.", failedRecordedSQL},
	{"retry_recorded", "Every retry of a failed request has one audit row of that request.", retryRecordedSQL},
	{"hot_in_order", "No request in the hot lane was decided before one that came a minute earlier for the same variant.", hotOrderSQL},
}
