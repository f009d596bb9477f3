package verify

// A hold that replaces others has the first of their times. All end when it is
// made. The holds that it replaced are kept at least as long as the retention.
// The holder's index finds them: a drain replaces many holds at one time.
const firstHeldKept = `CASE WHEN r.held_at >= @since::timestamptz + @margin::interval AND (q.kind = 'set' OR r.first_held_at <> r.held_at)
        AND a.moved_rows = 0 AND r.part_of IS NULL
        THEN r.first_held_at <> least(r.held_at, (
            SELECT min(old.first_held_at)
            FROM reservations AS old
            WHERE same_holder(old.tenant_id, old.holder_id, r.tenant_id, r.holder_id) AND same_key(old.resource_key, r.resource_key)
              AND old.resource_kind = r.resource_kind AND old.release_reason = 'replaced'
              AND rtrim(coalesce(old.allotment_id, ''), E'\x1f') = rtrim(coalesce(r.allotment_id, ''), E'\x1f')
              AND old.ended_at + interval '0' = r.held_at)) END`

// Times of two transactions may run backwards if the times of the record do
// too, because the clock was set back in between. Times that one transaction
// wrote come from one reading of the clock. A pruned record proves nothing.
//
// A hold that replaces another one is due when it is made if the lifetime cap
// was lowered since the first hold.
const timesInOrder = `r.first_held_at > r.held_at OR r.first_held_at >= r.expires_at OR a.ended_id < a.held_id
        OR (r.first_held_at = r.held_at AND r.held_at >= r.expires_at)
        OR (r.ended_at < r.held_at AND a.ended_recorded_at >= a.held_recorded_at)
        OR (r.held_at > @now AND a.held_recorded_at <= @now)`

// timesBackwards is true of the reservations that timesInOrder accepts because
// the clock was set back.
const timesBackwards = `(r.ended_at < r.held_at AND a.ended_id > a.held_id AND a.ended_recorded_at < a.held_recorded_at)
        OR (r.held_at > @now AND a.held_recorded_at > @now)`

// What is due is searched for from a mark on: of a variant by the drains and the
// reads of its stock, of a kind by the sweeps.
//
// No unit is due of an allotment whose units were all taken.
const dueFound = `CASE WHEN r.status = 'held' AND r.quantity > 0 THEN
        r.expires_at < (SELECT m.due_from FROM reservation_marks AS m WHERE m.resource_kind = r.resource_kind)
        OR (r.resource_kind = 'inventory.variant'
            AND r.expires_at < (SELECT s.due_from FROM inventory_stocks AS s WHERE s.tenant_id = r.tenant_id AND s.variant_id = r.resource_key)) END`

var reservationChecks = []targetCheck{
	{"expiry_not_early", "An expired reservation ended at or after its deadline, and for no other reason.",
		`r.status = 'expired' AND (r.ended_at < r.expires_at OR r.release_reason <> 'ttl')`},
	{"commit_not_late", "A reservation was committed before its deadline.", `r.status = 'committed' AND r.ended_at >= r.expires_at`},
	{"release_not_late", "A reservation was released before its deadline; from then on it can only expire.",
		`r.status = 'released' AND r.ended_at >= r.expires_at`},
	{"times_in_order", "A reservation was first held, held and ended in this order, by the record, and its deadline came after its first hold.", timesInOrder},
	{"first_held_kept", "A reservation was first held when it was made, or when the first hold that it replaced was.", firstHeldKept},
	{"due_found", "No held reservation has a deadline before the marks from which due holds are searched.", dueFound},
	{"expiry_acknowledged", "Only an expired reservation is acknowledged.", `r.dismissed_at IS NOT NULL AND r.status <> 'expired'`},
}

var lifetimeCheck = targetCheck{"lifetime_capped", "No deadline is further from the first hold than the lifetime cap.",
	`r.expires_at > r.first_held_at + @lifetime_max::interval AND r.checkout_id IS NULL
        AND (r.holder_id <> '/' OR r.allotment_id IS NULL)`}
