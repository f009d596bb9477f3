package inventory

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/audit"
)

const getSQL = selectStocks + `WHERE s.tenant_id = $1 AND s.variant_id = $2`

// Get returns one stock of the newest committed state or, if db is a
// transaction, of the state that it sees.
//
// Errors: [ErrUnknownVariant] for a variant that this tenant does not have,
// even if another tenant has it; [*InvalidError] for an invalid id.
func Get(ctx context.Context, db audit.Querier, tenantID uuid.UUID, variantID string) (Stock, error) {
	if err := ValidateID("variant_id", variantID); err != nil {
		return Stock{}, err
	}
	rows, err := db.Query(ctx, getSQL, tenantID, variantID)
	if err != nil {
		return Stock{}, fmt.Errorf("get stock %s: %w", variantID, err)
	}
	stock, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByName[Stock])
	if errors.Is(err, pgx.ErrNoRows) {
		err = ErrUnknownVariant
	}
	if err != nil {
		return Stock{}, fmt.Errorf("get stock %s: %w", variantID, err)
	}
	return stock, nil
}
