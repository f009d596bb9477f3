package hot

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/requests"
)

// TakesNew reports whether requests for the variant that are sent now go to the hot lane. The zero Variant does not.
func (v Variant) TakesNew() bool { return v.VariantID != "" && v.State != "leaving" }

const amongSQL = `
SELECT variant_id, slot, state, pinned, moved_at
FROM hot_variants
WHERE tenant_id = $1 AND variant_id = ANY ($2::text[])`

// Among returns those of the named variants that are hot, or on their way in or out, by their ids.
func Among(ctx context.Context, db requests.Querier, tenantID uuid.UUID, variantIDs []string) (map[string]Variant, error) {
	rows, err := db.Query(ctx, amongSQL, tenantID, variantIDs)
	if err != nil {
		return nil, fmt.Errorf("look for hot variants among %d: %w", len(variantIDs), err)
	}
	list, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Variant])
	if err != nil {
		return nil, fmt.Errorf("look for hot variants among %d: %w", len(variantIDs), err)
	}
	among := make(map[string]Variant, len(list))
	for _, v := range list {
		among[v.VariantID] = v
	}
	return among, nil
}
