package verify

const sequenceOnceSQL = `
SELECT r.sequence, count(*) AS requests
FROM reservation_requests AS r
GROUP BY r.sequence, CASE WHEN r.tenant_id = ANY (@arrived::uuid[]) THEN r.tenant_id END
HAVING count(*) > 1`

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
    WHERE r.status = 'done' AND r.kind <> 'lines' AND r.updated_at >= @since
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

const holdMatches = `q.request_id IS NOT NULL AND r.reservation_id IS NOT NULL AND (
        q.status <> 'done' OR r.resource_kind <> 'inventory.variant' OR a.held_rows > 0 AND a.moved_rows = 0 AND r.holder_id <> q.cart_id OR r.resource_key <> q.variant_id
        OR CASE WHEN a.held_rows > 0 THEN r.quantity + coalesce(a.reduced_by, 0) <> q.quantity ELSE r.quantity > q.quantity END
        OR r.kit_id IS DISTINCT FROM q.kit_id
        OR r.held_at NOT BETWEEN q.updated_at - @margin::interval AND q.updated_at + @margin::interval)`

const holdHasRequest = `r.resource_kind = 'inventory.variant' AND r.held_at >= @since::timestamptz + @margin::interval AND q.request_id IS NULL AND r.part_of IS NULL
        AND (r.holder_id <> '/' OR r.allotment_id IS NULL)`

// A hold that was due when the set was decided expires later and does not
// count. A hold recorded after the set's own hold is later, even if its times
// are earlier, because the clock may have been set back in between.
const setReplaced = `CASE WHEN q.kind = 'set' AND q.status = 'done' AND a.moved_rows = 0 THEN (
        SELECT count(*)
        FROM reservations AS other
        WHERE same_holder(other.tenant_id, other.holder_id, r.tenant_id, r.holder_id) AND same_key(other.resource_key, r.resource_key)
          AND other.resource_kind = r.resource_kind
          AND rtrim(coalesce(other.allotment_id, ''), E'\x1f') = rtrim(coalesce(r.allotment_id, ''), E'\x1f')
          AND other.held_at < r.held_at AND other.expires_at > r.held_at
          AND (other.ended_at IS NULL OR other.ended_at > r.held_at)
          AND (
              (SELECT min(held.audit_id) FROM audit_log AS held
               WHERE held.tenant_id = other.tenant_id AND held.target_id = other.reservation_id AND held.action = 'reservation.held')
              > a.held_id
          ) IS NOT TRUE
          AND (SELECT count(*) FROM audit_log AS moved
               WHERE moved.tenant_id = other.tenant_id AND moved.target_id = other.reservation_id AND moved.action = 'reservation.moved') = 0) > 0 END`

const failedRecorded = `q.request_id IS NOT NULL AND CASE
        WHEN q.status <> 'failed' THEN a.failed_rows > 0
        WHEN q.updated_at >= @since THEN a.failed_rows IS DISTINCT FROM 1
        ELSE a.failed_rows > 1
    END
        OR q.status = 'failed' AND a.failure IS NOT NULL AND (
            a.failure->>'reason' IS DISTINCT FROM q.reason OR a.failure->>'cart_id' IS DISTINCT FROM q.cart_id
            OR a.failure->>'variant_id' IS DISTINCT FROM q.variant_id OR (a.failure->>'quantity')::bigint IS DISTINCT FROM q.quantity
            OR q.updated_at NOT BETWEEN a.request_recorded_at - @margin::interval AND a.request_recorded_at + @margin::interval)`

// A retry is recorded in the transaction that admits it. The failed request may
// have been pruned before that.
const retryRecorded = `CASE WHEN q.retry_of IS NOT NULL THEN
        (SELECT count(*) FROM reservation_requests AS failed WHERE failed.tenant_id = q.tenant_id AND failed.request_id = q.retry_of) > 0
        AND (SELECT CASE WHEN q.created_at >= @since THEN count(*) <> 1 ELSE count(*) > 1 END
             FROM audit_log AS retried
             WHERE retried.tenant_id = q.tenant_id AND retried.target_id = q.retry_of AND retried.action = 'request.retried'
               AND retried.after->>'retried_by' = q.request_id::text) END`

