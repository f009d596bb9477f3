package audit

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

const pruneSQL = `
WITH piece AS MATERIALIZED (
    SELECT a.tenant_id, a.target_id, a.audit_id, a.created_at < clock_timestamp() - $1::interval AS old
    FROM audit_log a
    WHERE a.audit_id <= coalesce((SELECT min(position) FROM audit_subscriptions), 9223372036854775807)
    ORDER BY a.audit_id
    LIMIT $2
), old AS MATERIALIZED (
    SELECT a.tenant_id, a.target_id, a.audit_id
    FROM piece
    JOIN audit_log a USING (tenant_id, target_id, audit_id)
    WHERE piece.old
    FOR UPDATE OF a SKIP LOCKED
), deleted AS (
    DELETE FROM audit_log a
    USING old
    WHERE a.tenant_id = old.tenant_id AND a.target_id = old.target_id AND a.audit_id = old.audit_id
    RETURNING a.audit_id
)
SELECT count(*) FROM deleted`

// Prune deletes those of the limit oldest records that were written longer ago than retention, and returns how many. It
// never passes what a subscription has not been delivered: Unsubscribe one that nobody reads any more. Several may run at
// once; each leaves alone what another is deleting.
func Prune(ctx context.Context, db Querier, retention time.Duration, limit int) (int64, error) {
	rows, err := db.Query(ctx, pruneSQL, retention, limit)
	if err != nil {
		return 0, fmt.Errorf("prune the record: %w", err)
	}
	n, err := pgx.CollectExactlyOneRow(rows, pgx.RowTo[int64])
	if err != nil {
		return 0, fmt.Errorf("prune the record: %w", err)
	}
	return n, nil
}
