package inventory

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/audit"
	"github.com/holdfast/holdfast/internal/pg"
	"github.com/holdfast/holdfast/internal/unitrows"
)

// ErrOutOfStock means that a transfer asks for more units than are free.
var ErrOutOfStock = errors.New("not so many units are free")

// TransferTx moves units from one variant's stock to another's, both or
// neither, and returns both stocks after that. It writes one audit row for each
// (stock.adjusted). Units of due holds are free once their expiry is recorded.
//
// Errors: [*InvalidError] for a quantity outside 1 to MaxStock, for from and to
// of one id, for a block, and for a stock above MaxStock; [ErrUnknownVariant];
// [ErrOutOfStock]. After one of them nothing has changed, and the transaction is
// still usable. It locks both stocks, in the order of their ids, and is correct
// at every isolation level.
func TransferTx(ctx context.Context, tx pgx.Tx, tenantID uuid.UUID, from, to string, quantity int64, origin audit.Origin) (source, target Stock, err error) {
	if err := errors.Join(ValidateID("from", from), ValidateID("to", to)); err != nil {
		return source, target, err
	}
	switch {
	case from == to:
		return source, target, &InvalidError{Field: "to", Message: "must be another variant than from"}
	case quantity < 1 || quantity > MaxStock:
		return source, target, &InvalidError{Field: "quantity", Message: fmt.Sprintf("must be between 1 and %d", MaxStock)}
	}
	results, err := editTx(ctx, tx, tenantID, []edit{{variantID: from, delta: -quantity}, {variantID: to, delta: quantity}}, true, origin)
	if err != nil {
		return source, target, fmt.Errorf("transfer from stock %s to %s: %w", from, to, err)
	}
	source, target = results[0].stock, results[1].stock
	for i, field := range []string{"from", "to"} {
		refused := results[i].refused
		switch invalid, is := errors.AsType[*InvalidError](refused); {
		case refused == nil:
			continue
		case is && invalid.Field == "delta" && i == 0, errors.Is(refused, ErrBelowReserved):
			refused = ErrOutOfStock
		case is && invalid.Field == "delta":
			refused = &InvalidError{Field: "quantity", Message: invalid.Message}
		case is:
			refused = &InvalidError{Field: field, Message: invalid.Message}
		}
		return Stock{}, Stock{}, fmt.Errorf("transfer from stock %s to %s: %w", from, to, refused)
	}
	return source, target, nil
}

const (
	lockOneSQL = selectStocks + `WHERE s.tenant_id = $1 AND s.variant_id = $2 FOR NO KEY UPDATE OF s`

	deleteSQL = `DELETE FROM inventory_stocks WHERE tenant_id = $1 AND variant_id = $2`
)

// DeleteTx deletes a variant, or a block with its units. Requests for it then
// fail with UnknownVariant, and a new one may have its id. It writes one audit
// row (stock.deleted), and the record stays.
//
// Errors: [*InvalidError]; [ErrUnknownVariant]; [ErrBelowReserved] while units
// are reserved. It locks the stock. A caller that moves the variant between
// lanes does so before. It is correct at every isolation level.
func DeleteTx(ctx context.Context, tx pgx.Tx, tenantID uuid.UUID, variantID string, origin audit.Origin) error {
	if err := ValidateID("variant_id", variantID); err != nil {
		return err
	}
	rows, _ := tx.Query(ctx, lockOneSQL, tenantID, variantID)
	stock, err := pgx.CollectExactlyOneRow(rows, toStock)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		err = ErrUnknownVariant
	case err == nil && stock.Reserved > 0:
		err = ErrBelowReserved
	}
	if err != nil {
		return fmt.Errorf("delete stock %s: %w", variantID, err)
	}
	now, err := pg.ReadClock(ctx, tx)
	if err != nil {
		return err
	}
	if err := endRestsTx(ctx, tx, Ref{tenantID, variantID}, "", now, origin); err != nil {
		return err
	}
	before, err := stock.encode()
	if err != nil {
		return err
	}
	after, err := json.Marshal(map[string]string{"variant_id": variantID})
	if err != nil {
		return fmt.Errorf("delete stock %s: %w", variantID, err)
	}
	b := &pgx.Batch{}
	if stock.NamedUnits {
		unitrows.QueueDelete(b, unitrows.Block{TenantID: tenantID, Block: variantID})
	}
	b.Queue(deleteSQL, tenantID, variantID)
	audit.Queue(b, []audit.Entry{{
		TenantID: tenantID, TargetID: Target(tenantID, variantID), Action: "stock.deleted", Origin: origin,
		Before: before, After: after,
	}})
	if err := tx.SendBatch(ctx, b).Close(); err != nil {
		return fmt.Errorf("delete stock %s: %w", variantID, err)
	}
	return nil
}
