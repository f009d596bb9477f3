package holdfast

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/internal/inventory"
)

// Allotment is units of a variant that are set aside for a channel or a voucher:
// only requests that name it (CallOpts.Allotment) get them.
type Allotment = inventory.Allotment

func (t *Tenant) setAllotment(variant, allotment string, quantity int64, expiresAt *time.Time, opts *CallOpts) *call[Allotment] {
	return &call[Allotment]{
		tenant: t, opts: opts, verb: "SetAllotment", args: []any{variant, allotment, quantity, expiresAt}, repeatable: true,
		do: func(ctx context.Context, tx pgx.Tx) (a Allotment, _, err error) {
			a, err = inventory.SetAllotmentTx(ctx, tx, t.TenantID, variant, allotment, quantity, expiresAt, opts.origin())
			return a, nil, err
		},
	}
}

// SetAllotment sets units of a variant aside until a time, nil for ever, or changes
// an allotment: quantity counts what was taken from it too. Units of holds that are
// released or expire go back to it. What is left at its end is for sale to all.
//
// Errors: *InvalidError, ErrUnknownVariant, ErrBelowReserved for less than was
// taken, ErrOutOfStock for more than is free, ErrKeyReused, ErrOutcomeUnknown.
func (t *Tenant) SetAllotment(ctx context.Context, variant, allotment string, quantity int64, expiresAt *time.Time, opts *CallOpts) (Allotment, error) {
	return t.setAllotment(variant, allotment, quantity, expiresAt, opts).run(ctx)
}

// SetAllotmentTx is SetAllotment in the caller's transaction. It locks the stock.
// After an error the caller rolls back.
func (t *Tenant) SetAllotmentTx(ctx context.Context, tx pgx.Tx, variant, allotment string, quantity int64, expiresAt *time.Time, opts *CallOpts) (Allotment, error) {
	return t.setAllotment(variant, allotment, quantity, expiresAt, opts).inTx(ctx, tx)
}

// Allotment returns an allotment that has not ended.
//
// Errors: *InvalidError, ErrNotFound.
func (t *Tenant) Allotment(ctx context.Context, variant, allotment string) (Allotment, error) {
	a, err := inventory.GetAllotment(ctx, t.client.db, t.TenantID, variant, allotment)
	return a, vocabulary(err)
}

// Allotments returns a page of the allotments of a variant, as Kits does of kits.
//
// Errors: *InvalidError.
func (t *Tenant) Allotments(ctx context.Context, variant string, limit int, cursor string) (inventory.AllotmentPage, error) {
	return inventory.ListAllotments(ctx, t.client.db, t.TenantID, variant, limit, cursor)
}

func (t *Tenant) endAllotment(variant, allotment string, opts *CallOpts) *call[struct{}] {
	return &call[struct{}]{
		tenant: t, opts: opts, verb: "EndAllotment", args: []any{variant, allotment},
		do: func(ctx context.Context, tx pgx.Tx) (none struct{}, _, err error) {
			return none, nil, inventory.EndAllotmentTx(ctx, tx, t.TenantID, variant, allotment, opts.origin())
		},
	}
}

// EndAllotment ends an allotment before its time. What carts hold from it stays
// held.
//
// Errors: *InvalidError, ErrUnknownVariant, ErrNotFound, ErrKeyReused,
// ErrOutcomeUnknown.
func (t *Tenant) EndAllotment(ctx context.Context, variant, allotment string, opts *CallOpts) error {
	_, err := t.endAllotment(variant, allotment, opts).run(ctx)
	return err
}

// EndAllotmentTx is EndAllotment in the caller's transaction. It locks the stock.
func (t *Tenant) EndAllotmentTx(ctx context.Context, tx pgx.Tx, variant, allotment string, opts *CallOpts) error {
	_, err := t.endAllotment(variant, allotment, opts).inTx(ctx, tx)
	return err
}
