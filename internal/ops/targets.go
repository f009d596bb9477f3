package ops

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/internal/inventory"
	"github.com/holdfast/holdfast/internal/pg"
)

// cartTargetsSQL reads the newest rows of a cart. UUIDv7 sort by time.
const cartTargetsSQL = `
WITH held AS MATERIALIZED (
    SELECT r.reservation_id, r.checkout_id
    FROM reservations r
    WHERE same_holder(r.tenant_id, r.holder_id, $1, $2) AND r.resource_kind = '` + inventory.Kind + `'
    ORDER BY r.reservation_id DESC
    LIMIT $3
),
failed AS MATERIALIZED (
    SELECT r.request_id
    FROM reservation_requests r
    WHERE same_holder(r.tenant_id, r.cart_id, $1, $2) AND r.status = 'failed'
    ORDER BY r.sequence DESC
    LIMIT $3
)
SELECT reservation_id FROM held
UNION
SELECT checkout_id FROM held WHERE checkout_id IS NOT NULL
UNION
SELECT request_id FROM failed`

// CartTargets returns the targets of a cart's audit rows: its newest
// reservations, their checkouts, and its newest failed requests, up to limit of
// each.
func CartTargets(ctx context.Context, db *pgxpool.Pool, tenantID uuid.UUID, cartID string, limit int) ([]uuid.UUID, error) {
	return targets(ctx, db, "cart "+cartID, cartTargetsSQL, tenantID, cartID, limit)
}

// newestMax is how many of a tenant's newest requests and reservations are read
// to find those of one variant. There is no index on their variant, which would
// cost every request an entry.
const newestMax = 5000

// variantTargetsSQL reads the tenant's newest rows by the primary keys, and
// older holds by reservations_resource_idx.
const variantTargetsSQL = `
WITH newest AS MATERIALIZED (
    SELECT r.reservation_id, r.resource_kind, r.resource_key
    FROM reservations r
    WHERE r.tenant_id = $1
    ORDER BY r.reservation_id DESC
    LIMIT $4
),
ended AS (
    SELECT n.reservation_id
    FROM newest n
    WHERE n.resource_kind = '` + inventory.Kind + `' AND n.resource_key = $2
    ORDER BY n.reservation_id DESC
    LIMIT $3
),
held AS (
    SELECT r.reservation_id
    FROM reservations r
    WHERE r.tenant_id = $1 AND r.resource_key = $2 AND r.quantity > 0 AND r.status = 'held' AND r.resource_kind = '` + inventory.Kind + `'
      AND r.expires_at >= (SELECT s.due_from FROM inventory_stocks s WHERE s.tenant_id = $1 AND s.variant_id = $2)
    ORDER BY r.expires_at DESC
    LIMIT $3
),
asked AS MATERIALIZED (
    SELECT r.request_id, r.variant_id, r.status
    FROM reservation_requests r
    WHERE r.tenant_id = $1
    ORDER BY r.request_id DESC
    LIMIT $4
),
failed AS (
    SELECT a.request_id
    FROM asked a
    WHERE a.variant_id = $2 AND a.status = 'failed'
    ORDER BY a.request_id DESC
    LIMIT $3
)
SELECT reservation_id FROM ended
UNION
SELECT reservation_id FROM held
UNION
SELECT request_id FROM failed`

// VariantTargets returns the targets of a variant's audit rows, besides its
// stock: its newest reservations and failed requests, up to limit of each. Of
// those that are not held, it finds the ones among the tenant's 5,000 newest.
func VariantTargets(ctx context.Context, db *pgxpool.Pool, tenantID uuid.UUID, variantID string, limit int) ([]uuid.UUID, error) {
	return targets(ctx, db, "variant "+variantID, variantTargetsSQL, tenantID, variantID, limit, newestMax)
}

func targets(ctx context.Context, db *pgxpool.Pool, of, sql string, args ...any) ([]uuid.UUID, error) {
	found, err := pg.ReadInOrder(ctx, db, pgx.RowTo[[16]byte], sql, args...)
	if err != nil {
		return nil, fmt.Errorf("targets of %s: %w", of, err)
	}
	ids := make([]uuid.UUID, len(found))
	for i := range found {
		ids[i] = found[i]
	}
	return ids, nil
}
