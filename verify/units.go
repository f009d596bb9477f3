package verify

// A block's counters are numbers of its units.
const blockCountedSQL = `
SELECT tenant_id, variant_id, s.stock, s.reserved, s.units, s.last_position, s.named_units,
       counted.units AS units_counted, counted.pending, counted.inactive, counted.last AS last_counted
FROM inventory_stocks AS s
FULL JOIN (
    SELECT p.tenant_id, p.block AS variant_id, count(*) AS units, max(p.position) AS last,
           count(*) FILTER (WHERE p.status = 'pending_inactive') AS pending,
           count(*) FILTER (WHERE p.status = 'inactive') AS inactive
    FROM postings AS p
    GROUP BY p.tenant_id, p.block
) AS counted USING (tenant_id, variant_id)
WHERE s.named_units IS NOT FALSE
  AND (s.named_units IS NULL OR s.units <> coalesce(counted.units, 0) OR s.reserved <> coalesce(counted.pending, 0)
       OR s.stock <> coalesce(counted.units - counted.inactive, 0) OR s.last_position < coalesce(counted.last, 0))
   OR s.named_units IS FALSE AND counted.units > 0`

// A unit that is pending belongs to a hold that names it, and each unit that a
// hold names is pending and its own. The same holds for inactive units and
// committed reservations, while these are kept and their block is not deleted. A
// block that was made since, under the same id, has other units.
const unitOwnedSQL = `
WITH owned AS MATERIALIZED (
    SELECT r.tenant_id, r.resource_key AS block, unit.id AS unit_id, r.reservation_id, r.status
    FROM reservations AS r
    CROSS JOIN LATERAL jsonb_array_elements_text(r.unit_ids) AS unit (id)
    WHERE r.resource_kind = 'inventory.variant' AND r.status IN ('held', 'committed') AND r.unit_ids IS NOT NULL
      AND (r.status = 'held'
           OR EXISTS (SELECT FROM inventory_stocks AS s
                      WHERE s.tenant_id = r.tenant_id AND s.variant_id = r.resource_key AND s.created_at <= r.held_at))
)
SELECT tenant_id, block, unit_id, p.status AS unit_status, p.reservation_id AS owner, owned.reservation_id, owned.status
FROM (SELECT * FROM postings WHERE status <> 'active') AS p
FULL JOIN owned USING (tenant_id, block, unit_id)
WHERE CASE
    WHEN owned.reservation_id IS NULL THEN p.status = 'pending_inactive'
    WHEN p.unit_id IS NULL THEN true
    ELSE p.reservation_id <> owned.reservation_id OR (p.status = 'pending_inactive') <> (owned.status = 'held')
END`

// A hold of a block names as many units as it counts, each once, without those
// that were returned. A stock that was made after a reservation had ended is not
// the one that it was of.
const holdNamesUnitsSQL = `
SELECT r.tenant_id, r.reservation_id, r.resource_key, r.quantity, r.unit_ids, s.named_units
FROM reservations AS r
LEFT JOIN inventory_stocks AS s ON s.tenant_id = r.tenant_id AND s.variant_id = r.resource_key AND (r.status = 'held' OR s.created_at <= r.held_at)
WHERE r.resource_kind = 'inventory.variant'
  AND CASE
      WHEN r.unit_ids IS NULL THEN s.named_units AND r.quantity > coalesce(r.returned_quantity, 0)
      ELSE s.named_units IS FALSE OR s.named_units IS NULL AND r.status = 'held'
           OR r.quantity - coalesce(r.returned_quantity, 0) <> (SELECT count(DISTINCT unit.id) FROM jsonb_array_elements_text(r.unit_ids) AS unit (id))
  END`

// The primary key forbids it. An index that is corrupt, or was dropped, does
// not.
const unitOnceSQL = `
SELECT p.tenant_id, p.block, p.unit_id, count(*) AS units
FROM postings AS p
GROUP BY p.tenant_id, p.block, p.unit_id
HAVING count(*) > 1`

// positionTwiceSQL finds what an import may do on purpose.
const positionTwiceSQL = `
SELECT p.tenant_id, p.block, p.position, count(*) AS units, min(p.unit_id) AS unit_id, max(p.unit_id) AS other_unit_id
FROM postings AS p
GROUP BY p.tenant_id, p.block, p.position
HAVING count(*) > 1`

var unitChecks = []tableCheck{
	{name: "block_counted", meaning: "A block's stock, reserved and units are the numbers of its units that are not inactive, pending and all.", sql: blockCountedSQL},
	{name: "unit_owned", meaning: "A pending unit belongs to exactly one hold, which names it, and an inactive one to one committed reservation.", sql: unitOwnedSQL},
	{name: "hold_names_units", meaning: "A reservation of a block names as many units as it counts, each once, and no other reservation names units.", sql: holdNamesUnitsSQL},
	{name: "unit_once", meaning: "No unit is twice in a block.", sql: unitOnceSQL},
}

var unitNotes = []tableCheck{
	{name: "position_twice", meaning: "Two units of a block have one position, as an import may give them: they are no neighbours of each other.", sql: positionTwiceSQL},
}
