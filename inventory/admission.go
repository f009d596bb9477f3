package inventory

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

const anyGuardedSQL = `
SELECT tenant_id, variant_id
FROM inventory_stocks
WHERE admission <> 'open'
LIMIT 1`

// Guarded is a variant that not everybody may add to a cart.
type Guarded struct {
	TenantID  uuid.UUID
	VariantID string
}

// AnyGuarded finds a variant, of any tenant, whose admission is not AdmissionOpen; nil if there is none. An index lists
// them.
func AnyGuarded(ctx context.Context, db queryer) (*Guarded, error) {
	rows, err := db.Query(ctx, anyGuardedSQL)
	if err != nil {
		return nil, fmt.Errorf("look for a variant that requires a token: %w", err)
	}
	found, err := pgx.CollectRows(rows, pgx.RowToAddrOfStructByName[Guarded])
	if err != nil {
		return nil, fmt.Errorf("look for a variant that requires a token: %w", err)
	}
	if len(found) == 0 {
		return nil, nil
	}
	return found[0], nil
}
