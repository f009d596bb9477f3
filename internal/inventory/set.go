package inventory

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/audit"
	"github.com/holdfast/holdfast/internal/lanes"
	"github.com/holdfast/holdfast/internal/telemetry"
)

// StockPatch is a change of a stock. A nil field stays as it is, or takes its
// default on a new variant: tracked true, backorder false, no TTL, no limit per
// cart, lanes.WishAuto, AdmissionOpen.
type StockPatch struct {
	// Stock is the number of units that exist, 0 to MaxStock. A new variant
	// needs it, unless Tracked is false; the default is then 0.
	Stock *int64
	// Tracked false makes the variant digital. Its existing holds stay until
	// they end, or until a request sets the quantity of their cart.
	Tracked *bool
	// Backorder true allows holds beyond the stock.
	Backorder *bool
	// HoldTTLSeconds is 1 to MaxTTL in seconds; 0 clears it, so that the
	// program's default applies again.
	HoldTTLSeconds *int32
	// MaxPerCart is 1 to MaxQuantity; 0 clears it.
	MaxPerCart *int32
	// Lane is the wish for a lane. It is only stored: the caller moves the
	// variant (see SetInLane).
	Lane *lanes.Wish
	// Admission is AdmissionOpen or AdmissionToken.
	Admission *string
	// PreorderMax is 1 to MaxStock, and needs Backorder; 0 clears it, and so does
	// Backorder false.
	PreorderMax *int64
	// Sale changes the rules that it has: 0, "", or the zero time, clears a rule.
	Sale *Sale
}

// Validate checks every field's range. The error is an [*InvalidError].
func (p StockPatch) Validate() error {
	if err := between("stock", p.Stock, MaxStock); err != nil {
		return err
	}
	if err := between("hold_ttl_seconds", p.HoldTTLSeconds, int32(MaxTTL/time.Second)); err != nil {
		return err
	}
	if err := between("max_per_cart", p.MaxPerCart, MaxQuantity); err != nil {
		return err
	}
	if err := between("preorder_max", p.PreorderMax, int64(MaxStock)); err != nil {
		return err
	}
	if err := p.validateSale(); err != nil {
		return err
	}
	if p.Lane != nil && !slices.Contains(lanes.Wishes(), *p.Lane) {
		return &InvalidError{Field: "lane", Message: "must be " + lanes.Either(lanes.Wishes())}
	}
	if p.Admission != nil && *p.Admission != AdmissionOpen && *p.Admission != AdmissionToken {
		return &InvalidError{Field: "admission", Message: "must be open or token"}
	}
	return nil
}

func (p StockPatch) validateSale() error {
	if p.Sale == nil {
		return nil
	}
	if at := p.Sale.StartsAt; at != nil && !isRecordable(*at) {
		return &InvalidError{Field: "sale_starts_at", Message: yearsMessage}
	}
	if at := p.Sale.EndsAt; at != nil && !isRecordable(*at) {
		return &InvalidError{Field: "sale_ends_at", Message: yearsMessage}
	}
	if group := p.Sale.Group; group != nil && *group != "" {
		if err := ValidateID("group", *group); err != nil {
			return err
		}
	}
	for _, f := range []struct {
		name  string
		value *int32
		most  int32
	}{
		{"quantity_min", p.Sale.QuantityMin, MaxQuantity}, {"quantity_step", p.Sale.QuantityStep, MaxQuantity},
		{"max_per_customer", p.Sale.MaxPerCustomer, MaxQuantity}, {"customer_period_seconds", p.Sale.CustomerPeriodSeconds, CustomerPeriodMax},
		{"claim_seconds", p.Sale.ClaimSeconds, int32(MaxTTL / time.Second)},
	} {
		if err := between(f.name, f.value, f.most); err != nil {
			return err
		}
	}
	return nil
}

const yearsMessage = "must be of the years 1970 to 9999, in UTC"

// isRecordable reports whether the time can be written as RFC 3339, which has
// four digits for a year. The zero time clears a field.
func isRecordable(at time.Time) bool {
	year := at.UTC().Year()
	return at.IsZero() || year >= 1970 && year <= 9999
}

func between[N int32 | int64](field string, value *N, most N) error {
	if value != nil && (*value < 0 || *value > most) {
		return &InvalidError{Field: field, Message: fmt.Sprintf("must be between 0 and %d", most)}
	}
	return nil
}

