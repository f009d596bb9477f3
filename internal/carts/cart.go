package carts

import (
	"cmp"
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/audit"
	"github.com/holdfast/holdfast/internal/inventory"
	"github.com/holdfast/holdfast/internal/requestrows"
	"github.com/holdfast/holdfast/requests"
	"github.com/holdfast/holdfast/reservations"
)

// Applied is the result of ApplyTx.
type Applied struct {
	// Reservations are those that were committed, released or extended, as they
	// are after it. Cancelled are the requests that a removal has cancelled.
	Reservations []reservations.Reservation
	Cancelled    []uuid.UUID
	// Conflict is the outcome of the release of a hold that has ended or is past
	// its deadline, nil for all others; see inventory.ReleaseTx.
	Conflict *reservations.ConflictError
}

// ApplyTx makes a call of a synchronous verb in the caller's transaction, by
// CheckoutTx, RemoveTx, or the verb of package inventory that has the name of
// the action. Errors, locks and isolation levels are those of that verb.
func ApplyTx(ctx context.Context, tx pgx.Tx, c inventory.Call) (a Applied, err error) {
	if err := c.Validate(); err != nil {
		return Applied{}, err
	}
	var one reservations.Reservation
	switch c.Action {
	case inventory.CheckoutCart:
		a.Reservations, err = CheckoutTx(ctx, tx, c.TenantID, c.CartID, c.Origin)
		return a, err
	case inventory.ReleaseCart:
		of := requestrows.CartVariant{TenantID: c.TenantID, CartID: c.CartID, VariantID: c.VariantID, KitID: c.KitID}
		removed, err := removeTx(ctx, tx, of, c.Reason, c.Origin)
		return Applied{Reservations: removed.Released, Cancelled: removed.Cancelled}, err
	case inventory.ExtendCart:
		a.Reservations, err = inventory.ExtendCartTx(ctx, tx, c.TenantID, c.CartID, c.By, c.LifetimeMax, c.Origin)
		return a, err
	case inventory.CommitHold:
		one, err = inventory.CommitTx(ctx, tx, c.TenantID, c.ReservationID, c.Origin)
	case inventory.ReleaseHold:
		one, a.Conflict, err = inventory.ReleaseTx(ctx, tx, c.TenantID, c.ReservationID, c.Reason, c.Origin)
	case inventory.ExtendHold:
		one, err = inventory.ExtendTx(ctx, tx, c.TenantID, c.ReservationID, c.By, c.LifetimeMax, c.Origin)
	}
	if err == nil && a.Conflict == nil {
		a.Reservations = []reservations.Reservation{one}
	}
	return a, err
}

// Remove takes a variant out of a cart, or all variants if variantID is "".
// Queued requests fail with reason cancelled. Holds are released, or expired if
// they are past their deadline. Holds that the cart lost to expiry are
// acknowledged. Remove waits for a request that a worker is deciding. Removing
// a variant that is not in the cart is no error.
//
// Errors: *inventory.InvalidError for a reason that is not in
// reservationrows.ReleaseReasons; inventory.ErrPartOfKit if the cart holds units
// of the variant for a kit.
func Remove(ctx context.Context, db *pgxpool.Pool, tenantID uuid.UUID, cartID, variantID string, reason reservations.ReleaseReason, origin audit.Origin) (removed requests.Removed, err error) {
	err = pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		removed, err = RemoveTx(ctx, tx, tenantID, cartID, variantID, reason, origin)
		return err
	})
	return removed, err
}

// RemoveTx is Remove in the caller's transaction. It locks requests, then
// stocks, then reservations.
//
// The transaction must be READ COMMITTED, else pg.ErrIsolation: an older snapshot
// would miss requests and holds that were added to the cart since.
func RemoveTx(ctx context.Context, tx pgx.Tx, tenantID uuid.UUID, cartID, variantID string, reason reservations.ReleaseReason, origin audit.Origin) (removed requests.Removed, err error) {
	return removeTx(ctx, tx, requestrows.CartVariant{TenantID: tenantID, CartID: cartID, VariantID: variantID}, reason, origin)
}

