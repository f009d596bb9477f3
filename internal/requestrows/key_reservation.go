package requestrows

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/holdfast/holdfast/internal/pg"
	"github.com/holdfast/holdfast/internal/tenants"
)

const reserveKeysSQL = `
INSERT INTO reservation_requests (tenant_id, request_id, lane, status, reason, cart_id, variant_id, quantity, idempotency_key, fingerprint)
SELECT reserved.tenant_id, reserved.request_id, 'normal', 'failed', 'cancelled', '-', '-', 1, reserved.idempotency_key, ''
FROM unnest($1::uuid[], $2::uuid[], $3::text[]) WITH ORDINALITY AS reserved (tenant_id, request_id, idempotency_key, place)
ORDER BY reserved.place
ON CONFLICT (tenant_id, idempotency_key) WHERE idempotency_key IS NOT NULL DO NOTHING`

const unreserveKeysSQL = `
DELETE FROM reservation_requests r
USING unnest($1::uuid[], $2::uuid[]) AS reserved (tenant_id, request_id)
WHERE r.tenant_id = reserved.tenant_id AND r.request_id = reserved.request_id`

// Key names an idempotency key of a tenant.
type Key struct {
	TenantID uuid.UUID
	Key      string
}

// QueueReserveKeys adds to b the statements that reserve idempotency keys for
// calls that finish at once. The keys are distinct. No request has a reserved
// key, or can take it until the transaction ends. The statements insert a row
// with the key into the status table and delete it again, so an admission with
// the key waits for the transaction. If a request has one of the keys, the
// batch fails with ErrKeyReused.
//
// It is correct at every isolation level. Above READ COMMITTED, a key that was
// taken since the transaction's first statement causes SQLSTATE 40001.
func QueueReserveKeys(b *pgx.Batch, keys []Key) {
	slices.SortFunc(keys, func(a, b Key) int { // in the order in which admissions insert theirs
		return cmp.Or(slices.Compare(a.TenantID[:], b.TenantID[:]), cmp.Compare(a.Key, b.Key))
	})
	tenantIDs, ids, texts := make([][16]byte, len(keys)), make([][16]byte, len(keys)), make([]string, len(keys))
	for i, k := range keys {
		tenantIDs[i], ids[i], texts[i] = k.TenantID, NewID(), k.Key
	}
	b.Queue(reserveKeysSQL, tenantIDs, ids, texts).Exec(func(tag pgconn.CommandTag) error {
		if tag.RowsAffected() != int64(len(keys)) {
			return ErrKeyReused
		}
		return nil
	})
	b.Queue(unreserveKeysSQL, tenantIDs, ids)
}

// ReserveKeyTx is QueueReserveKeys for a key that a call has claimed with
// tenants.ClaimKeyTx. It is correct at the same isolation levels.
//
// Errors: ErrKeyReused if a request has the key. The caller must then roll
// back, because the transaction contains the claim.
func ReserveKeyTx(ctx context.Context, tx pgx.Tx, tenantID uuid.UUID, key string) error {
	b := &pgx.Batch{}
	QueueReserveKeys(b, []Key{{tenantID, key}})
	err := tx.SendBatch(ctx, b).Close()
	if err != nil && !errors.Is(err, ErrKeyReused) {
		return fmt.Errorf("reserve idempotency key: %w", err)
	}
	return err
}

const takenSQL = `
SELECT call.place - 1
FROM unnest($1::uuid[], $2::text[]) WITH ORDINALITY AS call (tenant_id, idempotency_key, place)
JOIN reservation_requests r ON r.tenant_id = call.tenant_id AND r.idempotency_key = call.idempotency_key`

// QueueTaken adds to b a statement that reads which of the idempotency keys
// belong to requests, and returns their indexes once the batch is sent. It may
// miss the key of a request that is being admitted: see QueueReserveKeys.
func QueueTaken(b *pgx.Batch, keys []Key) *[]int {
	tenantIDs, texts := make([][16]byte, len(keys)), make([]string, len(keys))
	for i, k := range keys {
		tenantIDs[i], texts[i] = k.TenantID, k.Key
	}
	return pg.Collect(b, pgx.RowTo[int], takenSQL, tenantIDs, texts)
}

// OnceTx calls do once for an idempotency key of the tenant: if it was called
// under the key before, OnceTx returns the answer of that call instead, which
// has the fingerprint of this one. An empty key calls do every time. A refusal
// of do is an outcome: what do has written is to be committed, and nothing is
// stored under the key. It is correct at the same isolation levels as
// tenants.ClaimKeyTx.
//
// Errors: those of do; ErrKeyReused and tenants.ErrKeyReused for a key of
// another call.
func OnceTx(ctx context.Context, tx pgx.Tx, key Key, fingerprint [32]byte, do func() (answer tenants.Answer, refusal, err error)) (stored *tenants.Answer, refusal, err error) {
	if key.Key == "" {
		_, refusal, err = do()
		return nil, refusal, err
	}
	stored, err = tenants.ClaimKeyTx(ctx, tx, key.TenantID, key.Key, fingerprint)
	if err != nil || stored != nil {
		return stored, nil, err
	}
	if err := ReserveKeyTx(ctx, tx, key.TenantID, key.Key); err != nil {
		return nil, nil, err
	}
	answer, refusal, err := do()
	switch {
	case err != nil:
		return nil, nil, err
	case refusal != nil:
		return nil, refusal, tenants.ForgetClaimTx(ctx, tx, key.TenantID, key.Key)
	}
	return nil, nil, tenants.StoreAnswerTx(ctx, tx, key.TenantID, key.Key, answer)
}
