package verify

const expiryNotEarlySQL = `
SELECT r.tenant_id, r.reservation_id, r.status, r.release_reason, r.expires_at, r.ended_at
FROM reservations AS r
WHERE r.status = 'expired' AND (r.ended_at < r.expires_at OR r.release_reason <> 'ttl')`

const commitNotLateSQL = `
SELECT r.tenant_id, r.reservation_id, r.expires_at, r.ended_at
FROM reservations AS r
WHERE r.status = 'committed' AND r.ended_at >= r.expires_at`

// timesRecord is when each reservation was held and ended, in the order and by the times of the record. The order is that
// of the audit ids, which are drawn under the reservation's lock.
const timesRecord = `
WITH record AS MATERIALIZED (
    SELECT a.tenant_id, a.target_id,
           min(a.audit_id) FILTER (WHERE a.action = 'reservation.held') AS held_id,
           min(a.created_at) FILTER (WHERE a.action = 'reservation.held') AS held_recorded_at,
           min(a.audit_id) FILTER (WHERE a.action <> 'reservation.held') AS ended_id,
           min(a.created_at) FILTER (WHERE a.action <> 'reservation.held') AS ended_recorded_at
    FROM audit_log AS a
    WHERE a.action IN ('reservation.held', 'reservation.committed', 'reservation.released', 'reservation.expired')
    GROUP BY a.tenant_id, a.target_id
)`

// Times of two transactions may run backwards where the record does too: then the clock was set back in between. What
// one transaction wrote was compared with one reading of the clock. A record that was pruned says nothing.
const timesInOrderSQL = timesRecord + `
SELECT r.tenant_id, r.reservation_id, r.status, r.first_held_at, r.held_at, r.expires_at, r.ended_at,
       record.held_id, record.ended_id
FROM reservations AS r
LEFT JOIN record ON record.tenant_id = r.tenant_id AND record.target_id = r.reservation_id
WHERE r.first_held_at > r.held_at OR r.held_at >= r.expires_at OR record.ended_id < record.held_id
   OR (r.ended_at < r.held_at AND record.ended_recorded_at >= record.held_recorded_at)
   OR (r.held_at > @now AND record.held_recorded_at <= @now)`

const lifetimeSQL = `
SELECT r.tenant_id, r.reservation_id, r.status, r.first_held_at, r.expires_at
FROM reservations AS r
WHERE r.expires_at > r.first_held_at + @lifetime_max::interval`

var reservationChecks = []check{
	{"expiry_not_early", "A reservation that expired ended at its deadline or after, and by its deadline only.", expiryNotEarlySQL},
	{"commit_not_late", "A reservation was committed before its deadline.", commitNotLateSQL},
	{"times_in_order", "A reservation was first held, held and ended in this order, by the record, and its deadline came after the hold.", timesInOrderSQL},
}

var lifetimeCheck = check{"lifetime_capped", "No deadline lies further from the first hold than the lifetime cap.", lifetimeSQL}
