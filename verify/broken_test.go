package verify_test

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast/holdfast/verify"
)

// damage is a change of the data that bypasses the service, with the complete
// list of checks that find it. Without checks it is a state that pruning
// leaves, which is valid.
type damage struct {
	name string
	do   []string
	want []string
}

// one is a condition that selects one row of a table among those that match
// where.
func one(table, id, where string) string {
	return `(tenant_id, ` + id + `) = (SELECT tenant_id, ` + id + ` FROM ` + table + ` WHERE ` + where + ` LIMIT 1)`
}

func oneHold(where string) string {
	return one("reservations", "reservation_id", "holder_id <> '/' AND "+where)
}
func oneRequest(where string) string { return one("reservation_requests", "request_id", where) }
func oneRow(where string) string     { return one("audit_log", "audit_id", where) }

// onlyHeld selects the audit rows of live holds that have no other row.
const onlyHeld = `action = 'reservation.held' AND holder_id <> '/' AND target_id IN (SELECT reservation_id FROM reservations WHERE status = 'held' AND holder_id <> 'cart-1')
	AND (SELECT count(*) FROM audit_log AS same WHERE same.target_id = audit_log.target_id) = 1`

// again copies an audit row, so that it exists twice.
func again(where string) string {
	const columns = `tenant_id, target_id, action, actor_kind, before, after, resource_kind, resource_key, resource_window, holder_id, quantity,
		expires_at, release_reason, checkout_id, unit_ids`
	return `INSERT INTO audit_log (` + columns + `) SELECT ` + columns + ` FROM audit_log WHERE ` + oneRow(where)
}

// strayHold makes a hold a month ago, so that its request and its record may
// have been pruned.
func strayHold(from string) string {
	return `INSERT INTO reservations (tenant_id, reservation_id, resource_kind, resource_key, holder_id, quantity, status,
			release_reason, first_held_at, held_at, expires_at, ended_at)
		SELECT tenant_id, id, 'inventory.variant', key, cart, 1, status, reason, at, at, at + interval '1 hour', ended
		FROM (` + from + `) AS stray`
}

const monthAgo = `clock_timestamp() - interval '30 days' AS at`

var damages = slices.Concat(stockDamages, requestDamages, reservationDamages, recordDamages, laneDamages, unitDamages, checkoutDamages,
	columnDamages, timeDamages, numberDamages, controlDamages)

// firstRing is a condition that selects the earliest request for the hot
// variant.
const firstRing = `sequence = (SELECT min(sequence) FROM reservation_requests WHERE variant_id = 'ring' AND lane = 'hot')`

const firstRingCameEarly = `UPDATE reservation_requests SET created_at = created_at - interval '2 minutes' WHERE ` + firstRing

var stockDamages = []damage{
	{"a counter is off by one", []string{`UPDATE inventory_stocks SET reserved = reserved + 1 WHERE variant_id = 'sofa'`},
		[]string{"stock_reserved"}},
	{"a hold of a variant that does not exist", []string{strayHold(`SELECT tenant_id, gen_random_uuid() AS id, 'ghost' AS key,
			'cart' AS cart, 'held' AS status, NULL AS reason, ` + monthAgo + `, NULL::timestamptz AS ended FROM inventory_stocks LIMIT 1`)},
		[]string{"stock_reserved"}},
	{"more is reserved than the stock", []string{
		`ALTER TABLE inventory_stocks DROP CONSTRAINT inventory_stocks_no_oversell`,
		`UPDATE inventory_stocks SET stock = reserved - 1 WHERE variant_id = 'hat'`},
		[]string{"stock_accounted", "stock_bounds"}},
	{"reserved is negative", []string{
		`ALTER TABLE inventory_stocks DROP CONSTRAINT inventory_stocks_reserved_not_negative`,
		`UPDATE inventory_stocks SET reserved = -1 WHERE variant_id = 'candle'`},
		[]string{"stock_bounds", "stock_reserved"}},
	{"a unit appears", []string{`UPDATE inventory_stocks SET stock = stock + 1 WHERE variant_id = 'hat'`},
		[]string{"stock_accounted"}},
	{"a stock is gone", []string{`DELETE FROM inventory_stocks WHERE variant_id = 'candle'`},
		[]string{"stock_accounted", "stock_reserved"}},
}

