package holdfast

import (
	"context"
	"io"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/internal/inventory"
	"github.com/holdfast/holdfast/internal/requestrows"
	"github.com/holdfast/holdfast/requests"
)

// A block is a variant whose units have their own identity: the seats of a
// hall.

// NewUnit is a unit to be added to a block.
type NewUnit = inventory.NewUnit

// Block returns a page of the units of a block and their counts, in the order
// of their positions: limit of them, or 100 if it is 0, after the cursor of an
// earlier page.
//
// Errors: *InvalidError, ErrUnknownVariant.
func (t *Tenant) Block(ctx context.Context, block string, limit int, cursor string) (inventory.UnitPage, error) {
	return inventory.ListUnits(ctx, t.client.db, t.TenantID, block, limit, cursor)
}

func (t *Tenant) createUnits(block string, units []NewUnit, opts *CallOpts) *call[int64] {
	return &call[int64]{t, opts, "CreateUnits", []any{block, units}, func(ctx context.Context, tx pgx.Tx) (added int64, _, err error) {
		added, err = inventory.AddUnitsTx(ctx, tx, t.TenantID, block, units, opts.origin())
		return added, nil, err
	}}
}

// CreateUnits adds up to 1,000 units to a block, and makes the block if there
// is none. It returns how many are new.
//
// Errors: *InvalidError, ErrKeyReused, ErrOutcomeUnknown.
func (t *Tenant) CreateUnits(ctx context.Context, block string, units []NewUnit, opts *CallOpts) (int64, error) {
	return t.createUnits(block, units, opts).run(ctx)
}

// CreateUnitsTx is CreateUnits in the caller's transaction. It locks the block's
// stock.
func (t *Tenant) CreateUnitsTx(ctx context.Context, tx pgx.Tx, block string, units []NewUnit, opts *CallOpts) (int64, error) {
	return t.createUnits(block, units, opts).inTx(ctx, tx)
}

// ImportUnits adds the units that the lines of r describe, CSV or NDJSON, as
// ImportStocks does.
func (t *Tenant) ImportUnits(ctx context.Context, block string, format inventory.Format, r io.Reader, opts *CallOpts) (inventory.UnitImportReport, error) {
	return inventory.ImportUnits(ctx, t.client.db, t.TenantID, block, format, r, opts.origin())
}

// AddUnits requests the named units of a block for a cart, all or none: 1 to
// 1,000 distinct ones.
//
// Errors: as Add. That a unit is taken is an outcome.
func (t *Tenant) AddUnits(ctx context.Context, cart, block string, unitIDs []string, opts *CallOpts) (Request, error) {
	return t.submit(ctx, namedUnits(cart, block, unitIDs), opts)
}

// AddUnitsTx is AddUnits in the caller's transaction, as AddTx is Add.
func (t *Tenant) AddUnitsTx(ctx context.Context, tx pgx.Tx, cart, block string, unitIDs []string, opts *CallOpts) (Request, error) {
	return t.submitTx(ctx, tx, namedUnits(cart, block, unitIDs), opts)
}

// AddAnyUnits requests any units of a block for a cart, as many as quantity;
// neighbours means that their positions are consecutive.
//
// Errors: as Add.
func (t *Tenant) AddAnyUnits(ctx context.Context, cart, block string, quantity int32, neighbours bool, opts *CallOpts) (Request, error) {
	return t.submit(ctx, anyUnits(cart, block, quantity, neighbours), opts)
}

// AddAnyUnitsTx is AddAnyUnits in the caller's transaction, as AddTx is Add.
func (t *Tenant) AddAnyUnitsTx(ctx context.Context, tx pgx.Tx, cart, block string, quantity int32, neighbours bool, opts *CallOpts) (Request, error) {
	return t.submitTx(ctx, tx, anyUnits(cart, block, quantity, neighbours), opts)
}

func namedUnits(cart, block string, ids []string) requestrows.Submission {
	return requestrows.Submission{
		Kind: requests.Add, CartID: cart, VariantID: block, Quantity: int32(len(ids)), // more than 1,000 are refused
		Units: &requests.Units{IDs: ids},
	}
}

func anyUnits(cart, block string, quantity int32, neighbours bool) requestrows.Submission {
	return requestrows.Submission{
		Kind: requests.Add, CartID: cart, VariantID: block, Quantity: quantity,
		Units: &requests.Units{Any: !neighbours, Contiguous: neighbours},
	}
}