// Claims last for seconds or minutes, and a lane takes over a request whose
// claim has lapsed, once it runs again. An hour is far more than either needs.
//
// A request of several lines has no claim while parts of it are queued.
const claimEnds = `(q.status = 'processing' AND coalesce(q.open_parts, 0) = 0) <> (q.claim_expires_at IS NOT NULL)
        OR q.claim_expires_at NOT BETWEEN least(@now::timestamptz - interval '1 hour', @worked::timestamptz) AND @latest::timestamptz + interval '1 hour'`

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
// admission), proves nothing about the requests before it. One that may wait in
// line can be decided much later.
const hotOrderSQL = `
WITH record AS (
    SELECT a.tenant_id, a.target_id, a.audit_id
    FROM audit_log AS a
    WHERE a.action IN ('reservation.held', 'request.failed')
), arrival AS MATERIALIZED (
    SELECT r.tenant_id, r.request_id, r.variant_id, r.sequence, r.kind, r.status, r.attempts, r.created_at, r.updated_at,
           max(r.created_at) OVER (PARTITION BY r.tenant_id, r.variant_id ORDER BY r.sequence) AS arrived_at,
           CASE
               WHEN r.status IN ('done', 'failed') THEN
                   min(record.audit_id) OVER (PARTITION BY r.tenant_id, r.variant_id, r.updated_at, r.status IN ('done', 'failed'))
               ELSE 9223372036854775807
           END AS decided,
           r.attempts = 0 AND record.audit_id IS NOT NULL
           AND (r.status = 'done' OR r.reason IN ('out_of_stock', 'limit_exceeded', 'part_of_kit', 'not_on_sale', 'quantity_not_allowed', 'unknown_variant', 'unknown_kit', 'unknown_allotment')) AS in_lane
    FROM reservation_requests AS r
    LEFT JOIN record ON record.tenant_id = r.tenant_id AND record.target_id = r.request_id
    WHERE r.lane = 'hot'
), line AS MATERIALIZED (
    SELECT a.tenant_id, a.request_id, a.variant_id, a.sequence, a.kind, a.status, a.attempts, a.created_at, a.updated_at, a.decided,
           min(a.decided) FILTER (WHERE a.in_lane) OVER (
               PARTITION BY a.tenant_id, a.variant_id ORDER BY a.arrived_at
               RANGE BETWEEN @margin::interval FOLLOWING AND UNBOUNDED FOLLOWING
           ) AS later_decided
    FROM arrival AS a
)
SELECT tenant_id, request_id, variant_id, sequence, status, created_at, updated_at,
       nullif(decided, 9223372036854775807) AS audit_id, later_decided AS later_audit_id
FROM line
WHERE attempts = 0 AND kind <> 'wait' AND decided > later_decided`

// Parts are inserted after their request, so none of a request that is checked
// has been pruned. A done line that is not partial has parts for all its units;
// one for a variant that is not tracked has no reservation.
const linesCompleteSQL = `
SELECT r.tenant_id, r.request_id, r.status, r.open_parts, parts.open, parts.held, parts.done
FROM reservation_requests AS r
CROSS JOIN LATERAL (
    SELECT count(*) FILTER (WHERE p.status IN ('queued', 'processing')) AS open, count(*) FILTER (WHERE h.status = 'held') AS held,
           count(*) FILTER (WHERE p.status = 'done') AS done, count(*) FILTER (WHERE p.cart_id <> r.cart_id) AS foreign
    FROM reservation_requests AS p
    LEFT JOIN reservations AS h ON h.tenant_id = p.tenant_id AND h.reservation_id = p.request_id
    WHERE p.tenant_id = r.tenant_id AND p.parent_id = r.request_id
) AS parts
WHERE r.kind = 'lines' AND r.created_at >= @since
  AND (parts.open <> CASE WHEN r.status = 'processing' THEN coalesce(r.open_parts, 0) ELSE 0 END OR parts.foreign > 0
       OR r.status = 'failed' AND parts.held > 0
       OR r.status = 'done' AND (parts.done = 0 OR (r.lines->>'partial')::boolean IS NOT TRUE AND EXISTS (
           SELECT
           FROM jsonb_array_elements(r.lines->'lines') WITH ORDINALITY AS line (value, place)
           CROSS JOIN LATERAL (
               SELECT NULL AS variant_id, (line.value->>'quantity')::bigint AS quantity
               WHERE NOT line.value ? 'kit_id'
               UNION ALL
               SELECT part.variant_id, part.quantity * (line.value->>'quantity')::bigint
               FROM jsonb_to_recordset(line.value->'parts') AS part (variant_id text, quantity bigint)
           ) AS needed
           WHERE needed.quantity > (
               SELECT coalesce(sum(CASE WHEN h.reservation_id IS NULL THEN 1000000 ELSE p.quantity END), 0)
               FROM reservation_requests AS p
               LEFT JOIN reservations AS h ON h.tenant_id = p.tenant_id AND h.reservation_id = p.request_id
               WHERE p.tenant_id = r.tenant_id AND p.parent_id = r.request_id AND p.line = line.place - 1 AND p.status = 'done'
                 AND (needed.variant_id IS NULL OR p.variant_id = needed.variant_id)))))`