var requestDamages = []damage{
	{"a done request lost its reservation", []string{`DELETE FROM reservations WHERE ` + oneHold(`release_reason = 'cart_removed'`)},
		[]string{"done_request_held", "record_has_target"}},
	{"a done request that never had one", []string{`INSERT INTO reservation_requests (tenant_id, request_id, lane, status, cart_id, variant_id, quantity)
		SELECT tenant_id, gen_random_uuid(), 'normal', 'done', 'cart', 'hat', 1 FROM inventory_stocks LIMIT 1`},
		[]string{"done_request_held"}},
	{"a request done without a hold, long after its variant was tracked", []string{`UPDATE audit_log SET created_at = created_at - interval '2 hours'
		WHERE action = 'stock.set' AND after->>'variant_id' = 'flip'`},
		[]string{"done_request_held"}},
	{"the record of a variant that is not tracked was pruned", []string{`DELETE FROM audit_log WHERE action = 'stock.set' AND after->>'variant_id' = 'ebook'`,
		`UPDATE inventory_stocks SET created_at = created_at - interval '200 hours' WHERE variant_id = 'ebook'`},
		nil},
	{"the record from when the variant was not tracked was pruned", []string{`DELETE FROM audit_log
		WHERE action = 'stock.set' AND after->>'variant_id' = 'flip' AND before IS NULL`,
		`UPDATE inventory_stocks SET created_at = created_at - interval '200 hours' WHERE variant_id = 'flip'`},
		nil},
	{"a request for another quantity than its hold", []string{`UPDATE reservation_requests SET quantity = quantity + 1
		WHERE ` + oneRequest(`status = 'done' AND variant_id = 'hat'`)},
		[]string{"hold_matches_request"}},
	{"a failed request has a hold", []string{strayHold(`SELECT tenant_id, request_id AS id, variant_id AS key, cart_id AS cart,
			'released' AS status, 'operator' AS reason, ` + monthAgo + `, clock_timestamp() - interval '30 days' + interval '1 minute' AS ended
			FROM reservation_requests WHERE reason = 'out_of_stock' AND quantity = 1 LIMIT 1`)},
		[]string{"hold_matches_request"}},
	{"a hold without a request", []string{`DELETE FROM reservation_requests WHERE ` + oneRequest(`status = 'done' AND variant_id = 'hat' AND parent_id IS NULL`)},
		[]string{"hold_has_request"}},
	{"a hold that a set replaced is held again", []string{`UPDATE reservations SET status = 'held', ended_at = NULL, release_reason = NULL
		WHERE ` + oneHold(`release_reason = 'replaced' AND holder_id = 'cart-1'`)},
		[]string{"first_held_kept", "one_ending", "record_agrees", "set_replaced", "stock_reserved"}},
	{"a failure without its record", []string{`DELETE FROM audit_log WHERE ` + oneRow(`action = 'request.failed'`)},
		[]string{"failed_request_recorded"}},
	{"a failure without its record, long ago", []string{
		`UPDATE reservation_requests SET updated_at = updated_at - interval '200 hours' WHERE status = 'failed'`,
		`DELETE FROM audit_log WHERE action = 'request.failed'`}, nil},
	{"a failure recorded twice", []string{again(`action = 'request.failed'`)}, []string{"failed_request_recorded"}},
	{"a retry without its record", []string{`DELETE FROM audit_log WHERE ` + oneRow(`action = 'request.retried'`)}, []string{"retry_recorded"}},
	{"a retry recorded twice", []string{again(`action = 'request.retried'`)}, []string{"retry_recorded"}},
	{"a retry recorded for another request", []string{`UPDATE audit_log SET target_id = gen_random_uuid() WHERE ` + oneRow(`action = 'request.retried'`)},
		[]string{"record_has_target", "retry_recorded"}},
	{"a failure recorded for another reason", []string{`UPDATE reservation_requests SET reason = 'limit_exceeded'
		WHERE ` + oneRequest(`reason = 'unknown_variant'`)},
		[]string{"failed_request_recorded"}},
	{"a failure recorded of a done request", []string{`UPDATE reservation_requests SET status = 'done', reason = NULL
		WHERE ` + oneRequest(`reason = 'out_of_stock'`)},
		[]string{"done_request_held", "failed_request_recorded"}},
	{"a request was decided after those that came later", []string{firstRingCameEarly, `UPDATE reservation_requests SET updated_at = updated_at + interval '1 hour'
		WHERE ` + firstRing,
		`UPDATE audit_log SET audit_id = DEFAULT WHERE target_id = (SELECT request_id FROM reservation_requests WHERE ` + firstRing + `)`},
		[]string{"hold_matches_request", "hot_in_order"}},
	{"a request was forgotten", []string{`INSERT INTO reservation_requests (tenant_id, request_id, lane, slot, sequence, cart_id, variant_id, quantity, created_at)
		OVERRIDING SYSTEM VALUE
		SELECT tenant_id, gen_random_uuid(), 'hot', slot, -1, 'cart', variant_id, 1, clock_timestamp() - interval '2 minutes' FROM hot_variants LIMIT 1`},
		[]string{"hot_in_order", "queued_above_mark"}},
	{"a line of a done request is gone", []string{`UPDATE reservation_requests SET parent_id = gen_random_uuid()
			WHERE ` + oneRequest(`parent_id IS NOT NULL AND status = 'done' AND variant_id = 'sofa' AND kit_id IS NULL`)},
		[]string{"lines_complete", "part_has_request"}},
	{"a part of an ended request is counted as queued", []string{`UPDATE reservation_requests SET status = 'processing', reason = NULL, open_parts = 1
			WHERE ` + oneRequest(`kind = 'lines' AND open_parts = 0`)},
		[]string{"failed_request_recorded", "lines_complete"}},
	{"a part of a kit is gone", []string{`UPDATE reservation_requests SET parent_id = gen_random_uuid()
			WHERE ` + oneRequest(`status = 'done' AND variant_id = 'sofa' AND kit_id IS NOT NULL`)},
		[]string{"kit_whole", "lines_complete", "part_has_request"}},
	{"a hold is a part of another kit", []string{`UPDATE reservations SET kit_id = 'tent' WHERE ` + oneHold(`kit_id IS NOT NULL AND resource_key = 'sofa'`)},
		[]string{"hold_matches_request"}},
	{"a kit has a part twice", []string{`UPDATE kits SET parts = parts || (parts->0)`}, []string{"kit_parts"}},
	{"a part of a kit has no quantity", []string{`UPDATE kits SET parts = jsonb_set(parts, '{0,quantity}', '0')`}, []string{"kit_parts"}},
	{"a request waits without a place in line", []string{`DELETE FROM waiting_requests`}, []string{"waiting_in_line"}},
	{"a place in line of another request", []string{`UPDATE waiting_requests SET place = place + 1`}, []string{"waiting_in_line"}},
	{"no request seems to wait", []string{`UPDATE inventory_stocks SET waiting = false`}, []string{"waiting_in_line"}},
	{"a key has two requests", []string{`DROP INDEX reservation_requests_idempotency_key`,
		`UPDATE reservation_requests AS r SET idempotency_key = 'twice' WHERE r.cart_id = 'cart-1' AND r.variant_id = 'ring'
			OR r.cart_id = 'cart-4' AND r.variant_id = 'ring'`},
		[]string{"key_one_request"}},
	{"a key belongs to two calls", []string{`INSERT INTO idempotency_keys (tenant_id, idempotency_key, fingerprint)
		SELECT tenant_id, idempotency_key, fingerprint FROM reservation_requests LIMIT 1`},
		[]string{"key_answered", "key_one_call"}},
}

