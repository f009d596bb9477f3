package verify

const expiryNotEarlySQL = `
SELECT r.tenant_id, r.reservation_id, r.status, r.release_reason, r.expires_at, r.ended_at
FROM reservations AS r
WHERE r.status = 'expired' AND (r.ended_at < r.expires_at OR r.release_reason <> 'ttl')`

const commitNotLateSQL = `
SELECT r.tenant_id, r.reservation_id, r.expires_at, r.ended_at
FROM reservations AS r
WHERE r.status = 'committed' AND r.ended_at >= r.expires_at`

// timesRecord selects when each reservation was held and ended according to the
// record, with the audit ids of both. The ids are drawn under the reservation's
// lock, so they have the order of events.
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

// Times of two transactions may run backwards if the times of the record do
// too, because the clock was set back in between. Times that one transaction
// wrote come from one reading of the clock. A pruned record proves nothing.
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
WHERE r.expires_at > r.first_held_at + @lifetime_max::interval AND r.checkout_id IS NULL`

var reservationChecks = []check{
	{"expiry_not_early", "An expired reservation ended at or after its deadline, and for no other reason.", expiryNotEarlySQL},
	{"commit_not_late", "A reservation was committed before its deadline.", commitNotLateSQL},
	{"times_in_order", "A reservation was first held, held and ended in this order, by the record, and its deadline came after the hold.", timesInOrderSQL},
}

var lifetimeCheck = check{"lifetime_capped", "No deadline is further from the first hold than the lifetime cap.", lifetimeSQL}
