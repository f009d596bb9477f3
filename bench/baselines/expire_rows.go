package baselines

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"
)

const (
	dueInsert = `
WITH due AS (
    INSERT INTO baseline.holds (tenant_id, hold_id, variant_id, cart_id, quantity, held_at, expires_at)
    SELECT s.tenant_id, gen_random_uuid(), s.variant_id, 'cart-' || n, 1, now() - interval '1 hour',
           now() - interval '45 minutes' - random() * interval '10 minutes'
    FROM baseline.stocks s, generate_series(1, $1) AS n
    RETURNING tenant_id, variant_id, quantity
)
UPDATE baseline.stocks s
SET reserved = s.reserved + d.quantity
FROM (SELECT tenant_id, variant_id, sum(quantity)::bigint AS quantity FROM due GROUP BY tenant_id, variant_id) d
WHERE s.tenant_id = d.tenant_id AND s.variant_id = d.variant_id`
	dueSelect = `
SELECT tenant_id, hold_id, variant_id
FROM baseline.holds
WHERE status = 'held' AND expires_at <= now()
ORDER BY expires_at
LIMIT $1`
	holdExpire = `
UPDATE baseline.holds
SET status = 'expired'
WHERE tenant_id = $1 AND hold_id = $2 AND status = 'held' AND expires_at <= now()
RETURNING tenant_id, variant_id, quantity`
	stockReturn = `UPDATE baseline.stocks SET reserved = reserved - $3 WHERE tenant_id = $1 AND variant_id = $2`
	holdEnd     = `
WITH ended AS (` + holdExpire + `)
UPDATE baseline.stocks s
SET reserved = s.reserved - ended.quantity
FROM ended
WHERE s.tenant_id = ended.tenant_id AND s.variant_id = ended.variant_id`
	endAudit = `
INSERT INTO baseline.audit (tenant_id, hold_id, action, after)
VALUES ($1, $2, 'hold.expired', '{"status": "expired", "reason": "ttl"}')`
	countEnded = `
SELECT (SELECT count(*) FROM baseline.holds WHERE status = 'expired'),
       (SELECT count(*) FROM baseline.audit WHERE action = 'hold.expired'),
       (SELECT coalesce(sum(reserved), 0)::bigint FROM baseline.stocks), (SELECT count(*) FROM baseline.holds WHERE status = 'held')`
)

// ExpireRows ends due holds row by row, as an hourly job would. It reads which
// are due, then ends each in a separate transaction: BEGIN, the hold, its audit
// row, the stock, COMMIT. Pipelined sends them in one round trip. Parallel is
// how many it ends at one time.
type ExpireRows struct {
	DB        *pgxpool.Pool
	Parallel  int
	Pipelined bool
}

// Fill makes holds that are due, the given number of each variant.
func (e *ExpireRows) Fill(ctx context.Context, each int) error {
	if _, err := e.DB.Exec(ctx, dueInsert, each); err != nil {
		return fmt.Errorf("fill in due holds: %w", err)
	}
	_, err := e.DB.Exec(ctx, `ANALYZE baseline.holds, baseline.stocks`)
	return err
}

type due struct {
	TenantID, HoldID uuid.UUID
	VariantID        string
}

var errNotDue = errors.New("baselines: it has ended, or was extended")

// RunOnce ends up to limit due holds and returns how many it ended.
func (e *ExpireRows) RunOnce(ctx context.Context, limit int) (int, error) {
	rows, err := e.DB.Query(ctx, dueSelect, limit)
	if err != nil {
		return 0, fmt.Errorf("read what is due: %w", err)
	}
	found, err := pgx.CollectRows(rows, pgx.RowToStructByPos[due])
	if err != nil {
		return 0, fmt.Errorf("read what is due: %w", err)
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(e.Parallel)
	for _, d := range found {
		g.Go(func() error { return e.end(ctx, d) })
	}
	return len(found), g.Wait()
}

// end is one hold's transaction.
func (e *ExpireRows) end(ctx context.Context, d due) error {
	if !e.Pipelined {
		return pgx.BeginFunc(ctx, e.DB, func(tx pgx.Tx) error { return endTx(ctx, tx, d) })
	}
	b := &pgx.Batch{} // sent as one implicit transaction
	b.Queue(endAudit, d.TenantID, d.HoldID)
	b.Queue(holdEnd, d.TenantID, d.HoldID).Exec(func(tag pgconn.CommandTag) error {
		if tag.RowsAffected() != 1 {
			return fmt.Errorf("hold %s: %w", d.HoldID, errNotDue)
		}
		return nil
	})
	return e.DB.SendBatch(ctx, b).Close()
}

func endTx(ctx context.Context, tx pgx.Tx, d due) error {
	var tenant uuid.UUID
	var variant string
	var quantity int64
	err := tx.QueryRow(ctx, holdExpire, d.TenantID, d.HoldID).Scan(&tenant, &variant, &quantity)
	if errors.Is(err, pgx.ErrNoRows) {
		return fmt.Errorf("hold %s: %w", d.HoldID, errNotDue)
	}
	if err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, endAudit, d.TenantID, d.HoldID); err != nil {
		return err
	}
	_, err = tx.Exec(ctx, stockReturn, tenant, variant, quantity)
	return err
}

// CheckExpired fails unless exactly the given number of holds was ended, each
// with its audit row, and its units given back.
func (e *ExpireRows) CheckExpired(ctx context.Context, ended int64) error {
	var expired, audited, reserved, held int64
	if err := e.DB.QueryRow(ctx, countEnded).Scan(&expired, &audited, &reserved, &held); err != nil {
		return fmt.Errorf("count the ended holds: %w", err)
	}
	if expired != ended || audited != ended || reserved != held {
		return fmt.Errorf("the ended holds do not add up: %d were ended, %d are, with %d audit rows; %d units are reserved by %d holds",
			ended, expired, audited, reserved, held)
	}
	return nil
}
