package tenants

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// queryer is a pool, a connection or a transaction.
type queryer interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

const listKeysSQL = `
SELECT ` + keyColumns + `
FROM api_keys
WHERE tenant_id = $1
ORDER BY revoked_at IS NOT NULL, key_id DESC
LIMIT $2`

// ListKeys returns a tenant's keys, the valid ones first, all of them, then the revoked ones, newest first, up to
// [MaxKeys] together.
func ListKeys(ctx context.Context, db queryer, tenantID uuid.UUID) ([]Key, error) {
	rows, err := db.Query(ctx, listKeysSQL, tenantID, MaxKeys)
	if err != nil {
		return nil, fmt.Errorf("list API keys: %w", err)
	}
	keys, err := pgx.CollectRows(rows, pgx.RowToStructByName[Key])
	if err != nil {
		return nil, fmt.Errorf("list API keys: %w", err)
	}
	return keys, nil
}

const findKeySQL = `
SELECT ` + keyColumns + `
FROM api_keys
WHERE key_id = $1
LIMIT 1`

// FindKey returns the key with that id, whichever tenant has it, or [ErrKeyNotFound]. It is for the operator's tool: a
// caller that acts for one tenant uses [ListKeys] or [RevokeKey], which cannot see another tenant's. It reads all keys,
// because no index begins with a key's id.
func FindKey(ctx context.Context, db queryer, keyID uuid.UUID) (Key, error) {
	rows, err := db.Query(ctx, findKeySQL, keyID)
	if err != nil {
		return Key{}, fmt.Errorf("find API key %s: %w", keyID, err)
	}
	key, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByName[Key])
	if errors.Is(err, pgx.ErrNoRows) {
		err = ErrKeyNotFound
	}
	if err != nil {
		return Key{}, fmt.Errorf("find API key %s: %w", keyID, err)
	}
	return key, nil
}
