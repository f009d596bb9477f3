package tenants

import (
	"context"
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
