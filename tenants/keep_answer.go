package tenants

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

const keepAnswerSQL = `
UPDATE idempotency_keys
SET status_code = $3, body = $4
WHERE tenant_id = $1 AND idempotency_key = $2 AND status_code IS NULL`

// KeepAnswerTx keeps the answer of the call under the key that the same transaction claimed. Committed, it is what every
// later claim of the key is given, until it is purged. [ErrKeyNotClaimed] if there is no claim, or an answer already. It is
// right at every isolation level.
func KeepAnswerTx(ctx context.Context, tx pgx.Tx, tenantID uuid.UUID, key string, kept Answer) error {
	tag, err := tx.Exec(ctx, keepAnswerSQL, tenantID, key, kept.StatusCode, kept.Body)
	if err == nil && tag.RowsAffected() != 1 {
		err = ErrKeyNotClaimed
	}
	if err != nil {
		return fmt.Errorf("keep answer for idempotency key %s: %w", key, err)
	}
	return nil
}
