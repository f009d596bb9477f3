package tenants

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// RevokeKey ends a key for ever and returns it; revoking it again changes nothing. Every [Authenticator] refuses it
// within its CacheFor. A key that this tenant does not have, whoever else has it, is [ErrKeyNotFound].
func RevokeKey(ctx context.Context, pool *pgxpool.Pool, tenantID, keyID uuid.UUID) (key Key, err error) {
	err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		key, err = RevokeKeyTx(ctx, tx, tenantID, keyID)
		return err
	})
	return key, err
}

const revokeKeySQL = `
UPDATE api_keys
SET revoked_at = COALESCE(revoked_at, clock_timestamp())
WHERE tenant_id = $1 AND key_id = $2
RETURNING ` + keyColumns

// RevokeKeyTx is [RevokeKey] in the caller's transaction. It is right at every isolation level.
func RevokeKeyTx(ctx context.Context, tx pgx.Tx, tenantID, keyID uuid.UUID) (Key, error) {
	rows, err := tx.Query(ctx, revokeKeySQL, tenantID, keyID)
	if err != nil {
		return Key{}, fmt.Errorf("revoke API key %s: %w", keyID, err)
	}
	key, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByName[Key])
	if errors.Is(err, pgx.ErrNoRows) {
		err = ErrKeyNotFound
	}
	if err != nil {
		return Key{}, fmt.Errorf("revoke API key %s: %w", keyID, err)
	}
	return key, nil
}
