package verify_test

// Each of these changes a column by hand, and every copy of it in the other
// tables that the change would have been written to, but not the record.

const (
	heldHat  = `status = 'held' AND resource_key = 'hat' AND checkout_id IS NULL`
	heldHall = `status = 'held' AND resource_key = 'hall' AND checkout_id IS NULL`
)

// swapUnits exchanges the units of two holds of a block.
var swapUnits = []string{
	`CREATE TEMP TABLE swapped ON COMMIT DROP AS
		SELECT tenant_id, reservation_id, unit_ids, row_number() OVER (ORDER BY reservation_id) AS place
		FROM reservations WHERE ` + heldHall + ` AND tenant_id = (SELECT tenant_id FROM reservations WHERE ` + heldHall + ` LIMIT 1)
		ORDER BY reservation_id LIMIT 2`,
	`UPDATE reservations AS r SET unit_ids = other.unit_ids
		FROM swapped AS own JOIN swapped AS other ON other.place <> own.place
		WHERE r.tenant_id = own.tenant_id AND r.reservation_id = own.reservation_id`,
	`UPDATE postings AS p SET reservation_id = other.reservation_id
		FROM swapped AS own JOIN swapped AS other ON other.place <> own.place
		WHERE p.tenant_id = own.tenant_id AND p.block = 'hall' AND own.unit_ids ? p.unit_id`,
}

var columnDamages = []damage{
	{"units moved between two holds", swapUnits, []string{"record_agrees"}},
	{"a hold got another holder", []string{
		`UPDATE reservations SET holder_id = 'thief' WHERE ` + oneHold(heldHat),
		`UPDATE reservation_requests SET cart_id = 'thief' WHERE request_id IN (SELECT reservation_id FROM reservations WHERE holder_id = 'thief')`},
		[]string{"record_agrees"}},
	{"a hold got another quantity", []string{
		`UPDATE reservations SET quantity = quantity + 1 WHERE ` + oneHold(heldHat),
		`UPDATE reservation_requests AS q SET quantity = r.quantity FROM reservations AS r
			WHERE r.tenant_id = q.tenant_id AND r.reservation_id = q.request_id AND r.quantity <> q.quantity AND r.holder_id <> 'cart-moved'`,
		`UPDATE inventory_stocks AS s SET reserved = held.quantity
			FROM (SELECT tenant_id, resource_key, sum(quantity) AS quantity FROM reservations WHERE status = 'held' GROUP BY 1, 2) AS held
			WHERE held.tenant_id = s.tenant_id AND held.resource_key = s.variant_id AND s.reserved <> held.quantity`},
		[]string{"record_agrees"}},
	{"a hold became one of another variant", []string{
		`UPDATE reservations SET resource_key = 'sofa' WHERE ` + oneHold(heldHat),
		`UPDATE reservation_requests AS q SET variant_id = 'sofa' FROM reservations AS r
			WHERE r.tenant_id = q.tenant_id AND r.reservation_id = q.request_id AND r.resource_key <> q.variant_id`,
		`UPDATE inventory_stocks AS s SET reserved = held.quantity
			FROM (SELECT tenant_id, resource_key, sum(quantity) AS quantity FROM reservations WHERE status = 'held' GROUP BY 1, 2) AS held
			WHERE held.tenant_id = s.tenant_id AND held.resource_key = s.variant_id AND s.reserved <> held.quantity`},
		[]string{"record_agrees"}},
	{"a release got another reason", []string{`UPDATE reservations SET release_reason = 'abandoned' WHERE ` + oneHold(`release_reason = 'cart_removed'`)},
		[]string{"record_agrees"}},
	{"a hold became one of another kind", []string{`UPDATE reservations SET resource_kind = 'ticket' WHERE ` + oneHold(`release_reason = 'cart_removed'`)},
		[]string{"hold_matches_request", "record_agrees"}},
	{"a hold got a window", []string{`UPDATE reservations SET resource_window = '{"day":1}' WHERE ` + oneHold(`release_reason = 'cart_removed'`)},
		[]string{"record_agrees"}},
	{"a failed request got another cart", []string{`UPDATE reservation_requests SET cart_id = 'thief' WHERE ` + oneRequest(`reason = 'out_of_stock'`)},
		[]string{"failed_request_recorded"}},
	{"a checkout got another payment", []string{`UPDATE checkouts SET payment_reference = 'other' WHERE ` + oneCheckout(`status = 'committed'`)},
		[]string{"checkout_recorded"}},
	{"a checkout counts other units", []string{`UPDATE checkouts SET units = units + 1 WHERE ` + oneCheckout(`status = 'committed'`)},
		[]string{"checkout_owns_holds", "checkout_recorded"}},
	{"a stock got another limit", []string{`UPDATE inventory_stocks SET max_per_cart = 1 WHERE variant_id = 'hat'`},
		[]string{"stock_settings"}},
	{"a unit appears, and the stock is adjusted later", []string{
		`UPDATE inventory_stocks SET stock = stock + 2 WHERE variant_id = 'hat'`,
		`INSERT INTO audit_log (tenant_id, target_id, action, actor_kind, before, after)
			SELECT s.tenant_id, last.target_id, 'stock.adjusted', 'user', last.after || jsonb_build_object('stock', s.stock - 1),
			       last.after || jsonb_build_object('stock', s.stock)
			FROM inventory_stocks AS s JOIN audit_log AS last ON last.tenant_id = s.tenant_id AND last.after->>'variant_id' = 'hat'
			WHERE s.variant_id = 'hat' AND last.action = 'stock.adjusted'`},
		[]string{"stock_chained"}},
	{"a stock without its record", []string{`INSERT INTO inventory_stocks (tenant_id, variant_id, stock) SELECT tenant_id, 'mug', 9 FROM inventory_stocks LIMIT 1`},
		[]string{"stock_recorded"}},
	{"a record of a stock is gone", []string{`DELETE FROM audit_log WHERE action = 'stock.set' AND after->>'variant_id' = 'candle'`},
		[]string{"stock_recorded"}},
	{"a checkout is gone whose holds it committed", []string{`DELETE FROM checkouts WHERE status = 'committed'`}, []string{"checkout_owns_holds"}},
	{"a checkout is gone whose holds it released", []string{`DELETE FROM checkouts WHERE status = 'compensated' AND alert IS NULL`}, []string{"checkout_owns_holds"}},
	{"a response is gone", []string{`INSERT INTO idempotency_keys (tenant_id, idempotency_key, fingerprint) SELECT tenant_id, 'fresh', decode(repeat('00', 32), 'hex') FROM inventory_stocks LIMIT 1`},
		[]string{"key_answered"}},
	{"a unit is twice in a block", []string{`ALTER TABLE postings DROP CONSTRAINT postings_pkey`,
		`INSERT INTO postings (tenant_id, block, unit_id, position) SELECT tenant_id, block, unit_id, position FROM postings WHERE status = 'inactive' LIMIT 1`},
		[]string{"block_counted", "unit_once"}},
}

