package holdfast

import (
	"context"
	"io"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/internal/inventory"
	"github.com/holdfast/holdfast/internal/lanes"
	"github.com/holdfast/holdfast/queues/hot"
)

type (
	// Stock is a variant's counters and settings.
	Stock = inventory.Stock
	// StockPatch is a change of a stock: a nil field stays as it is.
	StockPatch = inventory.StockPatch
)

func (t *Tenant) setStock(variant string, patch StockPatch, opts *CallOpts) *call[Stock] {
	return &call[Stock]{t, opts, "SetStock", []any{variant, patch}, func(ctx context.Context, tx pgx.Tx) (stock Stock, _, err error) {
		stock, _, err = hot.SetStockTx(ctx, tx, t.client.inserter, t.TenantID, variant, patch, opts.origin())
		return stock, nil, err
	}}
}

// SetStock creates or changes a variant. A new one needs a Stock, unless Tracked
// is false.
//
// Errors: *InvalidError, ErrBelowReserved, ErrKeyReused, ErrOutcomeUnknown.
func (t *Tenant) SetStock(ctx context.Context, variant string, patch StockPatch, opts *CallOpts) (Stock, error) {
	return t.setStock(variant, patch, opts).run(ctx)
}

// SetStockTx is SetStock in the caller's transaction, which must be READ
// COMMITTED. It locks the variant's slot, then its stock.
func (t *Tenant) SetStockTx(ctx context.Context, tx pgx.Tx, variant string, patch StockPatch, opts *CallOpts) (Stock, error) {
	return t.setStock(variant, patch, opts).inTx(ctx, tx)
}

func (t *Tenant) adjustStock(variant string, delta int64, opts *CallOpts) *call[Stock] {
	return &call[Stock]{t, opts, "AdjustStock", []any{variant, delta}, func(ctx context.Context, tx pgx.Tx) (stock Stock, _, err error) {
		stock, err = inventory.AdjustTx(ctx, tx, t.TenantID, variant, delta, opts.origin())
		return stock, nil, err
	}}
}

// AdjustStock adds delta units to a variant's stock, or takes them away.
//
// Errors: *InvalidError, ErrUnknownVariant, ErrBelowReserved, ErrKeyReused,
// ErrOutcomeUnknown.
func (t *Tenant) AdjustStock(ctx context.Context, variant string, delta int64, opts *CallOpts) (Stock, error) {
	return t.adjustStock(variant, delta, opts).run(ctx)
}

// AdjustStockTx is AdjustStock in the caller's transaction. It locks the stock.
func (t *Tenant) AdjustStockTx(ctx context.Context, tx pgx.Tx, variant string, delta int64, opts *CallOpts) (Stock, error) {
	return t.adjustStock(variant, delta, opts).inTx(ctx, tx)
}

// Stock returns a variant's stock.
//
// Errors: ErrUnknownVariant.
func (t *Tenant) Stock(ctx context.Context, variant string) (Stock, error) {
	return inventory.Get(ctx, t.client.db, t.TenantID, variant)
}

// Stocks returns a page of the tenant's stocks in the order of their ids: limit
// of them, or 100 if it is 0, after the cursor of an earlier page.
//
// Errors: *InvalidError.
func (t *Tenant) Stocks(ctx context.Context, limit int, cursor string) (inventory.Page, error) {
	return inventory.List(ctx, t.client.db, t.TenantID, limit, cursor)
}

// ImportStocks sets the stocks that the lines of r describe, CSV or NDJSON, in
// batches. A bad line is rejected, with its number and the reason in the report,
// and stops no other line.
//
// Errors: *InvalidError for a bad header; those of r and of the database, with a
// report of what was done before.
func (t *Tenant) ImportStocks(ctx context.Context, format inventory.Format, r io.Reader, opts *CallOpts) (inventory.ImportReport, error) {
	return inventory.Import(ctx, t.client.db, t.TenantID, format, r, opts.origin(), inventory.ImportOptions{
		OnLane: func(ctx context.Context, tx pgx.Tx, tenantID uuid.UUID, wishes []lanes.Placement) error {
			return lanes.PlaceTx(ctx, tx, t.client.inserter, tenantID, wishes)
		},
	})
}
