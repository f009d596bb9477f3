package reservationrows

import (
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/internal/pg"
)

// Named is a reservation's name with its holder and its resource.
type Named struct {
	Ref
	HolderID, ResourceKey string
}

// HolderKey returns the holder and the resource key.
func (n *Named) HolderKey() HolderKey { return HolderKey{n.TenantID, n.HolderID, n.ResourceKey} }

const namedSQL = `
SELECT wanted.place, r.tenant_id, r.reservation_id, r.holder_id, r.resource_key
FROM unnest($2::uuid[], $3::uuid[]) WITH ORDINALITY AS wanted (tenant_id, reservation_id, place)
JOIN reservations r ON r.tenant_id = wanted.tenant_id AND r.reservation_id = wanted.reservation_id
WHERE r.resource_kind = $1 AND ` + notSetAside

// QueueNamed adds to b a statement that reads the named reservations of a kind,
// in any status, without locking. What is left of an allotment has no name. It calls found for each, with its index in
// refs. Names that don't exist are left out.
func QueueNamed(b *pgx.Batch, kind string, refs []Ref, found func(place int, n Named)) {
	tenants, ids := split(refs)
	b.Queue(namedSQL, kind, tenants, ids).Query(eachNamed(found))
}

const heldByHolderKeysSQL = `
SELECT pair.place, held.tenant_id, held.reservation_id, held.holder_id, held.resource_key
FROM unnest($2::uuid[], $3::text[], $4::text[]) WITH ORDINALITY AS pair (tenant_id, holder_id, resource_key, place)
CROSS JOIN LATERAL (
    SELECT r.tenant_id, r.reservation_id, r.holder_id, r.resource_key
    FROM reservations r
    WHERE same_holder(r.tenant_id, r.holder_id, pair.tenant_id, pair.holder_id) AND r.resource_kind = $1 AND r.ended_at IS NULL
      AND (pair.resource_key = '' OR r.resource_key = pair.resource_key)
    LIMIT $5
) held`

// QueueHeldOf adds to b a statement that reads all held reservations of the
// pairs, due or not, without locking. It calls found for each, with the index
// of its pair. A pair without a ResourceKey means all resources of the kind. At
// most limit rows are read per pair.
func QueueHeldOf(b *pgx.Batch, kind string, pairs []HolderKey, limit int, found func(place int, n Named)) {
	tenants, holders, keys := splitHolderKeys(pairs)
	b.Queue(heldByHolderKeysSQL, kind, tenants, holders, keys, limit).Query(eachNamed(found))
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

// lockNamedSQL locks the rows of both lists in one order.
const lockNamedSQL = `
SELECT ` + columns + `
FROM (
    SELECT named.tenant_id, named.reservation_id
    FROM unnest($2::uuid[], $3::uuid[]) AS named (tenant_id, reservation_id)
    UNION
    SELECT held.tenant_id, held.reservation_id
    FROM unnest($4::uuid[], $5::text[], $6::text[]) AS pair (tenant_id, holder_id, resource_key)
    JOIN reservations held ON same_holder(held.tenant_id, held.holder_id, pair.tenant_id, pair.holder_id) AND same_key(held.resource_key, pair.resource_key)
    WHERE held.resource_kind = $1 AND held.ended_at IS NULL
) AS wanted
JOIN reservations r USING (tenant_id, reservation_id)
ORDER BY r.tenant_id, r.reservation_id
FOR NO KEY UPDATE OF r`

// QueueLock adds to b a statement that locks the named reservations, in any
// status, and all held reservations of the pairs, in (tenant, id) order. It
// returns the rows as they are under the lock, once the batch is sent. Read the
// clock after it.
//
// The caller has locked their resources, so that no hold can be added
// meanwhile.
func QueueLock(b *pgx.Batch, kind string, refs []Ref, pairs []HolderKey) *[]Reservation {
	tenants, ids := split(refs)
	keyTenants, holders, keys := splitHolderKeys(pairs)
	return pg.Collect(b, toReservation, lockNamedSQL, kind, tenants, ids, keyTenants, holders, keys)
}

func splitHolderKeys(pairs []HolderKey) (tenants [][16]byte, holders, keys []string) {
	tenants, holders, keys = make([][16]byte, len(pairs)), make([]string, len(pairs)), make([]string, len(pairs))
	for i, l := range pairs {
		tenants[i], holders[i], keys[i] = l.TenantID, l.HolderID, l.ResourceKey
	}
	return tenants, holders, keys
}

// Holder names the holder of reservations.
type Holder struct {
	TenantID uuid.UUID
	HolderID string
}