var timeDamages = []damage{
	{"released after the deadline", []string{`UPDATE reservations SET ended_at = expires_at + interval '1 second'
		WHERE ` + oneHold(`release_reason = 'cart_removed'`)},
		[]string{"release_not_late", "times_recorded"}},
	{"held at another time", []string{`UPDATE reservations SET held_at = held_at - interval '1 hour', first_held_at = first_held_at - interval '1 hour'
		WHERE ` + oneHold(heldHat+` AND holder_id <> 'cart-1'`)},
		[]string{"hold_matches_request", "times_recorded"}},
	{"first held at another time", []string{`UPDATE reservations SET first_held_at = first_held_at - interval '1 hour' WHERE ` + oneHold(heldHat)},
		[]string{"first_held_kept"}},
	{"a replacing hold lost the time of the first", []string{`UPDATE reservations SET first_held_at = held_at
		WHERE ` + oneHold(`holder_id = 'cart-1' AND resource_key = 'hat' AND first_held_at < held_at`)},
		[]string{"first_held_kept"}},
	{"ended at another time", []string{`UPDATE reservations SET ended_at = ended_at - interval '5 minutes', held_at = held_at
		WHERE ` + oneHold(`release_reason = 'cart_removed'`)},
		[]string{"times_in_order", "times_recorded"}},
	{"an expiry recorded an hour after it", []string{`UPDATE reservations SET ended_at = ended_at + interval '1 hour' WHERE ` + oneHold(`status = 'expired'`)},
		[]string{"times_recorded"}},
	{"a hold is acknowledged like an expiry", []string{`UPDATE reservations SET dismissed_at = clock_timestamp() WHERE ` + oneHold(heldHat)},
		[]string{"expiry_acknowledged"}},
	{"the mark of a variant is past the deadline of a hold", []string{`UPDATE inventory_stocks SET due_from = 'infinity'
			WHERE reserved > 0`}, []string{"due_found"}},
	{"the mark of the sweeps is past the deadline of a hold", []string{
		`INSERT INTO reservation_marks (resource_kind, due_from, noted_at, noted_xid) VALUES ('inventory.variant', 'infinity', clock_timestamp(), '3')
			ON CONFLICT (resource_kind) DO UPDATE SET due_from = excluded.due_from`}, []string{"due_found"}},
	{"a request is queued for too long", []string{`UPDATE reservation_requests SET created_at = created_at - interval '12 minutes' WHERE status = 'queued'`},
		[]string{"queued_in_time"}},
	{"a request is queued in a lane that is paused", []string{`UPDATE reservation_requests SET created_at = created_at - interval '12 minutes' WHERE status = 'queued'`,
		`UPDATE lane_slots SET paused = true WHERE slot = -1`}, nil},
	{"a claim ends in a year", []string{`UPDATE reservation_requests SET status = 'processing', claim_expires_at = clock_timestamp() + interval '1 year'
		WHERE status = 'queued'`},
		[]string{"claim_ends"}},
	{"a claim ended yesterday", []string{`UPDATE reservation_requests SET status = 'processing', claim_expires_at = clock_timestamp() - interval '1 day'
		WHERE status = 'queued'`},
		[]string{"claim_ends"}},
	{"a checkout's next attempt is in a year", []string{`UPDATE checkouts SET next_attempt_at = clock_timestamp() + interval '1 year'
		WHERE ` + oneCheckout(`status = 'validating'`)},
		[]string{"checkout_ends"}},
	{"a checkout may wait for a year", []string{`UPDATE checkouts SET deadline = deadline + interval '1 year', next_attempt_at = next_attempt_at + interval '1 year'
		WHERE ` + oneCheckout(`status = 'validating'`)},
		[]string{"checkout_ends", "checkout_recorded"}},
	{"a checkout ended at another time", []string{`UPDATE checkouts SET ended_at = ended_at - interval '1 hour' WHERE ` + oneCheckout(`status = 'compensated'`)},
		[]string{"checkout_recorded"}},
}
