package checkouts

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// purgeSQL reads the clock in a sub-select, which makes it one value that
// bounds the index scan.
const purgeSQL = `
WITH old AS MATERIALIZED (
    SELECT c.tenant_id, c.checkout_id
    FROM checkouts c
    WHERE c.ended_at IS NOT NULL AND c.ended_at < (SELECT clock_timestamp()) - $1::interval
    ORDER BY c.ended_at
    LIMIT $2
    FOR UPDATE SKIP LOCKED
)
DELETE FROM checkouts c
USING old
WHERE c.tenant_id = old.tenant_id AND c.checkout_id = old.checkout_id`

// PurgeEnded deletes up to limit checkouts, of all tenants, that ended longer
// ago than retention by the database's clock, the oldest first, and returns how
// many. It waits for no lock. Several processes may run it at once.
func PurgeEnded(ctx context.Context, db *pgxpool.Pool, retention time.Duration, limit int) (int64, error) {
	tag, err := db.Exec(ctx, purgeSQL, retention, limit)
	if err != nil {
		return 0, fmt.Errorf("purge ended checkouts: %w", err)
	}
	return tag.RowsAffected(), nil
}
