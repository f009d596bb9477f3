package ratelimit

import (
	"context"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/internal/purge"
)

// purgeRatesSQL compares the clock with rows, not with an index: full_at has
// none, because an index would cost every count.
const purgeRatesSQL = `
WITH piece AS MATERIALIZED (
    SELECT r.tenant_id, r.scope, r.full_at < (SELECT extract(epoch FROM clock_timestamp()) * 1000000000) AS idle
    FROM budget_rates r
    WHERE (r.tenant_id, r.scope) > ($1, $2)
    ORDER BY r.tenant_id, r.scope
    LIMIT $3
), idle AS MATERIALIZED (
    SELECT r.tenant_id, r.scope
    FROM piece
    JOIN budget_rates r USING (tenant_id, scope)
    WHERE piece.idle AND r.full_at < (SELECT extract(epoch FROM clock_timestamp()) * 1000000000)
    FOR UPDATE OF r SKIP LOCKED
), deleted AS (
    DELETE FROM budget_rates r
    USING idle
    WHERE r.tenant_id = idle.tenant_id AND r.scope = idle.scope
    RETURNING r.scope
)
SELECT p.tenant_id, p.scope, (SELECT count(*) FROM deleted) AS deleted, (SELECT count(*) FROM piece) AS examined
FROM piece p
ORDER BY p.tenant_id DESC, p.scope DESC
LIMIT 1`

// Position is a position in a purge's walk through the rates of all tenants.
type Position = purge.Position

// Purged is what one step of the walk did.
type Purged = purge.Step

// Purge reads up to limit rates after a position, of all tenants, and deletes
// those that are full: they mean the same as no row. Several processes may run
// it at once.
func Purge(ctx context.Context, db *pgxpool.Pool, after Position, limit int) (Purged, error) {
	return purge.Idle(ctx, db, "rates", purgeRatesSQL, after, limit)
}
