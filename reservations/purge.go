package reservations

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// purgeSQL asks the clock once; see dueSQL.
const purgeSQL = `
WITH old AS MATERIALIZED (
    SELECT r.tenant_id, r.reservation_id
    FROM reservations r
    WHERE r.ended_at < (SELECT clock_timestamp()) - $2::interval AND r.resource_kind = $1
    ORDER BY r.ended_at
    LIMIT $3
    FOR UPDATE SKIP LOCKED
)
DELETE FROM reservations r
USING old
WHERE r.tenant_id = old.tenant_id AND r.reservation_id = old.reservation_id`

// PurgeEnded deletes up to limit reservations of one kind that ended longer ago than retention, the earliest first. It
// is for kinds whose committed reservations count against nothing any more: a variant's units have left its stock.
func PurgeEnded(ctx context.Context, db *pgxpool.Pool, kind string, retention time.Duration, limit int) (int64, error) {
	tag, err := db.Exec(ctx, purgeSQL, kind, retention, limit)
	if err != nil {
		return 0, fmt.Errorf("purge ended reservations of %s: %w", kind, err)
	}
	return tag.RowsAffected(), nil
}
