package holdfast

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/audit"
	"github.com/holdfast/holdfast/internal/admission"
	"github.com/holdfast/holdfast/internal/inventory"
	"github.com/holdfast/holdfast/internal/lanes"
	"github.com/holdfast/holdfast/metered"
)

type (
	// Stock is a variant's counters and settings.
	Stock = inventory.Stock
	// StockPatch is a change of a stock: a nil field stays as it is.
	StockPatch = inventory.StockPatch
	// Sale has the rules of the sale of a variant.
	Sale = inventory.Sale
)

func (t *Tenant) setStock(name, variant string, opts *CallOpts, patch func(ctx context.Context, tx pgx.Tx) (StockPatch, error), args ...any) *call[Stock] {
	return &call[Stock]{
		tenant: t, opts: opts, verb: name, args: append([]any{variant}, args...), repeatable: true,
		do: func(ctx context.Context, tx pgx.Tx) (stock Stock, _, err error) {
			change, err := patch(ctx, tx)
			if err != nil {
				return stock, nil, err
			}
			stock, in, err := inventory.SetInLaneTx(ctx, tx, t.client.inserter, t.TenantID, variant, change, opts.origin())
			stock.CurrentLane = in.Lane()
			return stock, nil, err
		},
	}
}

func (t *Tenant) patchStock(variant string, patch StockPatch, opts *CallOpts) *call[Stock] {
	return t.setStock("SetStock", variant, opts, func(context.Context, pgx.Tx) (StockPatch, error) { return patch, nil }, patch)
}

// SetStock creates or changes a variant. A new one needs a Stock, unless Tracked
// is false.
//
// Errors: *InvalidError, ErrBelowReserved, ErrKeyReused, ErrOutcomeUnknown.
func (t *Tenant) SetStock(ctx context.Context, variant string, patch StockPatch, opts *CallOpts) (Stock, error) {
	return t.patchStock(variant, patch, opts).run(ctx)
}

// SetStockTx is SetStock in the caller's transaction, which must be READ
// COMMITTED. It locks the variant's slot, then its stock.
func (t *Tenant) SetStockTx(ctx context.Context, tx pgx.Tx, variant string, patch StockPatch, opts *CallOpts) (Stock, error) {
	return t.patchStock(variant, patch, opts).inTx(ctx, tx)
}

// Pin pins a variant to the hot lane, or removes its pin.
//
// Errors: ErrUnknownVariant, ErrKeyReused, ErrOutcomeUnknown.
func (t *Tenant) Pin(ctx context.Context, variant string, pinned bool, opts *CallOpts) (Stock, error) {
	return t.setStock("Pin", variant, opts, func(ctx context.Context, tx pgx.Tx) (StockPatch, error) {
		stock, err := inventory.Get(ctx, tx, t.TenantID, variant)
		wish := stock.Lane
		switch {
		case pinned:
			wish = lanes.WishHot
		case wish == lanes.WishHot:
			wish = lanes.WishAuto
		}
		return StockPatch{Lane: &wish}, err
	}, pinned).run(ctx)
}

