package requestrows

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/holdfast/holdfast/internal/inventory"
	"github.com/holdfast/holdfast/internal/lanes"
	"github.com/holdfast/holdfast/requests"
)

// inLine returns those of the requests that may have a place in line.
func inLine(rs []requests.Request) (waiting []inventory.InLine) {
	for i := range rs {
		if rs[i].Kind == requests.Wait && rs[i].Status != requests.Queued {
			waiting = append(waiting, placeOf(&rs[i]))
		}
	}
	return waiting
}

func placeOf(r *requests.Request) inventory.InLine {
	return inventory.InLine{
		Ref: inventory.Ref{TenantID: r.TenantID, VariantID: r.VariantID}, Place: r.Sequence, RequestID: r.RequestID, Quantity: r.Quantity,
	}
}

const waitSQL = `
UPDATE reservation_requests r
SET status = 'waiting', updated_at = $4, claim_expires_at = NULL
FROM unnest($1::uuid[], $2::uuid[], $3::integer[]) AS w (tenant_id, request_id, claim_epoch)
WHERE r.tenant_id = w.tenant_id AND r.request_id = w.request_id AND r.claim_epoch = w.claim_epoch AND r.status IN ('queued', 'processing')`

// QueueWait adds to b the statements that put the requests in line for their
// variants. The caller has locked the requests and their stocks. now is a reading
// of the database's clock. The batch fails as that of QueueFinish does.
func QueueWait(b *pgx.Batch, waiting []requests.Request, now time.Time) {
	n := len(waiting)
	if n == 0 {
		return
	}
	tenants, ids, epochs := make([][16]byte, n), make([][16]byte, n), make([]int32, n)
	places := make([]inventory.InLine, n)
	for i := range waiting {
		r := &waiting[i]
		tenants[i], ids[i], epochs[i], places[i] = r.TenantID, r.RequestID, r.ClaimEpoch, placeOf(r)
	}
	b.Queue(waitSQL, tenants, ids, epochs, now).Exec(func(tag pgconn.CommandTag) error {
		if got := tag.RowsAffected(); got != int64(n) {
			return fmt.Errorf("put %d requests in line: %d are finished or claimed by another process", n, int64(n)-got)
		}
		return nil
	})
	inventory.QueueJoinLine(b, places)
}

const claimWaitingSQL = `
SELECT ` + columns + `
FROM reservation_requests r
WHERE r.tenant_id = $1 AND r.request_id IN (SELECT fitting.request_id FROM (` + inventory.FittingSQL + `) AS fitting) AND r.variant_id = $2
  AND r.status = 'waiting' AND NOT EXISTS (SELECT FROM ` + lanes.Controls + ` control WHERE control.lane = r.lane AND control.paused)
ORDER BY r.sequence
FOR NO KEY UPDATE OF r`

// ClaimWaitingTx claims up to limit requests that wait in line for the variant
// and each fit what is free, the first in line first. It waits for requests that
// another transaction has locked, so that none is passed; or, with skipLocked,
// leaves them out. Those of a paused lane are not claimed.
//
// The transaction must be READ COMMITTED.
func ClaimWaitingTx(ctx context.Context, tx pgx.Tx, variant inventory.Ref, limit int, skipLocked bool) ([]requests.Request, error) {
	sql := claimWaitingSQL
	if skipLocked {
		sql += ` SKIP LOCKED`
	}
	return claim(ctx, tx, sql, variant.TenantID, variant.VariantID, limit)
}

// IsInLine reports whether a request that the caller has locked has a place in
// line.
func IsInLine(ctx context.Context, tx pgx.Tx, r requests.Request) (bool, error) {
	return inventory.HasPlace(ctx, tx, placeOf(&r))
}

// addLinePlaces adds their positions to the requests that wait in line.
func addLinePlaces(ctx context.Context, db Querier, views map[Ref]requests.View) error {
	var refs []Ref
	var waiting []inventory.InLine
	for ref, v := range views {
		if v.Status == requests.Waiting {
			refs, waiting = append(refs, ref), append(waiting, placeOf(&v.Request))
		}
	}
	if len(waiting) == 0 {
		return nil
	}
	positions, err := inventory.LinePlaces(ctx, db, waiting)
	if err != nil {
		return err
	}
	for i, ref := range refs {
		v := views[ref]
		v.Position = &positions[i]
		views[ref] = v
	}
	return nil
}

const moveWaitingSQL = `
UPDATE reservation_requests r
SET cart_id = $3, customer_id = coalesce(nullif($4, ''), r.customer_id), updated_at = clock_timestamp()
WHERE same_holder(r.tenant_id, r.cart_id, $1, $2) AND r.status = 'waiting'`

// MoveWaitingTx moves the requests of a cart that wait in line to another cart.
// Each keeps its place. customerID is whose limits apply from then on; "" keeps
// the customer of each. It locks the requests.
//
// The transaction must be READ COMMITTED: an older snapshot would miss requests
// that are in line by now.
func MoveWaitingTx(ctx context.Context, tx pgx.Tx, tenantID uuid.UUID, from, to, customerID string) error {
	if _, err := tx.Exec(ctx, moveWaitingSQL, tenantID, from, to, customerID); err != nil {
		return fmt.Errorf("move what cart %s waits for: %w", from, err)
	}
	return nil
}
