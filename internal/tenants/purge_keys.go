package tenants

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/internal/purge"
)

const keepKeySQL = `
UPDATE idempotency_keys
SET kept_with = $3
WHERE tenant_id = $1 AND idempotency_key = $2 AND status_code IS NULL`

// QueueKeepKey adds to b a statement that keeps the key, which the transaction
// has claimed, for longer than others: [PurgeKeys] leaves it, and
// [DeleteKeysTx] deletes it together with the row that has the given id. The
// batch fails with [ErrKeyNotClaimed] if there is no claim.
func QueueKeepKey(b *pgx.Batch, tenantID uuid.UUID, key string, with uuid.UUID) {
	b.Queue(keepKeySQL, tenantID, key, with).Exec(func(tag pgconn.CommandTag) error {
		if tag.RowsAffected() != 1 {
			return fmt.Errorf("keep idempotency key %s: %w", key, ErrKeyNotClaimed)
		}
		return nil
	})
}

// The condition on NULL is that of the index.
const deleteKeysSQL = `
DELETE FROM idempotency_keys k
USING unnest($1::uuid[], $2::uuid[]) AS gone (tenant_id, kept_with)
WHERE k.tenant_id = gone.tenant_id AND k.kept_with = gone.kept_with AND k.kept_with IS NOT NULL`

// DeleteKeysTx deletes the keys that were kept with rows which tx deletes, and
// returns how many. The rows are given by their tenants and ids. A call with
// such a key that arrives later is a new one. It is correct at every isolation
// level.
func DeleteKeysTx(ctx context.Context, tx pgx.Tx, tenantIDs, with [][16]byte) (int64, error) {
	tag, err := tx.Exec(ctx, deleteKeysSQL, tenantIDs, with)
	if err != nil {
		return 0, fmt.Errorf("delete idempotency keys: %w", err)
	}
	return tag.RowsAffected(), nil
}

// purgeKeysSQL reads the clock once, so that the clock bounds the index scan.
// Read for each row, it would be read for every key that is stored.
const purgeKeysSQL = `
WITH old AS MATERIALIZED (
    SELECT tenant_id, idempotency_key
    FROM idempotency_keys
    WHERE kept_with IS NULL AND created_at < (SELECT clock_timestamp()) - $1::interval
    ORDER BY created_at
    LIMIT $2
    FOR UPDATE SKIP LOCKED
)
DELETE FROM idempotency_keys AS k
USING old
WHERE k.tenant_id = old.tenant_id AND k.idempotency_key = old.idempotency_key`

// PurgeKeys deletes up to limit answers, of all tenants, that are older than
// olderThan by the database's clock, oldest first, and returns how many. It
// leaves those that are kept with another row ([QueueKeepKey]). A call sent
// again after that is a new one. Several processes may run it at once.
func PurgeKeys(ctx context.Context, pool *pgxpool.Pool, olderThan time.Duration, limit int) (int64, error) {
	return purge.Old(ctx, pool, "idempotency keys", purgeKeysSQL, olderThan, limit)
}
