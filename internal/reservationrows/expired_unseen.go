package reservationrows

import (
	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/internal/pg"
)

// expiredUnseenSQL reads the clock once; see dueRange.
const expiredUnseenSQL = `
SELECT holder.place - 1, unseen.resource_key
FROM unnest($2::uuid[], $3::text[]) WITH ORDINALITY AS holder (tenant_id, holder_id, place)
CROSS JOIN LATERAL (
    SELECT gone.resource_key
    FROM reservations gone
    WHERE same_holder(gone.tenant_id, gone.holder_id, holder.tenant_id, holder.holder_id) AND gone.resource_kind = $1
      AND gone.dismissed_at IS NULL
      AND (gone.status = 'expired' OR (gone.status = 'held' AND gone.expires_at <= (SELECT clock_timestamp())))
      AND NOT EXISTS (
          SELECT
          FROM reservations again
          WHERE same_holder(again.tenant_id, again.holder_id, gone.tenant_id, gone.holder_id)
            AND same_key(again.resource_key, gone.resource_key)
            AND again.resource_kind = gone.resource_kind
            AND again.held_at >= gone.expires_at)
    LIMIT 1
) unseen`

// ExpiredUnseen is a resource of which a holder has an unseen expiry. Index is
// that of the holder.
type ExpiredUnseen struct {
	Index       int
	ResourceKey string
}

// QueueExpiredUnseen adds to b a statement that finds the holders with an
// unseen expiry. That is a hold of the kind that is past its deadline, swept or
// not, and that was neither acknowledged nor held again since. It returns one of
// the resources for each such holder, once the batch is sent. The holders must
// be distinct, and their reservations locked.
func QueueExpiredUnseen(b *pgx.Batch, kind string, holders []Holder) *[]ExpiredUnseen {
	tenants, ids := make([][16]byte, len(holders)), make([]string, len(holders))
	for i, h := range holders {
		tenants[i], ids[i] = h.TenantID, h.HolderID
	}
	return pg.Collect(b, pgx.RowToStructByPos[ExpiredUnseen], expiredUnseenSQL, kind, tenants, ids)
}

const acknowledgeSQL = `
UPDATE reservations r
SET dismissed_at = clock_timestamp()
FROM unnest($2::uuid[], $3::text[], $4::text[]) AS pair (tenant_id, holder_id, resource_key)
WHERE same_holder(r.tenant_id, r.holder_id, pair.tenant_id, pair.holder_id) AND r.resource_kind = $1
  AND (pair.resource_key = '' OR r.resource_key = pair.resource_key)
  AND r.status = 'expired' AND r.dismissed_at IS NULL`

// QueueAcknowledge adds to b a statement that acknowledges the expired holds of
// a kind, of one resource or (without a ResourceKey) of all. QueueExpiredUnseen
// no longer reports them. It is not a transition: it changes neither the
// reservations' status nor their record.
func QueueAcknowledge(b *pgx.Batch, kind string, pairs []HolderKey) {
	tenants, holders, keys := splitHolderKeys(pairs)
	b.Queue(acknowledgeSQL, kind, tenants, holders, keys)
}

const acknowledgeKitSQL = `
UPDATE reservations r
SET dismissed_at = clock_timestamp()
WHERE same_holder(r.tenant_id, r.holder_id, $2, $3) AND r.resource_kind = $1 AND r.kit_id = $4
  AND r.status = 'expired' AND r.dismissed_at IS NULL`

// QueueAcknowledgeKit is QueueAcknowledge for the holds of a kit.
func QueueAcknowledgeKit(b *pgx.Batch, kind string, holder Holder, kitID string) {
	b.Queue(acknowledgeKitSQL, kind, holder.TenantID, holder.HolderID, kitID)
}
