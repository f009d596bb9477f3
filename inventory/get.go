package inventory

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

const getSQL = selectStocks + `WHERE s.tenant_id = $1 AND s.variant_id = $2`

// Get returns one stock as the newest committed state has it, or as db's own transaction sees it. A variant that this
// tenant does not have, whoever else has it, is [ErrUnknownVariant]; an id that none can have is an [*InvalidError].
func Get(ctx context.Context, db queryer, tenantID uuid.UUID, variantID string) (Stock, error) {
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