// removeTx is RemoveTx, also of a kit.
func removeTx(ctx context.Context, tx pgx.Tx, of requestrows.CartVariant, reason reservations.ReleaseReason, origin audit.Origin) (removed requests.Removed, err error) {
	if err := inventory.ValidateReason(reason); err != nil {
		return removed, err
	}
	by := origin
	by.Reason = cmp.Or(by.Reason, string(reason))
	removed.Cancelled, err = requestrows.CancelTx(ctx, tx, of, by)
	if err != nil {
		return removed, err
	}
	if of.KitID != "" {
		removed.Released, err = inventory.ReleaseKitTx(ctx, tx, of.TenantID, of.CartID, of.KitID, reason, origin)
	} else {
		removed.Released, err = inventory.ReleaseCartTx(ctx, tx, of.TenantID, of.CartID, of.VariantID, reason, origin)
	}
	return removed, err
}

// TransferTx moves what a cart holds to another cart, as inventory.TransferCartTx
// does, and its places in line. It locks the requests that wait, then stocks, then
// reservations. The transaction must be READ COMMITTED, else pg.ErrIsolation.
//
// Errors: also requestrows.ErrRequestsPending, if the first cart has requests
// that are not decided.
func TransferTx(ctx context.Context, tx pgx.Tx, tenantID uuid.UUID, from, to, customerID string, origin audit.Origin) ([]reservations.Reservation, error) {
	if err := inventory.ValidateTransfer(from, to); err != nil {
		return nil, err
	}
	if err := mustHaveDecided(ctx, tx, tenantID, from); err != nil {
		return nil, fmt.Errorf("transfer cart %s: %w", from, err)
	}
	if err := requestrows.MoveWaitingTx(ctx, tx, tenantID, from, to, customerID); err != nil {
		return nil, err
	}
	return inventory.TransferCartTx(ctx, tx, tenantID, from, to, customerID, origin)
}

// Checkout commits everything a cart holds, all or nothing.
//
// Errors, in order of precedence: requestrows.ErrRequestsPending,
// inventory.ErrHoldExpired, inventory.ErrCartEmpty.
func Checkout(ctx context.Context, db *pgxpool.Pool, tenantID uuid.UUID, cartID string, origin audit.Origin) (committed []reservations.Reservation, err error) {
	err = pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		committed, err = CheckoutTx(ctx, tx, tenantID, cartID, origin)
		return err
	})
	return committed, err
}

// CheckoutTx is Checkout in the caller's transaction. It locks stocks, then
// reservations.
//
// The transaction must be READ COMMITTED, else pg.ErrIsolation: an older snapshot
// would miss requests and holds that were added to the cart since.
// requestrows.ErrRequestsPending precedes pg.ErrIsolation.
func CheckoutTx(ctx context.Context, tx pgx.Tx, tenantID uuid.UUID, cartID string, origin audit.Origin) ([]reservations.Reservation, error) {
	if err := mustHaveDecided(ctx, tx, tenantID, cartID); err != nil {
		return nil, fmt.Errorf("check out cart %s: %w", cartID, err)
	}
	return inventory.CheckoutTx(ctx, tx, tenantID, cartID, origin)
}

// mustHaveDecided returns requestrows.ErrRequestsPending while the cart has
// requests that are not decided.
func mustHaveDecided(ctx context.Context, tx pgx.Tx, tenantID uuid.UUID, cartID string) error {
	b := &pgx.Batch{}
	pending := requestrows.QueuePending(b, []requestrows.CartVariant{{TenantID: tenantID, CartID: cartID}}, []bool{false})
	if err := tx.SendBatch(ctx, b).Close(); err != nil {
		return err
	}
	if len(*pending) > 0 {
		return requestrows.ErrRequestsPending
	}
	return nil
}
