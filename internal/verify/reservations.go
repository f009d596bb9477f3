package verify

const expiryNotEarlySQL = `
SELECT r.tenant_id, r.reservation_id, r.status, r.release_reason, r.expires_at, r.ended_at
FROM reservations AS r
WHERE r.status = 'expired' AND (r.ended_at < r.expires_at OR r.release_reason <> 'ttl')`

const commitNotLateSQL = `
SELECT r.tenant_id, r.reservation_id, r.expires_at, r.ended_at
FROM reservations AS r
WHERE r.status = 'committed' AND r.ended_at >= r.expires_at`

const timesInOrderSQL = `
SELECT r.tenant_id, r.reservation_id, r.status, r.first_held_at, r.held_at, r.expires_at, r.ended_at
FROM reservations AS r
WHERE r.first_held_at > r.held_at OR r.held_at >= r.expires_at OR r.ended_at < r.held_at OR r.held_at > @now`

const lifetimeSQL = `
SELECT r.tenant_id, r.reservation_id, r.status, r.first_held_at, r.expires_at
FROM reservations AS r
WHERE r.expires_at > r.first_held_at + @lifetime_max::interval`

var reservationChecks = []check{
	{"expiry_not_early", "A reservation that expired ended at its deadline or after, and by its deadline only.", expiryNotEarlySQL},
	{"commit_not_late", "A reservation was committed before its deadline.", commitNotLateSQL},
	{"times_in_order", "A reservation was first held, held and ended in this order, and its deadline came after the hold.", timesInOrderSQL},
}

var lifetimeCheck = check{"lifetime_capped", "No deadline lies further from the first hold than the lifetime cap.", lifetimeSQL}
