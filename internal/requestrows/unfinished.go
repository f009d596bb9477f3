package requestrows

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/audit"
	"github.com/holdfast/holdfast/internal/pg"
	"github.com/holdfast/holdfast/requests"
)

// CartVariant names a variant in a cart, a kit in it, or (both empty) all of it.
type CartVariant struct {
	TenantID                 uuid.UUID
	CartID, VariantID, KitID string
}

// CancelMax is how many undecided requests one removal cancels at most.
const CancelMax = 10_000

// A request of several lines is of each of their variants and kits, but not of
// the parts of a kit. Once its parts are
// queued, they are locked and not the request: a worker that decides a part locks
// the part first and its request last.
const lockUnfinishedSQL = `
SELECT ` + columns + `
FROM reservation_requests r
WHERE same_holder(r.tenant_id, r.cart_id, $1, $2) AND r.status IN ('queued', 'processing', 'waiting') AND r.open_parts IS NULL
  AND ($3 = '' AND $5 = '' OR r.variant_id = $3 AND r.kit_id IS NULL OR r.kit_id = $5
       OR r.kind = 'lines' AND jsonb_path_exists(r.lines, '$.lines[*] ? (@.variant_id == $v || @.one_of[*] == $v || @.kit_id == $k)',
                                                 jsonb_build_object('v', $3::text, 'k', $5::text)))
ORDER BY r.sequence
LIMIT $4
FOR NO KEY UPDATE`

// CancelTx makes all unfinished requests for a variant or a kit in a cart, or for
// all of it, fail with reason cancelled, and returns their ids. The audit rows have
// the given origin. It waits for a request that a worker is deciding.
//
// The transaction must be READ COMMITTED: an older snapshot would miss requests
// that were added to the cart since.
func CancelTx(ctx context.Context, tx pgx.Tx, of CartVariant, origin audit.Origin) (cancelled []uuid.UUID, err error) {
	b := &pgx.Batch{}
	unfinished := pg.Collect(b, toRequest, lockUnfinishedSQL, of.TenantID, of.CartID, of.VariantID, CancelMax+1, of.KitID)
	now, err := sendThenClock(ctx, tx, b)
	if err != nil {
		return nil, fmt.Errorf("cancel what cart %s has queued: %w", of.CartID, err)
	}
	queued := *unfinished
	if len(queued) > CancelMax { // all or nothing: the caller would take a part for the whole
		return nil, fmt.Errorf("cancel what cart %s has queued: more than %d requests", of.CartID, CancelMax)
	}
	if len(queued) == 0 {
		return nil, nil
	}
	reasons := make([]requests.Reason, len(queued))
	for i := range queued {
		reasons[i] = requests.Cancelled
		id := queued[i].RequestID
		if parent := queued[i].ParentID; parent != nil {
			id = *parent // which fails too, once its last part is decided
		}
		if !slices.Contains(cancelled, id) {
			cancelled = append(cancelled, id)
		}
	}
	if err := FinishTx(ctx, tx, queued, reasons, now, origin); err != nil {
		return nil, fmt.Errorf("cancel what cart %s has queued: %w", of.CartID, err)
	}
	return cancelled, nil
}

const clockSQL = `SELECT clock_timestamp()`

// sendThenClock sends the batch and returns the database's clock, read after
// the batch's last lock was granted.
func sendThenClock(ctx context.Context, tx pgx.Tx, b *pgx.Batch) (now time.Time, err error) {
	b.Queue(clockSQL).QueryRow(func(row pgx.Row) error { return row.Scan(&now) })
	return now, tx.SendBatch(ctx, b).Close()
}

const pendingSQL = `
SELECT line.place - 1
FROM unnest($1::uuid[], $2::text[], $3::text[], $4::boolean[]) WITH ORDINALITY AS line (tenant_id, cart_id, variant_id, or_waiting, place)
CROSS JOIN LATERAL (
    SELECT
    FROM reservation_requests r
    WHERE same_holder(r.tenant_id, r.cart_id, line.tenant_id, line.cart_id) AND (line.variant_id = '' OR r.variant_id = line.variant_id OR r.kind = 'lines')
      AND (r.status IN ('queued', 'processing') OR r.status = 'waiting' AND line.or_waiting)
    LIMIT 1
) pending`

// QueuePending adds to b a statement that reads which of the carts have
// undecided requests, and returns their indexes once the batch is sent. Those that
// wait in line count where orWaiting is set. The caller reads the holds after it: a
// request that is no longer undecided has its hold by then.
func QueuePending(b *pgx.Batch, carts []CartVariant, orWaiting []bool) *[]int {
	tenants, ids, variants := make([][16]byte, len(carts)), make([]string, len(carts)), make([]string, len(carts))
	for i, c := range carts {
		tenants[i], ids[i], variants[i] = c.TenantID, c.CartID, c.VariantID
	}
	return pg.Collect(b, pgx.RowTo[int], pendingSQL, tenants, ids, variants, orWaiting)
}
