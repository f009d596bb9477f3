package inventory

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/audit"
)

// searchSQL compares bytes, as inventory_stocks_prefix_idx does.
const searchSQL = selectStocks + `
WHERE s.tenant_id = $1 AND s.variant_id COLLATE "C" >= $2 AND s.variant_id COLLATE "C" < $3
ORDER BY s.variant_id COLLATE "C"
LIMIT $4`

// lastCharacter is above every character that an id continues with.
const lastCharacter = "\U0010FFFF"

// Search returns the tenant's stocks whose ids begin with prefix, at most limit
// of them, in the order of the bytes of their ids.
func Search(ctx context.Context, db audit.Querier, tenantID uuid.UUID, prefix string, limit int) ([]Stock, error) {
	rows, err := db.Query(ctx, searchSQL, tenantID, prefix, prefix+lastCharacter, limit)
	if err != nil {
		return nil, fmt.Errorf("search stocks: %w", err)
	}
	found, err := pgx.CollectRows(rows, pgx.RowToStructByName[Stock])
	if err != nil {
		return nil, fmt.Errorf("search stocks: %w", err)
	}
	return found, nil
}
