package verify

const recordAgrees = `a.last_status IS NOT NULL AND r.reservation_id IS NOT NULL
        AND (a.last_status, (a.last).resource_kind, (a.last).resource_key, (a.last).resource_window, (a.last).holder_id, (a.last).release_reason,
             (a.last).quantity, (a.last).unit_ids, (a.last).checkout_id, (a.last).expires_at)
            IS DISTINCT FROM (r.status, r.resource_kind, r.resource_key, r.resource_window, r.holder_id, r.release_reason,
             r.quantity - coalesce(r.returned_quantity, 0), r.unit_ids, r.checkout_id, r.expires_at)`

const oneHold = `r.reservation_id IS NOT NULL
        AND CASE WHEN r.held_at >= @since THEN a.held_rows IS DISTINCT FROM 1 ELSE a.held_rows > 1 END`

const oneEnding = `r.reservation_id IS NOT NULL AND CASE
        WHEN r.status = 'held' THEN a.ending_rows > 0
        WHEN r.ended_at >= @since THEN a.ending_rows IS DISTINCT FROM 1 OR a.ending <> 'reservation.' || r.status
        ELSE a.ending_rows > 1
    END`

// One transaction reads the clock for a row and then writes its audit row.
// A part has the time of the hold that it was committed of.
const timesRecorded = `r.part_of IS NULL AND r.held_at NOT BETWEEN a.held_recorded_at - @margin::interval AND a.held_recorded_at + @margin::interval
        OR r.ended_at NOT BETWEEN a.ended_recorded_at - @margin::interval AND a.ended_recorded_at + @margin::interval`

// A part is purged no later than what it was committed of, which ended later.
const partOfHold = `CASE WHEN r.part_of IS NOT NULL THEN r.status <> 'committed' OR r.ended_at >= @since::timestamptz + @margin::interval AND (
            SELECT count(*) FROM reservations AS whole
            WHERE whole.tenant_id = r.tenant_id AND whole.reservation_id = r.part_of AND whole.resource_kind = r.resource_kind
              AND whole.resource_key = r.resource_key) = 0 END`

// A sub-select that counts is evaluated for the row, and only where the CASE
// needs it. The planner may turn NOT EXISTS into a hash of the whole table.
//
// A program that uses package reservations deletes what it held itself, after a
// retention of its own, once it has ended.
const recordHasTarget = `(r.reservation_id IS NULL AND a.reservation_recorded_at >= @since::timestamptz + @margin::interval
            AND ((a.last).resource_kind = 'inventory.variant' OR a.last_status = 'held'))
        OR (q.request_id IS NULL AND a.request_recorded_at >= @since::timestamptz + @margin::interval)
        OR CASE WHEN a.retry_recorded_at >= @since::timestamptz + @margin::interval THEN (
            SELECT count(*) FROM reservation_requests AS retry
            WHERE retry.tenant_id = key.tenant_id AND retry.request_id = a.retried_by::uuid AND retry.retry_of = key.id) = 0 END`

var recordChecks = []targetCheck{
	{"part_of_hold", "A part is committed, and is of the resource of the reservation that it was committed of.", partOfHold},
	{"hold_recorded_once", "Every reservation has one audit row of its hold.", oneHold},
	{"one_ending", "Every reservation that ended has one audit row of its ending, and a held one has no such row.", oneEnding},
	{"record_agrees", "A reservation has the state that its last audit row recorded.", recordAgrees},
	{"times_recorded", "A reservation was held and ended when its audit rows were written, to a minute.", timesRecorded},
	{"record_chained", "Each audit row of a reservation starts from the state that the previous one recorded, and changes it as its action requires.", `a.unchained`},
	{"record_has_target", "Every audit row of a reservation or a request belongs to one that exists.", recordHasTarget},
}
