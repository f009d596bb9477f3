package carts

import (
	"context"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/internal/inventory"
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
		removed, err := RemoveTx(ctx, tx, c.TenantID, c.CartID, c.VariantID, c.Reason, c.Origin)
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