var reservationDamages = []damage{
	{"expired too early", []string{`UPDATE reservations SET ended_at = expires_at - interval '1 millisecond' WHERE ` + oneHold(`status = 'expired'`)},
		[]string{"expiry_not_early"}},
	{"expired for another reason", []string{`UPDATE reservations SET release_reason = 'operator' WHERE ` + oneHold(`status = 'expired'`)},
		[]string{"expiry_not_early", "record_agrees"}},
	{"committed too late", []string{`UPDATE reservations SET ended_at = expires_at WHERE ` + oneHold(`status = 'committed'`)},
		[]string{"commit_not_late", "times_recorded"}},
	{"held before it was first held", []string{`UPDATE reservations SET first_held_at = held_at + interval '1 second' WHERE ` + oneHold(`status = 'held'`)},
		[]string{"first_held_kept", "times_in_order"}},
	{"ended before it was held, by the record", []string{`UPDATE audit_log SET audit_id = DEFAULT WHERE ` + oneRow(`action = 'reservation.held'
		AND target_id IN (SELECT reservation_id FROM reservations WHERE release_reason = 'cart_removed')`)},
		[]string{"record_agrees", "record_chained", "times_in_order"}},
	{"held in the future", []string{`UPDATE reservations SET first_held_at = first_held_at + interval '10 minutes', held_at = held_at + interval '10 minutes'
		WHERE ` + oneHold(`status = 'held' AND holder_id <> 'cart-1'`)},
		[]string{"hold_matches_request", "times_in_order", "times_recorded"}},
	{"ended before it was held", []string{`UPDATE reservations SET ended_at = held_at - interval '1 second' WHERE ` + oneHold(`release_reason = 'cart_removed'`)},
		[]string{"times_in_order"}},
	{"held past its lifetime", []string{`UPDATE reservations SET first_held_at = expires_at - interval '3 hours' WHERE ` + oneHold(`status = 'held'`)},
		[]string{"first_held_kept", "lifetime_capped"}},
}

