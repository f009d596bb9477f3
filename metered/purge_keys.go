package metered

import (
	"context"
	"fmt"
	"time"
)

// purgeKeysSQL asks the clock once, so that it bounds the index.
const purgeKeysSQL = `
WITH old AS MATERIALIZED (
    SELECT tenant_id, queue, idempotency_key
    FROM command_keys
    WHERE created_at < (SELECT clock_timestamp()) - $1::interval
      AND (ended_at IS NULL OR ended_at < (SELECT clock_timestamp()) - $1::interval)
    ORDER BY created_at
    LIMIT $2
    FOR UPDATE SKIP LOCKED
)
DELETE FROM command_keys k
USING old
WHERE k.tenant_id = old.tenant_id AND k.queue = old.queue AND k.idempotency_key = old.idempotency_key`

// PurgeKeys forgets up to limit idempotency keys, of all tenants, that are older than retention by the database's clock,
// the oldest first, and returns how many. A key whose command has ended is kept for as long after that, because a second run
// of its job finds there that it has ended: a retention of hours is longer than River takes to run a job again. A command
// sent again after that is a new one, and nothing is known of the old one; its job, if it still waits, is worked all the
// same. Several may run at once.
func (s *JobStore) PurgeKeys(ctx context.Context, retention time.Duration, limit int) (int64, error) {
	tag, err := s.db.Exec(ctx, purgeKeysSQL, retention, limit)
	if err != nil {
		return 0, fmt.Errorf("purge command keys: %w", err)
	}
	return tag.RowsAffected(), nil
}
