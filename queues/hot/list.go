package hot

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/requests"
)

// Variant is a hot variant.
type Variant struct {
	VariantID string    `json:"variant_id"`
	Slot      int16     `json:"slot"`
	State     string    `json:"state"`
	Pinned    bool      `json:"pinned"`
	MovedAt   time.Time `json:"moved_at"`
}

// ListMax is how many hot variants List returns at most.
const ListMax = 10_000

const listSQL = `
SELECT variant_id, slot, state, pinned, moved_at
FROM hot_variants
WHERE tenant_id = $1
ORDER BY variant_id
LIMIT $2`

// List returns the tenant's hot variants by name.
func List(ctx context.Context, db requests.Querier, tenantID uuid.UUID) ([]Variant, error) {
	rows, err := db.Query(ctx, listSQL, tenantID, ListMax)
	if err != nil {
		return nil, fmt.Errorf("list hot variants: %w", err)
	}
	return pgx.CollectRows(rows, pgx.RowToStructByPos[Variant])
}
