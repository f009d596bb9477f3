package verify

import "github.com/holdfast/holdfast/internal/horizon"

const streamServedSQL = `
SELECT r.tenant_id, r.request_id, r.lane, r.slot, r.sequence, r.created_at
FROM reservation_requests AS r
WHERE r.status = 'queued'
  AND NOT EXISTS (SELECT FROM lane_slots AS s WHERE s.lane = r.lane AND s.slot = r.slot AND s.slot >= 0)`

const aboveMarkSQL = `
SELECT r.tenant_id, r.request_id, r.lane, r.slot, r.sequence, s.low_water, r.created_at
FROM reservation_requests AS r
JOIN lane_slots AS s ON s.lane = r.lane AND s.slot = r.slot
WHERE r.status = 'queued' AND r.sequence <= s.low_water`

// A variant that is entering or leaving may have requests in both streams: its
// slot claims from both. Requests for a hot variant are claimed from its slot's
// stream alone, and no other drain claims them.
const hotInOwnStreamSQL = `
SELECT r.tenant_id, r.request_id, r.variant_id, r.sequence, h.slot, h.moved_at, r.created_at
FROM reservation_requests AS r
JOIN hot_variants AS h ON h.tenant_id = r.tenant_id AND h.variant_id = r.variant_id
WHERE r.status = 'queued' AND r.lane <> 'hot' AND h.state = 'hot'`

const hotHasSlotSQL = `
SELECT h.tenant_id, h.variant_id, h.slot, h.state
FROM hot_variants AS h
WHERE NOT EXISTS (SELECT FROM lane_slots AS s WHERE s.lane = 'hot' AND s.slot = h.slot AND s.slot >= 0)`

const claimEndsSQL = `
SELECT r.tenant_id, r.request_id, r.status, r.attempts, r.claim_epoch, r.claim_expires_at
FROM reservation_requests AS r
WHERE (r.status = 'processing') <> (r.claim_expires_at IS NOT NULL)`

// A sequence is not part of the snapshot: its last number is now at least what
// it was at the snapshot.
const marksDrawnSQL = `
SELECT s.lane, s.slot, s.low_water, sequence.drawn
FROM lane_slots AS s
CROSS JOIN (SELECT ` + horizon.Drawn + ` AS drawn FROM reservation_requests_sequence_seq) AS sequence
WHERE s.low_water > sequence.drawn`

var laneChecks = []check{
	{"queued_in_a_slot", "Every queued request is in the stream of a slot that exists.", streamServedSQL},
	{"queued_above_mark", "No queued request is at or below its stream's low-water mark, where no drain claims it.", aboveMarkSQL},
	{"hot_in_own_stream", "No queued request for a hot variant is in the normal stream, from which its slot does not claim.", hotInOwnStreamSQL},
	{"hot_has_slot", "Every hot variant belongs to a slot that exists.", hotHasSlotSQL},
	{"claim_ends", "A request has a claim that expires if and only if its status is processing.", claimEndsSQL},
	{"marks_drawn", "No low-water mark is above the last sequence number drawn.", marksDrawnSQL},
}