var recordDamages = []damage{
	{"a group got another limit", []string{`UPDATE stock_groups SET max_per_customer = 5`}, []string{"group_recorded"}},
	{"what is left of an allotment is not its own", []string{`UPDATE allotments SET reservation_id = gen_random_uuid() WHERE allotment_id = 'fans'`},
		[]string{"allotment_held"}},
	{"an allotment ends before what is left of it", []string{`UPDATE allotments SET expires_at = expires_at - interval '1 day' WHERE allotment_id = 'fans'`},
		[]string{"allotment_held"}},
	{"more is held from an allotment than was taken", []string{`UPDATE allotments SET quantity = quantity - 1 WHERE allotment_id = 'fans'`},
		[]string{"allotment_held"}},
	{"a part of a hold that does not exist", []string{`UPDATE reservations SET part_of = gen_random_uuid() WHERE ` + oneHold(`part_of IS NOT NULL`)},
		[]string{"part_of_hold"}},
	{"a part that is held", []string{`UPDATE reservations SET part_of = reservation_id WHERE ` + oneHold(`status = 'held' AND holder_id <> 'cart-1'`)},
		[]string{"part_of_hold"}},
	{"a return without its record", []string{`UPDATE reservations SET returned_quantity = 1 WHERE ` + oneHold(`status = 'committed' AND part_of IS NULL AND unit_ids IS NULL`)},
		[]string{"record_agrees"}},
	{"a hold that lost a unit", []string{`UPDATE reservations SET quantity = quantity + 1 WHERE ` + oneHold(`status = 'held' AND resource_key = 'hat' AND holder_id = 'cart-moved'`)},
		[]string{"hold_matches_request", "record_agrees", "stock_reserved"}},
	{"a move without its record", []string{`DELETE FROM audit_log WHERE ` + oneRow(`action = 'reservation.moved' AND resource_key = 'hat'`)},
		[]string{"hold_matches_request", "record_agrees"}},
	{"a hold without its record", []string{`DELETE FROM audit_log WHERE ` + oneRow(`action = 'reservation.held'`)},
		[]string{"hold_recorded_once"}},
	{"a hold recorded twice", []string{again(onlyHeld)},
		[]string{"hold_recorded_once", "record_chained"}},
	{"an ending without its record", []string{`DELETE FROM audit_log WHERE ` + oneRow(`action = 'reservation.committed' AND resource_key = 'ring'`)},
		[]string{"one_ending", "record_agrees", "stock_accounted"}},
	{"an ending recorded twice", []string{again(`action = 'reservation.released'`)}, []string{"one_ending", "record_chained"}},
	{"an ending recorded of a live hold", []string{`INSERT INTO audit_log (tenant_id, target_id, action, actor_kind, resource_kind, resource_key, resource_window, holder_id, quantity, expires_at,
			release_reason, checkout_id, unit_ids)
		SELECT tenant_id, target_id, 'reservation.expired', 'job', resource_kind, resource_key, resource_window, holder_id, quantity, expires_at,
			'ttl', checkout_id, unit_ids
		FROM audit_log WHERE ` + oneRow(onlyHeld)},
		[]string{"one_ending", "record_agrees"}},
	{"a deadline moved without a record", []string{`UPDATE reservations SET expires_at = expires_at + interval '1 second' WHERE ` + oneHold(`status = 'held'`)},
		[]string{"record_agrees"}},
	{"a record that was changed", []string{`UPDATE audit_log SET before = '{"quantity":99}' WHERE ` + oneRow(`action = 'reservation.released'`)},
		[]string{"record_chained"}},
	{"a deadline before an extension was changed", []string{`UPDATE audit_log SET before = jsonb_set(before, '{expires_at}', '"2020-01-01T00:00:00Z"')
		WHERE ` + oneRow(`action = 'reservation.extended'`)},
		[]string{"record_chained"}},
	{"a record from before the checkout was changed", []string{`UPDATE audit_log SET before = before - 'checkout_id'
		WHERE ` + oneRow(`action = 'reservation.extended' AND before ? 'checkout_id'`)},
		[]string{"record_chained"}},
	{"a record with a member that no transition changes", []string{`UPDATE audit_log SET before = '{"status":"released"}'
		WHERE ` + oneRow(`action = 'reservation.released'`)},
		[]string{"record_chained"}},
	{"an extension with a reason of release", []string{`UPDATE audit_log SET release_reason = 'operator' WHERE ` + oneRow(`action = 'reservation.extended'
		AND EXISTS (SELECT FROM audit_log AS later WHERE later.target_id = audit_log.target_id AND later.audit_id > audit_log.audit_id)`)},
		[]string{"record_chained"}},
	{"a record with another action", []string{`UPDATE audit_log SET action = 'reservation.extended' WHERE ` + oneRow(`action = 'reservation.released'`)},
		[]string{"one_ending", "record_agrees", "record_chained"}},
	{"a record without a target", []string{`INSERT INTO audit_log (tenant_id, target_id, action, actor_kind, resource_kind, resource_key, holder_id, quantity, expires_at)
		VALUES (gen_random_uuid(), gen_random_uuid(), 'reservation.extended', 'user', 'a', 'b', 'c', 1, clock_timestamp())`,
		`INSERT INTO audit_log (tenant_id, target_id, action, actor_kind, after)
		VALUES (gen_random_uuid(), gen_random_uuid(), 'request.failed', 'user', '{"status":"failed"}')`},
		[]string{"record_has_target"}},
	{"a record whose target was pruned", []string{`INSERT INTO audit_log (tenant_id, target_id, action, actor_kind, resource_kind, resource_key, holder_id, quantity, expires_at, created_at)
		VALUES (gen_random_uuid(), gen_random_uuid(), 'reservation.extended', 'user', 'a', 'b', 'c', 1, clock_timestamp(),
		        clock_timestamp() - interval '168 hours')`},
		nil},
}

