package metered

import (
	"context"

	"github.com/jackc/pgx/v5/pgxpool"
)

// purgeRatesSQL compares the clock with rows, not with an index: full_at has none, so that counting stays cheap.
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
SELECT p.tenant_id, p.scope, (SELECT count(*) FROM deleted) AS deleted, (SELECT count(*) FROM piece) AS looked
FROM piece p
ORDER BY p.tenant_id DESC, p.scope DESC
LIMIT 1`

// PurgeRates looks at up to limit rates behind a position, of all tenants, and deletes those that are full: they say what
// a rate without a row says. Several may run at once.
func PurgeRates(ctx context.Context, db *pgxpool.Pool, after ScopePosition, limit int) (PurgedScopes, error) {
	return purgeIdle(ctx, db, "rates", purgeRatesSQL, after, limit)
}
