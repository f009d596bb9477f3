package verify_test

func oneUnit(where string) string { return one("postings", "unit_id", where) }

var unitDamages = []damage{
	{"a unit is active while it is held", []string{`UPDATE postings SET status = 'active', reservation_id = NULL
		WHERE ` + oneUnit(`status = 'pending_inactive'`)},
		[]string{"block_counted", "unit_owned"}},
	{"a unit is inactive while it is held", []string{`UPDATE postings SET status = 'inactive'
		WHERE ` + oneUnit(`status = 'pending_inactive'`)},
		[]string{"block_counted", "unit_owned"}},
	{"a unit is pending after it was committed", []string{`UPDATE postings SET status = 'pending_inactive'
		WHERE ` + oneUnit(`status = 'inactive'`)},
		[]string{"block_counted", "unit_owned"}},
	{"a unit belongs to another reservation", []string{`UPDATE postings SET reservation_id = gen_random_uuid()
		WHERE ` + oneUnit(`status = 'pending_inactive'`)},
		[]string{"unit_owned"}},
	{"a committed unit belongs to another reservation", []string{`UPDATE postings SET reservation_id = gen_random_uuid()
		WHERE ` + oneUnit(`status = 'inactive'`)},
		[]string{"unit_owned"}},
	{"a unit is pending without a hold", []string{`UPDATE postings SET status = 'pending_inactive', reservation_id = gen_random_uuid()
		WHERE ` + oneUnit(`status = 'active'`), `UPDATE inventory_stocks SET reserved = reserved + 1
		WHERE (tenant_id, variant_id) = (SELECT tenant_id, block FROM postings GROUP BY tenant_id, block, reservation_id HAVING count(*) = 1 LIMIT 1)`},
		[]string{"stock_reserved", "unit_owned"}},
	{"a hold names a unit less", []string{`UPDATE reservations SET unit_ids = unit_ids - 0
		WHERE ` + oneHold(`status = 'held' AND unit_ids IS NOT NULL`)},
		[]string{"hold_names_units", "record_agrees", "unit_owned"}},
	{"a hold of a block names no units", []string{`UPDATE reservations SET unit_ids = NULL
		WHERE ` + oneHold(`status = 'held' AND unit_ids IS NOT NULL`)},
		[]string{"hold_names_units", "record_agrees", "unit_owned"}},
	{"a hold of counted units names units", []string{`UPDATE reservations SET unit_ids = '["seat-1"]'
		WHERE ` + oneHold(`status = 'released' AND resource_key = 'hat'`)},
		[]string{"hold_names_units", "record_agrees"}},
	{"a block counts a unit too many", []string{`UPDATE inventory_stocks SET units = units + 1 WHERE variant_id = 'hall'`},
		[]string{"block_counted"}},
	{"a unit is gone", []string{`DELETE FROM postings WHERE ` + oneUnit(`status = 'inactive'`)},
		[]string{"block_counted", "unit_owned"}},
	{"a variant of counted units has one with its own identity", []string{`INSERT INTO postings (tenant_id, block, unit_id, position)
		SELECT tenant_id, 'hat', 'seat-1', 1 FROM inventory_stocks WHERE variant_id = 'hat'`},
		[]string{"block_counted"}},
}

func oneCheckout(where string) string { return one("checkouts", "checkout_id", where) }

var checkoutDamages = []damage{
	{"a committed checkout lost a hold", []string{`UPDATE reservations SET checkout_id = NULL
		WHERE ` + oneHold(`status = 'committed' AND checkout_id IS NOT NULL`)},
		[]string{"checkout_owns_holds", "lifetime_capped", "record_agrees"}}, // a paid checkout keeps its holds for longer
	{"an unfinished checkout lost a hold", []string{`UPDATE reservations SET checkout_id = NULL
		WHERE ` + oneHold(`status = 'held' AND checkout_id IS NOT NULL`)},
		[]string{"checkout_owns_holds", "record_agrees"}},
	{"a hold is locked to a checkout that does not exist", []string{`UPDATE reservations SET checkout_id = gen_random_uuid()
		WHERE ` + oneHold(`status = 'held' AND checkout_id IS NULL`)},
		[]string{"checkout_owns_holds", "record_agrees"}},
	{"a compensated checkout still holds", []string{`UPDATE reservations SET checkout_id =
			(SELECT checkout_id FROM checkouts c WHERE c.tenant_id = reservations.tenant_id AND c.status = 'compensated' LIMIT 1)
		WHERE ` + oneHold(`status = 'held' AND checkout_id IS NULL AND tenant_id IN (SELECT tenant_id FROM checkouts WHERE status = 'compensated')`)},
		[]string{"checkout_owns_holds", "record_agrees"}},
	{"a checkout is not ended", []string{`UPDATE checkouts SET deadline = deadline - interval '3 hours'
		WHERE ` + oneCheckout(`status = 'validating'`)},
		[]string{"checkout_ends", "checkout_recorded"}},
	{"a transition of a checkout is not recorded", []string{`DELETE FROM audit_log WHERE ` + oneRow(`action = 'checkout.paid'`)},
		[]string{"checkout_recorded"}},
	{"an alert of a checkout is not recorded", []string{`DELETE FROM audit_log WHERE ` + oneRow(`action = 'checkout.alert'`)},
		[]string{"checkout_recorded"}},
	{"a transition of a checkout is recorded twice", []string{again(`action = 'checkout.committed'`)},
		[]string{"checkout_recorded"}},
}
