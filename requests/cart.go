package requests

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/audit"
	"github.com/holdfast/holdfast/internal/inventory"
	"github.com/holdfast/holdfast/internal/pg"
	"github.com/holdfast/holdfast/reservations"
)

// Removed is the result of a removal.
type Removed struct {
	// Released are the cart's holds that were released, without those that were
	// past their deadline. Cancelled are the cart's requests that were
	// cancelled before they were decided.
	Released  []reservations.Reservation
	Cancelled []uuid.UUID
}

// RemoveMax is how many undecided requests one removal cancels at most.
const RemoveMax = 10_000

const lockUnfinishedSQL = `
SELECT ` + columns + `
FROM reservation_requests r
WHERE r.tenant_id = $1 AND r.cart_id = $2 AND ($3 = '' OR r.variant_id = $3) AND r.status IN ('queued', 'processing')
ORDER BY r.sequence
LIMIT $4
FOR NO KEY UPDATE`

// Remove takes a variant out of a cart, or all variants if variantID is "".
// Queued requests fail with reason cancelled. Holds are released, or expired if
// they are past their deadline. Holds that the cart lost to expiry are
// acknowledged. Remove waits for a request that a worker is deciding. Removing
// a variant that is not in the cart is no error.
//
// Errors: *inventory.InvalidError for a reason that is not in
// reservations.ReleaseReasons.
func Remove(ctx context.Context, db *pgxpool.Pool, tenantID uuid.UUID, cartID, variantID string, reason reservations.ReleaseReason, origin audit.Origin) (removed Removed, err error) {
	err = pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		removed, err = RemoveTx(ctx, tx, tenantID, cartID, variantID, reason, origin)
		return err
	})
	return removed, err
}

// RemoveTx is Remove in the caller's transaction. It locks requests, then
// stocks, then reservations.
//
// The transaction must be READ COMMITTED, else ErrIsolation: an older snapshot
// would miss requests and holds that were added to the cart since.
func RemoveTx(ctx context.Context, tx pgx.Tx, tenantID uuid.UUID, cartID, variantID string, reason reservations.ReleaseReason, origin audit.Origin) (removed Removed, err error) {
	if err := inventory.ValidateReason(reason); err != nil {
		return removed, err
	}
	b := &pgx.Batch{}
	unfinished := pg.Collect(b, toRequest, lockUnfinishedSQL, tenantID, cartID, variantID, RemoveMax+1)
	now, err := sendThenClock(ctx, tx, b)
	if err != nil {
		return removed, fmt.Errorf("cancel what cart %s has queued: %w", cartID, err)
	}
	queued := *unfinished
	if len(queued) > RemoveMax { // all or nothing: the caller would take a part for the whole
		return removed, fmt.Errorf("cancel what cart %s has queued: more than %d requests", cartID, RemoveMax)
	}
	if len(queued) > 0 {
		reasons := make([]Reason, len(queued))
		for i := range queued {
			reasons[i] = Cancelled
			removed.Cancelled = append(removed.Cancelled, queued[i].RequestID)
		}
		by := origin
		by.Reason = cmp.Or(by.Reason, string(reason))
		if err := FinishTx(ctx, tx, queued, reasons, now, by); err != nil {
			return removed, fmt.Errorf("cancel what cart %s has queued: %w", cartID, err)
		}
	}
	removed.Released, err = inventory.ReleaseCartTx(ctx, tx, tenantID, cartID, variantID, reason, origin)
	return removed, err
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
FROM unnest($1::uuid[], $2::text[], $3::text[]) WITH ORDINALITY AS line (tenant_id, cart_id, variant_id, place)
CROSS JOIN LATERAL (
    SELECT
    FROM reservation_requests r
    WHERE r.tenant_id = line.tenant_id AND r.cart_id = line.cart_id AND (line.variant_id = '' OR r.variant_id = line.variant_id)
      AND r.status IN ('queued', 'processing')
    LIMIT 1
) pending`

// CartVariant names a variant in a cart, or (VariantID "") all of it.
type CartVariant struct {
	TenantID          uuid.UUID
	CartID, VariantID string
}

// QueuePending adds to b a statement that reads which of the carts have
// unfinished requests, and returns their indexes once the batch is sent. The
// caller reads the holds after it: a request that is no longer unfinished has
// its hold by then.
func QueuePending(b *pgx.Batch, carts []CartVariant) *[]int {
	tenants, ids, variants := make([][16]byte, len(carts)), make([]string, len(carts)), make([]string, len(carts))
	for i, c := range carts {
		tenants[i], ids[i], variants[i] = c.TenantID, c.CartID, c.VariantID
	}
	return pg.Collect(b, pgx.RowTo[int], pendingSQL, tenants, ids, variants)
}

// Checkout commits everything a cart holds, all or nothing.
//
// Errors, in order of precedence: ErrRequestsPending, inventory.ErrHoldExpired,
// inventory.ErrCartEmpty.
func Checkout(ctx context.Context, db *pgxpool.Pool, tenantID uuid.UUID, cartID string, origin audit.Origin) (committed []reservations.Reservation, err error) {
	err = pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		committed, err = CheckoutTx(ctx, tx, tenantID, cartID, origin)
		return err
	})
	return committed, err
}

// CheckoutTx is Checkout in the caller's transaction. It locks stocks, then
// reservations.
//
// The transaction must be READ COMMITTED, else ErrIsolation: an older snapshot
// would miss requests and holds that were added to the cart since.
// ErrRequestsPending precedes ErrIsolation.
func CheckoutTx(ctx context.Context, tx pgx.Tx, tenantID uuid.UUID, cartID string, origin audit.Origin) ([]reservations.Reservation, error) {
	b := &pgx.Batch{}
	pending := QueuePending(b, []CartVariant{{TenantID: tenantID, CartID: cartID}})
	if err := tx.SendBatch(ctx, b).Close(); err != nil {
		return nil, fmt.Errorf("check out cart %s: %w", cartID, err)
	}
	if len(*pending) > 0 {
		return nil, ErrRequestsPending
	}
	return inventory.CheckoutTx(ctx, tx, tenantID, cartID, origin)
}
