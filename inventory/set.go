package inventory

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/audit"
	"github.com/holdfast/holdfast/internal/telemetry"
)

// StockPatch is what is to change about a stock. A nil field stays as it is, or takes its default on a new variant:
// tracked true, backorder false, no TTL and no limit of its own, LaneAuto, AdmissionOpen.
type StockPatch struct {
	// Stock is the number of units that exist, 0 to MaxStock. A new variant needs it, unless Tracked is false: then 0.
	Stock *int64
	// Tracked false makes the variant digital. Holds it has stay until they end.
	Tracked *bool
	// Backorder true allows holds beyond the stock.
	Backorder *bool
	// HoldTTLSeconds is 1 to MaxTTL in seconds; 0 clears it, so that the program's default applies again.
	HoldTTLSeconds *int32
	// MaxPerCart is 1 to MaxQuantity; 0 clears it.
	MaxPerCart *int32
	// Lane is LaneAuto, LaneHot or LaneNormal. It is only stored: the caller moves the variant.
	Lane *string
	// Admission is AdmissionOpen or AdmissionToken.
	Admission *string
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
	if p.Lane != nil && *p.Lane != LaneAuto && *p.Lane != LaneHot && *p.Lane != LaneNormal {
		return &InvalidError{Field: "lane", Message: "must be auto, hot or normal"}
	}
	if p.Admission != nil && *p.Admission != AdmissionOpen && *p.Admission != AdmissionToken {
		return &InvalidError{Field: "admission", Message: "must be open or token"}
	}
	return nil
}

func between[N int32 | int64](field string, value *N, most N) error {
	if value != nil && (*value < 0 || *value > most) {
		return &InvalidError{Field: field, Message: fmt.Sprintf("must be between 0 and %d", most)}
	}
	return nil
}

// Set makes a variant or changes the fields that the patch names, and returns the stock as it then is. Setting what is
// already so changes and records nothing; every change is one audit row with action "stock.set".
//
// Whatever combination is asked for, one of these is the answer: [*InvalidError] for a field out of range;
// [ErrStockRequired] for a new variant without a stock (unless Tracked is false); [ErrBelowReserved] where the result
// would be a tracked variant without backorder that has fewer units than are reserved, be it by lowering the stock, by
// turning backorder off or by turning tracking on. That includes a stock below 0 with nothing reserved: name a stock in
// the same call. A variant that is not tracked, or allows backorder, may have any stock.
//
// It locks the one stock row. Others see the change when the transaction commits.
func Set(ctx context.Context, pool *pgxpool.Pool, tenantID uuid.UUID, variantID string, patch StockPatch, origin audit.Origin) (stock Stock, err error) {
	err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		stock, err = SetTx(ctx, tx, tenantID, variantID, patch, origin)
		return err
	})
	return stock, err
}

// SetTx is [Set] in the caller's transaction. After an error of the package's own the transaction is still usable and
// nothing has changed; a caller who moves the variant between lanes does so before, because slots are locked ahead of
// stocks. It is right at every isolation level.
func SetTx(ctx context.Context, tx pgx.Tx, tenantID uuid.UUID, variantID string, patch StockPatch, origin audit.Origin) (_ Stock, err error) {
	ctx, done := telemetry.Verb(ctx, "inventory.set")
	defer func() { done(outcome(err)) }()
	if err := ValidateID("variant_id", variantID); err != nil {
		return Stock{}, err
	}
	if err := patch.Validate(); err != nil {
		return Stock{}, err
	}
	results, err := editTx(ctx, tx, tenantID, []edit{{variantID: variantID, patch: patch}}, origin)
	if err == nil {
		err = results[0].refused
	}
	if err != nil {
		return Stock{}, fmt.Errorf("set stock %s: %w", variantID, err)
	}
	return results[0].stock, nil
}

// outcome sorts a verb's error for telemetry: what the caller asked for wrongly is an outcome, not an error.
func outcome(err error) (string, error) {
	switch {
	case errors.Is(err, ErrUnknownVariant):
		return "unknown_variant", nil
	case errors.Is(err, ErrStockRequired):
		return "stock_required", nil
	case errors.Is(err, ErrBelowReserved):
		return "below_reserved", nil
	case errors.As(err, new(*InvalidError)):
		return "invalid", nil
	}
	return "", err
}
