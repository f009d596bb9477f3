package tenants

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/internal/isolation"
)

// CreateKey makes an API key and returns its plaintext, which cannot be had again. The name is 1 to 128 characters,
// need not be unique and must not hold control characters; at least one scope is needed, and naming one twice is the
// same as once.
//
// Errors: [*InvalidError] naming the field, [ErrUnknownTenant], [ErrTooManyKeys]. The key works as soon as the
// transaction has committed.
func CreateKey(ctx context.Context, pool *pgxpool.Pool, tenantID uuid.UUID, name string, scopes []Scope) (plaintext string, key Key, err error) {
	err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		plaintext, key, err = CreateKeyTx(ctx, tx, tenantID, name, scopes)
		return err
	})
	if err != nil {
		return "", Key{}, err
	}
	return plaintext, key, nil
}

const lockTenantSQL = `SELECT FROM tenants WHERE tenant_id = $1 FOR NO KEY UPDATE`

const insertKeySQL = `
INSERT INTO api_keys (tenant_id, key_id, name, prefix, hash, scopes)
SELECT t.tenant_id, $2, $3, $4, $5, $6
FROM tenants AS t
WHERE t.tenant_id = $1
  AND (SELECT count(*) FROM api_keys AS k WHERE k.tenant_id = $1 AND k.revoked_at IS NULL) < $7
RETURNING ` + keyColumns

// CreateKeyTx is [CreateKey] in the caller's transaction. It locks the tenant's row, so that two at once count right. The
// transaction must be READ COMMITTED, else [ErrIsolation]: an older snapshot would miss keys made since.
func CreateKeyTx(ctx context.Context, tx pgx.Tx, tenantID uuid.UUID, name string, scopes []Scope) (plaintext string, key Key, err error) {
	if err := validateText("name", name, MaxText); err != nil {
		return "", Key{}, err
	}
	if scopes, err = normalScopes(scopes); err != nil {
		return "", Key{}, err
	}
	id, err := uuid.NewV7()
	if err != nil {
		return "", Key{}, fmt.Errorf("create API key %s: %w", name, err)
	}
	plaintext = newSecret()
	hash := hashOf(plaintext)
	b := &pgx.Batch{}
	isolation.Queue(b)
	known := false
	b.Queue(lockTenantSQL, tenantID).Exec(func(tag pgconn.CommandTag) error {
		known = tag.RowsAffected() == 1
		return nil
	})
	b.Queue(insertKeySQL, tenantID, id, name, plaintext[:prefixLength], hash[:], scopes, MaxKeys).Query(func(rows pgx.Rows) error {
		key, err = pgx.CollectExactlyOneRow(rows, pgx.RowToStructByName[Key])
		return err
	})
	err = tx.SendBatch(ctx, b).Close()
	switch {
	case errors.Is(err, pgx.ErrNoRows) && !known:
		err = ErrUnknownTenant
	case errors.Is(err, pgx.ErrNoRows):
		err = ErrTooManyKeys
	}
	if err != nil {
		return "", Key{}, fmt.Errorf("create API key %s: %w", name, err)
	}
	return plaintext, key, nil
}
