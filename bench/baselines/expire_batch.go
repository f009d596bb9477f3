package baselines

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

const dueEnd = `
WITH due AS MATERIALIZED (
    SELECT tenant_id, hold_id
    FROM baseline.holds
    WHERE status = 'held' AND expires_at <= now()
    ORDER BY expires_at
    LIMIT $1
    FOR UPDATE SKIP LOCKED
), ended AS (
    UPDATE baseline.holds h
    SET status = 'expired'
    FROM due
    WHERE h.tenant_id = due.tenant_id AND h.hold_id = due.hold_id
    RETURNING h.tenant_id, h.hold_id, h.variant_id, h.quantity
), record AS (
    INSERT INTO baseline.audit (tenant_id, hold_id, action, after)
    SELECT tenant_id, hold_id, 'hold.expired', '{"status": "expired", "reason": "ttl"}'
    FROM ended
), returned AS (
    UPDATE baseline.stocks s
    SET reserved = s.reserved - e.quantity
    FROM (SELECT tenant_id, variant_id, sum(quantity)::bigint AS quantity FROM ended GROUP BY tenant_id, variant_id) e
    WHERE s.tenant_id = e.tenant_id AND s.variant_id = e.variant_id
)
SELECT count(*) FROM ended`

// ExpireBatch ends many due holds in one statement, as a service does in the
// background. It skips holds that a call has locked, and locks holds before
// stocks as the calls do. It does not sort the stocks: it could deadlock with
// calls that lock several, but the carts that are measured with it have one
// variant.
type ExpireBatch struct{ DB *pgxpool.Pool }

const (
	expireEvery = time.Second
	expireGroup = 500
)

// RunOnce ends up to limit due holds and returns how many.
func (e *ExpireBatch) RunOnce(ctx context.Context, limit int) (ended int, err error) {
	if err := e.DB.QueryRow(ctx, dueEnd, limit).Scan(&ended); err != nil {
		return 0, fmt.Errorf("expire due holds: %w", err)
	}
	return ended, nil
}

// Run ends due holds each second until ctx ends, in groups. It returns the
// first error.
func (e *ExpireBatch) Run(ctx context.Context) error {
	tick := time.NewTicker(expireEvery)
	defer tick.Stop()
	for {
		ended, err := e.RunOnce(ctx, expireGroup)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		if ended == expireGroup {
			continue
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}
