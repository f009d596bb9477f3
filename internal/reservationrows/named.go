package reservationrows

import (
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// Named names a reservation, who it is for and what it is of.
type Named struct {
	Ref
	HolderID, ResourceKey string
}

const namedSQL = `
SELECT wanted.place, r.tenant_id, r.reservation_id, r.holder_id, r.resource_key
FROM unnest($2::uuid[], $3::uuid[]) WITH ORDINALITY AS wanted (tenant_id, reservation_id, place)
JOIN reservations r ON r.tenant_id = wanted.tenant_id AND r.reservation_id = wanted.reservation_id
WHERE r.resource_kind = $1`

// QueueNamed adds to b what reads the named reservations of a kind, in any status, without locking, and gives each to
// found with its place among the refs. Names that don't exist are left out.
func QueueNamed(b *pgx.Batch, kind string, refs []Ref, found func(place int, n Named)) {
	tenants, ids := split(refs)
	b.Queue(namedSQL, kind, tenants, ids).Query(eachNamed(found))
}

// heldOfLinesSQL looks holders up; see heldByHolderSQL.
const heldOfLinesSQL = `
SELECT line.place, held.tenant_id, held.reservation_id, held.holder_id, held.resource_key
FROM unnest($2::uuid[], $3::text[], $4::text[]) WITH ORDINALITY AS line (tenant_id, holder_id, resource_key, place)
CROSS JOIN LATERAL (
    SELECT r.tenant_id, r.reservation_id, r.holder_id, r.resource_key
    FROM reservations r
    WHERE r.tenant_id = line.tenant_id AND r.holder_id = line.holder_id AND r.resource_kind = $1 AND r.ended_at IS NULL
      AND (line.resource_key = '' OR r.resource_key = line.resource_key)
    LIMIT $5
) held`

// QueueHeldOf adds to b what reads all that is held of a kind on the lines, due or not, without locking, and gives each to
// found with the place of its line. A line without a ResourceKey is of all resources. Of one line at most limit are read.
func QueueHeldOf(b *pgx.Batch, kind string, lines []Line, limit int, found func(place int, n Named)) {
	tenants, holders, keys := splitLines(lines)
	b.Queue(heldOfLinesSQL, kind, tenants, holders, keys, limit).Query(eachNamed(found))
}

func eachNamed(found func(place int, n Named)) func(pgx.Rows) error {
	return func(rows pgx.Rows) error {
		var place int
		var n Named
		_, err := pgx.ForEachRow(rows, []any{&place, &n.TenantID, &n.ReservationID, &n.HolderID, &n.ResourceKey}, func() error {
			found(place-1, n)
			return nil
		})
		return err
	}
}

// lockNamedSQL locks in one order what two lists name. It looks holders up; see heldByHolderSQL.
const lockNamedSQL = `
SELECT ` + columns + `
FROM (
    SELECT named.tenant_id, named.reservation_id
    FROM unnest($2::uuid[], $3::uuid[]) AS named (tenant_id, reservation_id)
    UNION
    SELECT held.tenant_id, held.reservation_id
    FROM unnest($4::uuid[], $5::text[], $6::text[]) AS line (tenant_id, holder_id, resource_key)
    JOIN reservations held USING (tenant_id, holder_id, resource_key)
    WHERE held.resource_kind = $1 AND held.ended_at IS NULL
) AS wanted
JOIN reservations r USING (tenant_id, reservation_id)
ORDER BY r.tenant_id, r.reservation_id
FOR NO KEY UPDATE OF r`

// QueueLock adds to b what locks the named reservations, in any status, and all that is held of a kind on the lines, in
// (tenant, id) order, and gives them to locked as they are under the lock. Read the clock behind it. The caller holds the
// locks of their resources, so that no hold can join a line meanwhile.
func QueueLock(b *pgx.Batch, kind string, refs []Ref, lines []Line, locked func([]Reservation)) {
	tenants, ids := split(refs)
	lineTenants, holders, keys := splitLines(lines)
	b.Queue(lockNamedSQL, kind, tenants, ids, lineTenants, holders, keys).Query(func(rows pgx.Rows) error {
		all, err := pgx.CollectRows(rows, toReservation)
		if err == nil {
			locked(all)
		}
		return err
	})
}

func splitLines(lines []Line) (tenants [][16]byte, holders, keys []string) {
	tenants, holders, keys = make([][16]byte, len(lines)), make([]string, len(lines)), make([]string, len(lines))
	for i, l := range lines {
		tenants[i], holders[i], keys[i] = l.TenantID, l.HolderID, l.ResourceKey
	}
	return tenants, holders, keys
}

// Holder names who reservations are for.
type Holder struct {
	TenantID uuid.UUID
	HolderID string
}
