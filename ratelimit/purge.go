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

// Purge reads up to limit rates of all tenants, in the order of their keys, and
// deletes those that are full: they mean the same as no row. It begins after a
// rate, the zero value for the start of the table. It returns the last rate
// that it read, how many it deleted, and whether rates may follow the last one.
// Several processes may run it at once.
func Purge(ctx context.Context, db *pgxpool.Pool, after RateRef, limit int) (last RateRef, deleted int64, more bool, err error) {
	at, deleted, more, err := purge.Idle(ctx, db, "rates", purgeRatesSQL, purge.Position(after), limit)
	return RateRef(at), deleted, more, err
}
