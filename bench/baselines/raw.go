package baselines

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5/pgxpool"
)

const rawSQL = `
WITH clock AS MATERIALIZED (
    SELECT t.now, t.now + $4::interval AS expires_at
    FROM (SELECT clock_timestamp() AS now) t
), done AS (
    UPDATE reservation_requests r
    SET status = 'done', updated_at = clock.now
    FROM clock
    WHERE r.lane = 'hot' AND r.slot = $1 AND r.sequence > $2 AND r.sequence <= $3
    RETURNING r.tenant_id, r.request_id, r.variant_id, r.cart_id, r.quantity, r.correlation_id
), counted AS (
    UPDATE inventory_stocks s
    SET reserved = s.reserved + wanted.quantity, updated_at = clock.now
    FROM clock, (SELECT tenant_id, variant_id, sum(quantity) AS quantity FROM done GROUP BY tenant_id, variant_id) wanted
    WHERE s.tenant_id = wanted.tenant_id AND s.variant_id = wanted.variant_id AND s.stock - s.reserved >= wanted.quantity
), held AS (
    INSERT INTO reservations (tenant_id, reservation_id, resource_kind, resource_key, holder_id, quantity,
                              first_held_at, held_at, expires_at)
    SELECT done.tenant_id, done.request_id, 'inventory.variant', done.variant_id, done.cart_id, done.quantity,
           clock.now, clock.now, clock.expires_at
    FROM done, clock
)
INSERT INTO audit_log (tenant_id, target_id, action, actor_kind, correlation_id, resource_kind, resource_key, holder_id, quantity, expires_at)
SELECT done.tenant_id, done.request_id, 'reservation.held', 'anonymous', coalesce(done.correlation_id, done.request_id::text),
       'inventory.variant', done.variant_id, done.cart_id, done.quantity, clock.expires_at
FROM done, clock`

// RawGroup is how many requests one raw statement decides: as many as a hot
// drain.
const RawGroup = 2000

// Raw writes the rows of a hot drain, into Holdfast's own tables, in one
// statement. It is a limit, not a way to hold units: it claims no requests,
// holds no lease, and finds its requests by their known sequence numbers.
type Raw struct{ DB *pgxpool.Pool }

// Hold decides all requests of a hot slot's stream after one sequence number up
// to another, and returns how many there were.
func (r *Raw) Hold(ctx context.Context, slot int16, after, to int64) (int64, error) {
	tag, err := r.DB.Exec(ctx, rawSQL, slot, after, to, ttl)
	if err != nil {
		return 0, fmt.Errorf("hold the requests %d to %d: %w", after+1, to, err)
	}
	return tag.RowsAffected(), nil
}