// Set makes a variant or changes the fields that the patch names, and returns
// the stock after that. Every change writes one audit row with action
// "stock.set"; a patch that changes nothing writes nothing.
//
// Errors: [*InvalidError] for a field out of range; [ErrStockRequired] for a
// new variant without a stock (unless Tracked is false); [ErrBelowReserved] if
// the result were a tracked variant without backorder that has fewer units than
// are reserved, whether the patch lowers the stock, turns backorder off or
// turns tracking on. That includes a stock below 0 with nothing reserved: set
// the stock in the same call. A variant that is not tracked, or allows
// backorder, may have any stock.
//
// It locks the stock row. Other transactions see the change after the commit.
func Set(ctx context.Context, pool *pgxpool.Pool, tenantID uuid.UUID, variantID string, patch StockPatch, origin audit.Origin) (stock Stock, err error) {
	err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		stock, err = SetTx(ctx, tx, tenantID, variantID, patch, origin)
		return err
	})
	return stock, err
}

// SetTx is [Set] in the caller's transaction. After an error of this package
// the transaction is still usable and nothing has changed. A caller that moves
// the variant between lanes does so before, because slots are locked before
// stocks. It is correct at every isolation level.
func SetTx(ctx context.Context, tx pgx.Tx, tenantID uuid.UUID, variantID string, patch StockPatch, origin audit.Origin) (_ Stock, err error) {
	ctx, done := telemetry.Verb(ctx, "inventory.set")
	defer func() { done(outcome(err)) }()
	if err := ValidateID("variant_id", variantID); err != nil {
		return Stock{}, err
	}
	if err := patch.Validate(); err != nil {
		return Stock{}, err
	}
	results, err := editTx(ctx, tx, tenantID, []edit{{variantID: variantID, patch: patch}}, false, origin)
	if err == nil {
		err = results[0].refused
	}
	if err != nil {
		return Stock{}, fmt.Errorf("set stock %s: %w", variantID, err)
	}
	return results[0].stock, nil
}

// Adjust adds delta units, which may be negative, to a variant's stock and
// returns the stock after that. It is not idempotent: each call adjusts once,
// and writes one audit row with action "stock.adjusted" and the origin's
// reason.
//
// Errors: [*InvalidError] for a delta of 0 or beyond ±MaxStock, for a result
// above MaxStock, and for a result below 0 on a variant that is not tracked or
// allows backorder (only checkouts may do that); [ErrUnknownVariant];
// [ErrBelowReserved] if a tracked variant without backorder would have fewer
// units than are reserved.
//
// It locks the stock row. Other transactions see the change after the commit.
func Adjust(ctx context.Context, pool *pgxpool.Pool, tenantID uuid.UUID, variantID string, delta int64, origin audit.Origin) (stock Stock, err error) {
	err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		stock, err = AdjustTx(ctx, tx, tenantID, variantID, delta, origin)
		return err
	})
	return stock, err
}

// AdjustTx is [Adjust] in the caller's transaction. After an error of this
// package the transaction is still usable and nothing has changed. It is
// correct at every isolation level.
func AdjustTx(ctx context.Context, tx pgx.Tx, tenantID uuid.UUID, variantID string, delta int64, origin audit.Origin) (_ Stock, err error) {
	ctx, done := telemetry.Verb(ctx, "inventory.adjust")
	defer func() { done(outcome(err)) }()
	if err := ValidateID("variant_id", variantID); err != nil {
		return Stock{}, err
	}
	if delta == 0 {
		return Stock{}, &InvalidError{Field: "delta", Message: "must not be 0"}
	}
	if delta < -MaxStock || delta > MaxStock {
		return Stock{}, &InvalidError{Field: "delta", Message: fmt.Sprintf("must be between %d and %d", -MaxStock, MaxStock)}
	}
	results, err := editTx(ctx, tx, tenantID, []edit{{variantID: variantID, delta: delta}}, false, origin)
	if err == nil {
		err = results[0].refused
	}
	if err != nil {
		return Stock{}, fmt.Errorf("adjust stock %s: %w", variantID, err)
	}
	return results[0].stock, nil
}

// outcome classifies a verb's error for telemetry: the caller's mistakes are
// outcomes, not errors.
func outcome(err error) (string, error) {
	switch {
	case errors.Is(err, ErrUnknownVariant):
		return "unknown_variant", nil
	case errors.Is(err, ErrUnknownGroup):
		return "unknown_group", nil
	case errors.Is(err, ErrUnknownKit):
		return "unknown_kit", nil
	case errors.Is(err, ErrUnknownAllotment):
		return "unknown_allotment", nil
	case errors.Is(err, ErrOutOfStock):
		return "out_of_stock", nil
	case errors.Is(err, ErrStockRequired):
		return "stock_required", nil
	case errors.Is(err, ErrBelowReserved):
		return "below_reserved", nil
	case errors.As(err, new(*InvalidError)):
		return "invalid", nil
	}
	return "", err
}