func (t *Tenant) adjustStock(variant string, delta int64, opts *CallOpts) *call[Stock] {
	return &call[Stock]{
		tenant: t, opts: opts, verb: "AdjustStock", args: []any{variant, delta, opts.origin().Reason},
		do: func(ctx context.Context, tx pgx.Tx) (Stock, error, error) {
			stock, err := inventory.AdjustTx(ctx, tx, t.TenantID, variant, delta, opts.origin())
			if err != nil {
				return stock, nil, err
			}
			stocks, err := t.withLanes(ctx, tx, []Stock{stock})
			return stocks[0], nil, err
		},
	}
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

// StockTransfer are two stocks after a transfer between them.
type StockTransfer struct{ From, To Stock }

// TransferStock moves units from one variant's stock to another's, both or
// neither.
//
// Errors: *InvalidError, ErrUnknownVariant, ErrOutOfStock if from has fewer free
// units, ErrKeyReused, ErrOutcomeUnknown.
func (t *Tenant) TransferStock(ctx context.Context, from, to string, quantity int64, opts *CallOpts) (StockTransfer, error) {
	moved, err := t.transferStock(from, to, quantity, opts).run(ctx)
	if errors.Is(err, ErrOutOfStock) && t.expireDue(ctx, from) {
		return t.transferStock(from, to, quantity, opts).run(ctx)
	}
	return moved, err
}

// TransferStockTx is TransferStock in the caller's transaction. It locks both
// stocks. Units of due holds are free once their expiry is recorded.
func (t *Tenant) TransferStockTx(ctx context.Context, tx pgx.Tx, from, to string, quantity int64, opts *CallOpts) (StockTransfer, error) {
	return t.transferStock(from, to, quantity, opts).inTx(ctx, tx)
}

func (t *Tenant) transferStock(from, to string, quantity int64, opts *CallOpts) *call[StockTransfer] {
	return &call[StockTransfer]{
		tenant: t, opts: opts, verb: "TransferStock", args: []any{from, to, quantity, opts.origin().Reason},
		do: func(ctx context.Context, tx pgx.Tx) (StockTransfer, error, error) {
			source, target, err := inventory.TransferTx(ctx, tx, t.TenantID, from, to, quantity, opts.origin())
			if err != nil {
				return StockTransfer{}, nil, err
			}
			stocks, err := t.withLanes(ctx, tx, []Stock{source, target})
			return StockTransfer{stocks[0], stocks[1]}, nil, err
		},
	}
}

// expireDue records the expiry of due holds of a variant, and reports whether
// there were any.
func (t *Tenant) expireDue(ctx context.Context, variant string) bool {
	expired, err := inventory.ExpireVariant(ctx, t.client.db, inventory.Ref{TenantID: t.TenantID, VariantID: variant}, expireMax)
	return err == nil && expired > 0
}

// expireMax is how many due holds a transfer or a deletion expires.
const expireMax = 1000

// DeleteStock deletes a variant, or a block with its units. The record stays.
// Requests for it then fail with unknown_variant. A later SetStock of the same
// id makes a new variant.
//
// Errors: *InvalidError, ErrUnknownVariant, ErrBelowReserved while units are
// held, ErrKeyReused, ErrOutcomeUnknown.
func (t *Tenant) DeleteStock(ctx context.Context, variant string, opts *CallOpts) error {
	_, err := t.deleteStock(variant, opts).run(ctx)
	if errors.Is(err, ErrBelowReserved) && t.expireDue(ctx, variant) {
		_, err = t.deleteStock(variant, opts).run(ctx)
	}
	return err
}

// DeleteStockTx is DeleteStock in the caller's transaction, which must be READ
// COMMITTED. It locks the variant's slot, if it is hot, and then its stock.
func (t *Tenant) DeleteStockTx(ctx context.Context, tx pgx.Tx, variant string, opts *CallOpts) error {
	_, err := t.deleteStock(variant, opts).inTx(ctx, tx)
	return err
}

func (t *Tenant) deleteStock(variant string, opts *CallOpts) *call[struct{}] {
	return &call[struct{}]{
		tenant: t, opts: opts, verb: "DeleteStock", args: []any{variant},
		do: func(ctx context.Context, tx pgx.Tx) (struct{}, error, error) {
			stock, err := inventory.Get(ctx, tx, t.TenantID, variant)
			if err == nil && stock.Lane != lanes.WishAuto { // a pin would outlive the variant
				_, _, err = inventory.SetInLaneTx(ctx, tx, t.client.inserter, t.TenantID, variant, StockPatch{Lane: new(lanes.WishAuto)}, opts.origin())
			}
			if err == nil {
				err = inventory.DeleteTx(ctx, tx, t.TenantID, variant, opts.origin())
			}
			return struct{}{}, nil, err
		},
	}
}

// withLanes sets the current lanes of the stocks.
func (t *Tenant) withLanes(ctx context.Context, db audit.Querier, stocks []Stock) ([]Stock, error) {
	ids := make([]string, len(stocks))
	for i := range stocks {
		ids[i] = stocks[i].VariantID
	}
	variants, err := lanes.Lookup(ctx, db, t.TenantID, ids)
	for i := range stocks {
		stocks[i].CurrentLane = variants[ids[i]].Lane()
	}
	return stocks, err
}

// Stock returns a variant's stock.
//
// Errors: ErrUnknownVariant.
func (t *Tenant) Stock(ctx context.Context, variant string) (Stock, error) {
	stock, err := inventory.Get(ctx, t.client.db, t.TenantID, variant)
	if err != nil {
		return stock, err
	}
	stocks, err := t.withLanes(ctx, t.client.db, []Stock{stock})
	return stocks[0], err
}

// Stocks returns a page of the tenant's stocks in the order of their ids: limit
// of them, or 100 if it is 0, after the cursor of an earlier page.
//
// Errors: *InvalidError.
func (t *Tenant) Stocks(ctx context.Context, limit int, cursor string) (inventory.Page, error) {
	page, err := inventory.List(ctx, t.client.db, t.TenantID, limit, cursor)
	if err != nil {
		return page, err
	}
	page.Items, err = t.withLanes(ctx, t.client.db, page.Items)
	return page, err
}

// StocksOf returns those of the variants that exist, in the order in which they are
// given, each once.
//
// Errors: *InvalidError for more than 200 variants or an invalid id.
func (t *Tenant) StocksOf(ctx context.Context, variants []string) ([]Stock, error) {
	stocks, err := inventory.GetSome(ctx, t.client.db, t.TenantID, variants)
	if err != nil {
		return nil, err
	}
	return t.withLanes(ctx, t.client.db, stocks)
}

// MintedAdmission is an admission token that was minted.
type MintedAdmission struct {
	// Token is the plaintext, which is not stored: it is empty in the result of
	// a repetition under an idempotency key.
	Token     string
	ExpiresAt time.Time
}

// WithoutSecrets returns what is stored under an idempotency key.
func (m MintedAdmission) WithoutSecrets() any { return MintedAdmission{ExpiresAt: m.ExpiresAt} }

// MintAdmission mints a token with which the subject can add units once, of the
// variant, or of any variant that requires a token if variant is "". The
// database needs the tables of metered commands.
//
// Errors: *InvalidError, ErrUnknownVariant, ErrKeyReused, ErrOutcomeUnknown.
func (t *Tenant) MintAdmission(ctx context.Context, subject, variant string, ttl time.Duration, opts *CallOpts) (MintedAdmission, error) {
	return Once(ctx, t, "MintAdmission", []any{subject, variant, ttl}, func(ctx context.Context, tx pgx.Tx) (m MintedAdmission, err error) {
		if variant != "" {
			if _, err := inventory.Get(ctx, tx, t.TenantID, variant); err != nil {
				return m, err
			}
		}
		minted, err := t.client.tokens.MintTx(ctx, tx, t.TenantID, metered.Grant{
			Purpose: admission.TokenPurpose(variant), Subject: subject, TTL: ttl,
		})
		if err != nil {
			return m, err
		}
		return MintedAdmission{Token: minted[0].Token.Plaintext(), ExpiresAt: minted[0].ExpiresAt}, nil
	}, opts)
}
