package requests

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

const fenceSQL = `
INSERT INTO reservation_requests (tenant_id, request_id, lane, status, reason, cart_id, variant_id, quantity, idempotency_key, fingerprint)
SELECT fence.tenant_id, fence.request_id, 'normal', 'failed', 'cancelled', '-', '-', 1, fence.idempotency_key, ''
FROM unnest($1::uuid[], $2::uuid[], $3::text[]) WITH ORDINALITY AS fence (tenant_id, request_id, idempotency_key, place)
ORDER BY fence.place
ON CONFLICT (tenant_id, idempotency_key) WHERE idempotency_key IS NOT NULL DO NOTHING`

const unfenceSQL = `
DELETE FROM reservation_requests r
USING unnest($1::uuid[], $2::uuid[]) AS fence (tenant_id, request_id)
WHERE r.tenant_id = fence.tenant_id AND r.request_id = fence.request_id`

// Key names an idempotency key of a tenant.
type Key struct {
	TenantID uuid.UUID
	Key      string
}

// QueueFence adds to b what makes sure that the idempotency keys, which are distinct and belong to calls that finish at
// once, do not belong to queued requests, and can't until the transaction ends: they take the keys' places in the status
// table for a moment, so that an admission with one of these keys waits. A key that is taken fails the batch with
// ErrKeyReused. It is right at every isolation level; above READ COMMITTED a key that was taken since the transaction's
// first statement is SQLSTATE 40001.
func QueueFence(b *pgx.Batch, keys []Key) {
	slices.SortFunc(keys, func(a, b Key) int { // as admissions sort theirs
		return cmp.Or(slices.Compare(a.TenantID[:], b.TenantID[:]), cmp.Compare(a.Key, b.Key))
	})
	tenants, ids, texts := make([][16]byte, len(keys)), make([][16]byte, len(keys)), make([]string, len(keys))
	for i, k := range keys {
		tenants[i], ids[i], texts[i] = k.TenantID, NewID(), k.Key
	}
	b.Queue(fenceSQL, tenants, ids, texts).Exec(func(tag pgconn.CommandTag) error {
		if tag.RowsAffected() != int64(len(keys)) {
			return ErrKeyReused
		}
		return nil
	})
	b.Queue(unfenceSQL, tenants, ids)
}

// FenceKeyTx is QueueFence for a key that tenants.ClaimKeyTx gave to a call. ErrKeyReused if it is taken: roll back, because
// the claim stands already. It is right at the same isolation levels.
func FenceKeyTx(ctx context.Context, tx pgx.Tx, tenantID uuid.UUID, key string) error {
	b := &pgx.Batch{}
	QueueFence(b, []Key{{tenantID, key}})
	err := tx.SendBatch(ctx, b).Close()
	if err != nil && !errors.Is(err, ErrKeyReused) {
		return fmt.Errorf("fence idempotency key: %w", err)
	}
	return err
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

func (s *Submission) key() Key { return Key{s.TenantID, s.IdempotencyKey} }

// sendThenClock sends the batch and returns the database's clock, read after the batch's last lock was granted.
func sendThenClock(ctx context.Context, tx pgx.Tx, b *pgx.Batch) (now time.Time, err error) {
	b.Queue(clockSQL).QueryRow(func(row pgx.Row) error { return row.Scan(&now) })
	return now, tx.SendBatch(ctx, b).Close()
}

const takenSQL = `
SELECT call.place
FROM unnest($1::uuid[], $2::text[]) WITH ORDINALITY AS call (tenant_id, idempotency_key, place)
JOIN reservation_requests r ON r.tenant_id = call.tenant_id AND r.idempotency_key = call.idempotency_key`

// QueueTaken adds to b what reads which of the idempotency keys belong to requests, and gives their places to found. One
// that is being admitted may not be among them: see QueueFence.
func QueueTaken(b *pgx.Batch, keys []Key, found func(place int)) {
	tenants, texts := make([][16]byte, len(keys)), make([]string, len(keys))
	for i, k := range keys {
		tenants[i], texts[i] = k.TenantID, k.Key
	}
	b.Queue(takenSQL, tenants, texts).Query(eachPlace(found))
}

// eachPlace gives the places that a statement returns, counted from 1, to found, counted from 0.
func eachPlace(found func(place int)) func(pgx.Rows) error {
	return func(rows pgx.Rows) error {
		var place int
		_, err := pgx.ForEachRow(rows, []any{&place}, func() error {
			found(place - 1)
			return nil
		})
		return err
	}
}
