package verify

const oneHoldSQL = `
WITH record AS MATERIALIZED (
    SELECT a.tenant_id, a.target_id, count(*) AS rows
    FROM audit_log AS a
    WHERE a.action = 'reservation.held'
    GROUP BY a.tenant_id, a.target_id
)
SELECT r.tenant_id, r.reservation_id, r.status, r.held_at, coalesce(record.rows, 0) AS held_rows
FROM reservations AS r
LEFT JOIN record ON record.tenant_id = r.tenant_id AND record.target_id = r.reservation_id
WHERE CASE WHEN r.held_at >= @since THEN record.rows IS DISTINCT FROM 1 ELSE record.rows > 1 END`

const oneEndingSQL = `
WITH record AS MATERIALIZED (
    SELECT a.tenant_id, a.target_id, count(*) AS rows, min(a.action) AS action
    FROM audit_log AS a
    WHERE a.action IN ('reservation.committed', 'reservation.released', 'reservation.expired')
    GROUP BY a.tenant_id, a.target_id
)
SELECT r.tenant_id, r.reservation_id, r.status, r.ended_at, coalesce(record.rows, 0) AS ending_rows, record.action
FROM reservations AS r
LEFT JOIN record ON record.tenant_id = r.tenant_id AND record.target_id = r.reservation_id
WHERE CASE
    WHEN r.status = 'held' THEN record.rows > 0
    WHEN r.ended_at >= @since THEN record.rows IS DISTINCT FROM 1 OR record.action <> 'reservation.' || r.status
    ELSE record.rows > 1
END`

// The record has deadlines as text in nanoseconds, the row in microseconds.
const recordAgreesSQL = `
WITH last AS MATERIALIZED (
    SELECT DISTINCT ON (a.tenant_id, a.target_id) a.tenant_id, a.target_id, a.audit_id, a.action, a.after
    FROM audit_log AS a
    WHERE a.action LIKE 'reservation.%'
    ORDER BY a.tenant_id, a.target_id, a.audit_id DESC
)
SELECT r.tenant_id, r.reservation_id, r.status, r.release_reason, r.resource_kind, r.resource_key, r.holder_id,
       r.quantity, r.expires_at, last.audit_id, last.action, last.after
FROM reservations AS r
JOIN last ON last.tenant_id = r.tenant_id AND last.target_id = r.reservation_id
WHERE (last.after->>'status', last.after->>'resource_kind', last.after->>'resource_key', last.after->>'holder_id',
       last.after->>'quantity', last.after->>'release_reason')
      IS DISTINCT FROM (r.status, r.resource_kind, r.resource_key, r.holder_id, r.quantity::text, r.release_reason)
   OR (last.after->>'expires_at')::timestamptz
      NOT BETWEEN r.expires_at - interval '2 microseconds' AND r.expires_at + interval '2 microseconds'
   OR last.after->>'expires_at' IS NULL`

const recordChainedSQL = `
WITH record AS MATERIALIZED (
    SELECT a.tenant_id, a.target_id, a.audit_id, a.action, a.before, a.after, lag(a.after) OVER line AS left_by_last
    FROM audit_log AS a
    WHERE a.action LIKE 'reservation.%'
    WINDOW line AS (PARTITION BY a.tenant_id, a.target_id ORDER BY a.audit_id)
)
SELECT tenant_id, target_id, audit_id, action, before, after, left_by_last
FROM record
WHERE (left_by_last IS NOT NULL AND before IS DISTINCT FROM left_by_last)
   OR (before IS NULL) <> (action = 'reservation.held')
   OR before->>'status' <> 'held'
   OR after->>'status' IS DISTINCT FROM
      CASE action WHEN 'reservation.extended' THEN 'held' ELSE substr(action, length('reservation.') + 1) END`

const recordHasTargetSQL = `
SELECT a.tenant_id, a.target_id, a.audit_id, a.action, a.created_at
FROM audit_log AS a
WHERE a.created_at >= @since::timestamptz + @margin::interval
  AND CASE
      WHEN a.action LIKE 'reservation.%' THEN NOT EXISTS (
          SELECT FROM reservations AS r WHERE r.tenant_id = a.tenant_id AND r.reservation_id = a.target_id)
      WHEN a.action = 'request.retried' THEN NOT EXISTS (
          SELECT FROM reservation_requests AS r
          WHERE r.tenant_id = a.tenant_id AND r.request_id = (a.after->>'retried_by')::uuid AND r.retry_of = a.target_id)
      WHEN a.action LIKE 'request.%' THEN NOT EXISTS (
          SELECT FROM reservation_requests AS r WHERE r.tenant_id = a.tenant_id AND r.request_id = a.target_id)
      ELSE false
  END`

var recordChecks = []check{
	{"hold_recorded_once", "Every reservation has one audit row of its hold.", oneHoldSQL},
	{"one_ending", "Every reservation that ended has one audit row of its ending, and a held one has no such row.", oneEndingSQL},
	{"record_agrees", "A reservation has the state that its last audit row recorded.", recordAgreesSQL},
	{"record_chained", "Each audit row of a reservation starts from the state that the previous one recorded, and changes it as its action requires.", recordChainedSQL},
	{"record_has_target", "Every audit row of a reservation or a request belongs to one that exists.", recordHasTargetSQL},
}