var laneDamages = []damage{
	{"queued for a slot that does not exist", []string{`UPDATE reservation_requests SET slot = 77 WHERE status = 'queued'`},
		[]string{"queued_in_a_slot"}},
	{"queued below the mark", []string{`UPDATE lane_slots SET low_water = (SELECT max(sequence) FROM reservation_requests) WHERE lane = 'normal' AND slot = 0`},
		[]string{"queued_above_mark"}},
	{"queued where no drain claims", []string{`INSERT INTO hot_variants (tenant_id, variant_id, slot, state)
		SELECT tenant_id, variant_id, 0, 'hot' FROM reservation_requests WHERE status = 'queued'`},
		[]string{"hot_in_own_stream"}},
	{"a hot variant without a slot", []string{`UPDATE hot_variants SET slot = 77`}, []string{"hot_has_slot"}},
	{"a claim that never ends", []string{`UPDATE reservation_requests SET status = 'processing' WHERE status = 'queued'`},
		[]string{"claim_ends"}},
	{"a claim on a done request", []string{`UPDATE reservation_requests SET claim_expires_at = clock_timestamp() WHERE ` + oneRequest(`status = 'done'`)},
		[]string{"claim_ends"}},
	{"a mark that ran ahead", []string{`UPDATE lane_slots SET low_water = 1000000 WHERE lane = 'normal' AND slot = 1`},
		[]string{"marks_drawn"}},
}

func TestRunFindsDamage(t *testing.T) {
	t.Parallel()
	s := newFixture(t)
	s.writeHistory()
	config := verify.Config{LifetimeMax: 2 * time.Hour, QueueAgeMax: 10 * time.Minute}
	untouched := s.try(t, config)
	unproved := map[string]bool{}
	for _, c := range untouched.Checks {
		unproved[c.Name] = true
	}
	for _, d := range damages {
		t.Run(d.name, func(t *testing.T) {
			report := s.try(t, config, d.do...)
			if diff := cmp.Diff(d.want, broken(report)); diff != "" {
				t.Errorf("checks that found it: %s", diff)
			}
			if report.OK != (len(d.want) == 0) {
				t.Errorf("ok is %v", report.OK)
			}
			for _, c := range report.Checks {
				if int64(len(c.Sample)) != min(c.Broken, verify.SampleMax) {
					t.Errorf("%s: %d rows, %d of them shown", c.Name, c.Broken, len(c.Sample))
				}
			}
		})
		for _, name := range d.want {
			delete(unproved, name)
		}
	}
	for name := range unproved {
		t.Errorf("no damage shows that %s can fail", name)
	}
	if found := broken(s.try(t, config)); len(found) > 0 {
		t.Errorf("some damage was not rolled back: %v", found)
	}
}
