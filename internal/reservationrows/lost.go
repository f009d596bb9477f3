package reservationrows

import (
	"github.com/jackc/pgx/v5"
)

// lostSQL asks the clock once; see dueSQL.
const lostSQL = `
SELECT holder.place, lost.resource_key
FROM unnest($2::uuid[], $3::text[]) WITH ORDINALITY AS holder (tenant_id, holder_id, place)
CROSS JOIN LATERAL (
    SELECT gone.resource_key
    FROM reservations gone
    WHERE gone.tenant_id = holder.tenant_id AND gone.holder_id = holder.holder_id AND gone.resource_kind = $1
      AND gone.dismissed_at IS NULL
      AND (gone.status = 'expired' OR (gone.status = 'held' AND gone.expires_at <= (SELECT clock_timestamp())))
      AND NOT EXISTS (
          SELECT
          FROM reservations again
          WHERE again.tenant_id = gone.tenant_id AND again.holder_id = gone.holder_id
            AND again.resource_kind = gone.resource_kind AND again.resource_key = gone.resource_key
            AND again.held_at >= gone.expires_at)
    LIMIT 1
) lost`

// QueueLost adds to b what finds the holders, which are distinct, that have lost something of a kind to expiry, swept or
// not, and have neither dismissed it nor held it again since, and gives one such resource of each to lost with the
// holder's place. Their reservations are locked.
func QueueLost(b *pgx.Batch, kind string, holders []Holder, lost func(place int, key string)) {
	tenants, ids := make([][16]byte, len(holders)), make([]string, len(holders))
	for i, h := range holders {
		tenants[i], ids[i] = h.TenantID, h.HolderID
	}
	b.Queue(lostSQL, kind, tenants, ids).Query(func(rows pgx.Rows) error {
		var place int
		var key string
		_, err := pgx.ForEachRow(rows, []any{&place, &key}, func() error {
			lost(place-1, key)
			return nil
		})
		return err
	})
}

const dismissSQL = `
UPDATE reservations r
SET dismissed_at = clock_timestamp()
FROM unnest($2::uuid[], $3::text[], $4::text[]) AS line (tenant_id, holder_id, resource_key)
WHERE r.tenant_id = line.tenant_id AND r.holder_id = line.holder_id AND r.resource_kind = $1
  AND (line.resource_key = '' OR r.resource_key = line.resource_key)
  AND r.status = 'expired' AND r.dismissed_at IS NULL`

// QueueDismiss adds to b what notes that holders know of what they lost of a kind to expiry, on one resource or (no
// ResourceKey) on all, so that QueueLost no longer reports it. It is no transition: the reservation's status and its record
// stay as they are.
func QueueDismiss(b *pgx.Batch, kind string, lines []Line) {
	tenants, holders, keys := splitLines(lines)
	b.Queue(dismissSQL, kind, tenants, holders, keys)
}
