package requests

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

const fenceSQL = `
INSERT INTO reservation_requests (tenant_id, request_id, lane, status, reason, cart_id, variant_id, quantity, idempotency_key, fingerprint)
VALUES ($1, $2, 'normal', 'failed', 'cancelled', '-', '-', 1, $3, '')
ON CONFLICT (tenant_id, idempotency_key) WHERE idempotency_key IS NOT NULL DO NOTHING`

const unfenceSQL = `DELETE FROM reservation_requests WHERE tenant_id = $1 AND request_id = $2`

// FenceKeyTx makes sure that an idempotency key which tenants.ClaimKeyTx gave to a call that finishes at once does not
// belong to a queued request, and can't until the transaction ends: it takes the key's place in the status table for a
// moment, so that an admission with the same key waits. ErrKeyReused if the key is taken: roll back, because the claim
// stands already. It is right at every isolation level; above READ COMMITTED a key that was taken since the transaction's
// first statement is SQLSTATE 40001.
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

// takeBackForeignSQL deletes the group's rows whose keys belong to calls that finish at once. It is a statement of its own
// behind the insert, because an insert that waited for such a call (see FenceKeyTx) doesn't see the key that the call
// committed. A row from before can't be among them: a key of a request is never claimed for such a call.
const takeBackForeignSQL = `
WITH used AS MATERIALIZED (
    SELECT a.tenant_id, a.request_id
    FROM unnest($1::uuid[], $2::uuid[], $3::text[]) AS a (tenant_id, request_id, idempotency_key)
    JOIN idempotency_keys k ON k.tenant_id = a.tenant_id AND k.idempotency_key = a.idempotency_key
)
DELETE FROM reservation_requests r
USING used
WHERE r.tenant_id = used.tenant_id AND r.request_id = used.request_id
RETURNING r.tenant_id, r.idempotency_key`

// keyRef names an idempotency key.
type keyRef struct {
	TenantID uuid.UUID
	Key      string
}

func (s *Submission) key() keyRef { return keyRef{s.TenantID, s.IdempotencyKey} }

// sendThenClock sends the batch and returns the database's clock, read after the batch's last lock was granted.
func sendThenClock(ctx context.Context, tx pgx.Tx, b *pgx.Batch) (now time.Time, err error) {
	b.Queue(clockSQL).QueryRow(func(row pgx.Row) error { return row.Scan(&now) })
	return now, tx.SendBatch(ctx, b).Close()
}
