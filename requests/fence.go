package requests

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/internal/pgerr"
)

const fenceSQL = `
INSERT INTO reservation_requests (tenant_id, request_id, lane, status, reason, cart_id, variant_id, quantity, idempotency_key, fingerprint)
VALUES ($1, $2, 'normal', 'failed', 'cancelled', '-', '-', 1, $3, '')
ON CONFLICT (tenant_id, idempotency_key) WHERE idempotency_key IS NOT NULL DO NOTHING`

const unfenceSQL = `DELETE FROM reservation_requests WHERE tenant_id = $1 AND request_id = $2`

// FenceKeyTx makes sure that an idempotency key which tenants.ClaimKeyTx gave to a call that finishes at once does not
// belong to a queued request, and can't until the transaction ends: it takes the key's place in the status table for a
// moment, so that an admission with the same key waits. ErrKeyReused if the key is taken: roll back, because the claim
// stands already.
func FenceKeyTx(ctx context.Context, tx pgx.Tx, tenantID uuid.UUID, key string) error {
	id := NewID()
	tag, err := tx.Exec(ctx, fenceSQL, tenantID, id, key)
	if err != nil {
		return fmt.Errorf("fence idempotency key: %w", err)
	}
	if tag.RowsAffected() == 0 {
		return ErrKeyReused
	}
	if _, err := tx.Exec(ctx, unfenceSQL, tenantID, id); err != nil {
		return fmt.Errorf("fence idempotency key: %w", err)
	}
	return nil
}

// foreignSQL finds keys that belong to calls which finish at once; see FenceKeyTx.
const foreignSQL = `
SELECT k.tenant_id, k.idempotency_key
FROM idempotency_keys k
JOIN unnest($1::uuid[], $2::text[]) AS wanted (tenant_id, idempotency_key) USING (tenant_id, idempotency_key)`

// refuseForeignSQL fails its transaction (division by zero) if foreignSQL would find anything.
const refuseForeignSQL = `
SELECT 1 / CASE WHEN EXISTS (` + foreignSQL + `) THEN 0 ELSE 1 END`

func foundForeign(err error) bool { return pgerr.Code(err) == "22012" }

// foreignError lists the keys of a group that belong to calls which finish at once.
type foreignError struct{ keys map[keyRef]bool }

type keyRef struct {
	TenantID uuid.UUID
	Key      string
}

func (e *foreignError) Error() string {
	return fmt.Sprintf("%d idempotency keys belong to calls that finish at once", len(e.keys))
}

// sendThenClock sends the batch and returns the database's clock, read after the batch's last lock was granted.
func sendThenClock(ctx context.Context, tx pgx.Tx, b *pgx.Batch) (now time.Time, err error) {
	b.Queue(clockSQL).QueryRow(func(row pgx.Row) error { return row.Scan(&now) })
	return now, tx.SendBatch(ctx, b).Close()
}
