package tenants

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// purgeKeysSQL asks the clock once, so that it bounds the index: asked for each row, it would be asked for all that is kept.
const purgeKeysSQL = `
WITH old AS MATERIALIZED (
    SELECT tenant_id, idempotency_key
    FROM idempotency_keys
    WHERE created_at < (SELECT clock_timestamp()) - $1::interval
    ORDER BY created_at
    LIMIT $2
    FOR UPDATE SKIP LOCKED
)
DELETE FROM idempotency_keys AS k
USING old
WHERE k.tenant_id = old.tenant_id AND k.idempotency_key = old.idempotency_key`

// PurgeKeys deletes up to limit answers, of all tenants, that are older than olderThan by the database's clock, oldest
// first, and says how many. A call sent again after that is a new one. It may run twice at once.
func PurgeKeys(ctx context.Context, pool *pgxpool.Pool, olderThan time.Duration, limit int) (int64, error) {
	tag, err := pool.Exec(ctx, purgeKeysSQL, olderThan, limit)
	if err != nil {
		return 0, fmt.Errorf("purge idempotency keys: %w", err)
	}
	return tag.RowsAffected(), nil
}
