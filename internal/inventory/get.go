package inventory

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/audit"
	"github.com/holdfast/holdfast/internal/reservationrows"
	"github.com/holdfast/holdfast/reservations"
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

// GetAll returns those of the stocks that exist, by their ids.
func GetAll(ctx context.Context, db audit.Querier, tenantID uuid.UUID, variantIDs []string) (map[string]Stock, error) {
	rows, err := db.Query(ctx, readSQL, tenantID, variantIDs)
	if err != nil {
		return nil, fmt.Errorf("get %d stocks: %w", len(variantIDs), err)
	}
	list, err := pgx.CollectRows(rows, pgx.RowToStructByName[Stock])
	if err != nil {
		return nil, fmt.Errorf("get %d stocks: %w", len(variantIDs), err)
	}
	found := make(map[string]Stock, len(list))
	for _, stock := range list {
		found[stock.VariantID] = stock
	}
	return found, nil
}

// NextDue returns up to limit holds of the tenant that are not due yet, those
// with the earliest deadlines first. A tenant with more than 5,000 holds may
// not see its earliest ones while other tenants have earlier ones.
func NextDue(ctx context.Context, db audit.Querier, tenantID uuid.UUID, limit int) ([]reservations.Reservation, error) {
	return reservationrows.NextDue(ctx, db, tenantID, Kind, limit)
}