// The parts of one line of a done request are in whole kits, the same number of
// each part, and are released together. A part of no kit is held alone. Parts
// expire by the deadlines of their variants. A part that is not tracked has no
// reservation.
const kitWholeSQL = `
SELECT r.tenant_id, r.request_id, line.place - 1 AS line, line.value->>'kit_id' AS kit_id, kits.least, kits.most, kits.held, kits.released
FROM reservation_requests AS r
CROSS JOIN LATERAL jsonb_array_elements(r.lines->'lines') WITH ORDINALITY AS line (value, place)
CROSS JOIN LATERAL (
    SELECT min(coalesce(p.quantity, 0)::numeric / part.quantity) AS least, max(coalesce(p.quantity, 0)::numeric / part.quantity) AS most,
           count(*) FILTER (WHERE h.status = 'held') AS held,
           count(*) FILTER (WHERE h.status = 'released') AS released,
           count(*) FILTER (WHERE h.release_reason = 'incomplete') AS incomplete
    FROM jsonb_to_recordset(line.value->'parts') AS part (variant_id text, quantity bigint)
    LEFT JOIN reservation_requests AS p ON p.tenant_id = r.tenant_id AND p.parent_id = r.request_id AND p.line = line.place - 1
         AND p.variant_id = part.variant_id AND p.status = 'done'
    LEFT JOIN reservations AS h ON h.tenant_id = p.tenant_id AND h.reservation_id = p.request_id
) AS kits
WHERE r.kind = 'lines' AND r.status = 'done' AND r.created_at >= @since AND line.value ? 'kit_id'
  AND (kits.held > 0 AND kits.released > 0
       OR kits.incomplete = 0 AND kits.held > 0 AND (kits.least <> kits.most OR kits.least <> trunc(kits.least)))`

// A part of a kit may be a variant that was deleted since.
const kitPartsSQL = `
SELECT k.tenant_id, k.kit_id, k.parts
FROM kits AS k
CROSS JOIN LATERAL (
    SELECT count(*) AS parts, count(DISTINCT part.value->>'variant_id') AS variants,
           count(*) FILTER (WHERE jsonb_typeof(part.value->'quantity') = 'number' AND part.value->>'quantity' ~ '^[1-9][0-9]{0,6}$') AS valid
    FROM jsonb_array_elements(k.parts) AS part (value)
) AS counted
WHERE counted.variants <> counted.parts OR counted.valid <> counted.parts`

// A waiting request that failed on its own keeps its place while it is
// processing. Its stock may have been deleted.
const waitingInLineSQL = `
SELECT w.tenant_id, w.variant_id, w.request_id, w.place, r.status, s.waiting
FROM waiting_requests AS w
LEFT JOIN reservation_requests AS r ON r.tenant_id = w.tenant_id AND r.request_id = w.request_id
LEFT JOIN inventory_stocks AS s ON s.tenant_id = w.tenant_id AND s.variant_id = w.variant_id
WHERE (r.kind = 'wait' AND r.status IN ('waiting', 'processing') AND r.variant_id = w.variant_id AND r.sequence = w.place
       AND r.quantity = w.quantity AND s.waiting IS DISTINCT FROM false) IS NOT TRUE
UNION ALL
SELECT r.tenant_id, r.variant_id, r.request_id, NULL, r.status, NULL
FROM reservation_requests AS r
WHERE r.status = 'waiting' AND r.updated_at >= @since
  AND NOT EXISTS (SELECT FROM waiting_requests AS w WHERE w.tenant_id = r.tenant_id AND w.variant_id = r.variant_id AND w.place = r.sequence)`

// A request may be purged just before its parts.
const partHasRequestSQL = `
SELECT p.tenant_id, p.request_id, p.parent_id, p.status
FROM reservation_requests AS p
WHERE p.parent_id IS NOT NULL AND p.created_at >= @since
  AND NOT EXISTS (SELECT FROM reservation_requests AS r WHERE r.tenant_id = p.tenant_id AND r.request_id = p.parent_id AND r.kind = 'lines')`

var requestChecks = []targetCheck{
	{"hold_matches_request", "A request's reservation belongs to a done request and has its cart, variant and quantity.", holdMatches},
	{"hold_has_request", "Every reservation of a variant was made for a request.", holdHasRequest},
	{"set_replaced", "A request that set a quantity left its cart no other hold of the variant.", setReplaced},
	{"failed_request_recorded", "Every failed request has one audit row, which agrees with it, and no other request has one.", failedRecorded},
	{"retry_recorded", "Every retry of a failed request has one audit row of that request.", retryRecorded},
	{"claim_ends", "A request has a claim if and only if its status is processing and no part of it is queued, and the claim ends within an hour of now.", claimEnds},
}

var requestTableChecks = []tableCheck{
	{name: "lines_complete", meaning: "A done request of several lines holds all its lines, unless it is partial; a failed one holds none; and its undecided parts are counted.", sql: linesCompleteSQL},
	{name: "kit_whole", meaning: "A done request holds the parts of its kits in whole kits, and they are released together.", sql: kitWholeSQL},
	{name: "kit_parts", meaning: "Every kit has different variants as its parts, each with a quantity.", sql: kitPartsSQL},
	{name: "waiting_in_line", meaning: "The waiting lists have the requests that wait, each once, and their stocks show it.", sql: waitingInLineSQL},
	{name: "part_has_request", meaning: "Every part of a request of several lines belongs to such a request.", sql: partHasRequestSQL},
	{name: "done_request_held", meaning: "Every done request has its reservation, unless its variant was not tracked when it was decided.", sql: doneHeldSQL},
	{name: "hot_in_order", meaning: "No request in the hot lane was decided before one that came a minute earlier for the same variant.", sql: hotOrderSQL},
	{name: "sequence_once", meaning: "No two requests have one sequence number.", sql: sequenceOnceSQL},
}
