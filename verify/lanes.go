package verify

import "github.com/holdfast/holdfast/internal/horizon"

const streamServed = `CASE WHEN q.status = 'queued' THEN
        (SELECT count(*) FROM lane_slots AS s WHERE s.lane = q.lane AND s.slot = q.slot AND s.slot >= 0) = 0 END`

const aboveMark = `CASE WHEN q.status = 'queued' THEN
        (SELECT count(*) FROM lane_slots AS s WHERE s.lane = q.lane AND s.slot = q.slot AND q.sequence <= s.low_water) > 0 END`

// A variant that is entering or leaving may have requests in both streams: its
// slot claims from both. Requests for a hot variant are claimed from its slot's
// stream alone, and no other drain claims them.
const hotInOwnStream = `CASE WHEN q.status = 'queued' AND q.lane <> 'hot' THEN
        (SELECT count(*) FROM hot_variants AS h WHERE h.tenant_id = q.tenant_id AND h.variant_id = q.variant_id AND h.state = 'hot') > 0 END`

// A drain that finds an older request fails it. No drain runs in a lane that is
// paused or was a moment ago, and none may come to a stream of a capped lane for
// a while. See @worked for an outage.
const queuedInTime = `CASE WHEN q.status = 'queued' AND q.created_at < @worked::timestamptz - @queue_age_max::interval THEN
        (SELECT count(*) FROM lane_slots AS s WHERE s.lane = q.lane AND s.slot = -1 AND (s.paused OR s.rate_cap IS NOT NULL)) = 0
        AND (SELECT count(*) FROM audit_log AS a
             WHERE a.tenant_id = '00000000-0000-0000-0000-000000000000' AND a.action = 'lane.controlled'
               AND a.created_at > @now::timestamptz - @margin::interval) = 0 END`

const hotHasSlotSQL = `
SELECT h.tenant_id, h.variant_id, h.slot, h.state
FROM hot_variants AS h
WHERE NOT EXISTS (SELECT FROM lane_slots AS s WHERE s.lane = 'hot' AND s.slot = h.slot AND s.slot >= 0)`

const divertedHasSlotSQL = `
SELECT d.tenant_id, d.slot, d.diverted_at
FROM diverted_tenants AS d
WHERE NOT EXISTS (SELECT FROM lane_slots AS s WHERE s.lane = 'normal' AND s.slot = d.slot)`

// The rows that the migrations insert. Programs update them, and never insert
// or delete them.
const controlRowsSQL = `
SELECT control.what
FROM (
    SELECT 'lane_slots ' || wanted.lane || ' ' || wanted.slot AS what
    FROM (VALUES ('hot', -1), ('normal', -1), ('normal', 0), ('normal', 1)) AS wanted (lane, slot)
    WHERE NOT EXISTS (SELECT FROM lane_slots AS s WHERE s.lane = wanted.lane AND s.slot = wanted.slot)
    UNION ALL
    SELECT 'hot_detector'
    WHERE NOT EXISTS (SELECT FROM hot_detector)
) AS control`

// A library may use tenants that have no row. The programs do not: their record
// has the prefix of an API key.
const tenantExistsSQL = `
SELECT s.tenant_id
FROM (SELECT DISTINCT tenant_id FROM inventory_stocks) AS s
WHERE CASE WHEN (SELECT count(*) FROM tenants AS t WHERE t.tenant_id = s.tenant_id) = 0 AND EXISTS (SELECT FROM tenants) THEN (
        SELECT count(*)
        FROM audit_log AS a
        WHERE a.tenant_id = s.tenant_id AND a.action IN ('stock.set', 'stock.adjusted') AND a.actor_kind = 'user' AND a.actor_id LIKE 'hf\_%') > 0 END`

// A sequence is not part of the snapshot: its last number is now at least what
// it was at the snapshot.
const marksDrawnSQL = `
SELECT mark.what, mark.number, sequence.drawn
FROM (
    SELECT 'low-water mark of ' || s.lane || ' ' || s.slot AS what, s.low_water AS number
    FROM lane_slots AS s
    UNION ALL
    SELECT 'hot_detector', d.seen
    FROM hot_detector AS d
    UNION ALL
    SELECT 'hot_variants ' || h.tenant_id || ' ' || h.variant_id, h.admitted_before
    FROM hot_variants AS h
    UNION ALL
    SELECT 'lane_loads ' || l.lane, l.drawn
    FROM lane_loads AS l
) AS mark
CROSS JOIN (SELECT ` + horizon.Drawn + ` AS drawn FROM reservation_requests_sequence_seq) AS sequence
WHERE mark.number > sequence.drawn`

const positionsDrawnSQL = `
SELECT reader.what, reader.position, sequence.drawn
FROM (
    SELECT 'subscription ' || s.name AS what, s.next AS position
    FROM audit_subscriptions AS s
    UNION ALL
    SELECT 'projection ' || p.projection_name || ' of ' || p.tenant_id || ' ' || p.key, p.position
    FROM projection_snapshots AS p
) AS reader
CROSS JOIN (SELECT ` + horizon.Drawn + ` AS drawn FROM audit_log_audit_id_seq) AS sequence
WHERE reader.position > sequence.drawn`

var laneChecks = []targetCheck{
	{"queued_in_a_slot", "Every queued request is in the stream of a slot that exists.", streamServed},
	{"queued_above_mark", "No queued request is at or below its stream's low-water mark, where no drain claims it.", aboveMark},
	{"hot_in_own_stream", "No queued request for a hot variant is in the normal stream, from which its slot does not claim.", hotInOwnStream},
}

var queueAgeCheck = targetCheck{"queued_in_time", "No request is queued for longer than the queue's greatest age, while the service has recorded anything.", queuedInTime}

var laneTableChecks = []tableCheck{
	{name: "control_rows", meaning: "Every row that controls a lane, its streams or the detector exists.", sql: controlRowsSQL, changed: true},
	{name: "hot_has_slot", meaning: "Every hot variant belongs to a slot that exists.", sql: hotHasSlotSQL, changed: true},
	{name: "diverted_has_slot", meaning: "Every diverted tenant belongs to a slot that exists.", sql: divertedHasSlotSQL, changed: true},
	{name: "tenant_exists", meaning: "Every stock that was set with an API key belongs to a tenant that exists, if the database has tenants.", sql: tenantExistsSQL, changed: true},
	{name: "numbers_drawn", meaning: "No request and no audit row has a number above the last one drawn.", sql: numbersAheadSQL, changed: true},
	{name: "marks_drawn", meaning: "No mark is above the last sequence number drawn.", sql: marksDrawnSQL, changed: true},
	{name: "positions_drawn", meaning: "No subscription and no projection is beyond the last audit id drawn.", sql: positionsDrawnSQL, changed: true},
}
