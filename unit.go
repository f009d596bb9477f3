package holdfast

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/internal/inventory"
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
	return &call[int64]{
		tenant: t, opts: opts, verb: "CreateUnits", args: []any{block, units},
		do: func(ctx context.Context, tx pgx.Tx) (added int64, _, err error) {
			added, err = inventory.AddUnitsTx(ctx, tx, t.TenantID, block, units, opts.origin())
			return added, nil, err
		},
	}
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
