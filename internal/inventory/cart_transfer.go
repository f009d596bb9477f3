package inventory

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/audit"
	"github.com/holdfast/holdfast/internal/pg"
	"github.com/holdfast/holdfast/internal/reservationrows"
	"github.com/holdfast/holdfast/internal/unitrows"
	"github.com/holdfast/holdfast/reservations"
)

// ErrLimitExceeded means that a cart or a customer would have more units of a
// variant than its limits allow.
var ErrLimitExceeded = errors.New("the cart or the customer would have more units than allowed")

// TransferCartTx moves what a cart holds to another cart, all or nothing, and
// returns it as it is then: each hold keeps its id and deadline. What is past its
// deadline is not moved. customerID is the customer whose limits count the holds
// from then on; "" keeps those that they have. It writes an audit row
// (reservation.moved) for each hold.
//
// It locks the stocks in order, then the reservations of the first cart.
//
// The transaction must be READ COMMITTED, else ErrIsolation.
//
// Errors: [*InvalidError] for an id, and for to that is the same cart;
// [ErrLimitExceeded]; [reservationrows.ErrCheckoutInProgress].
func TransferCartTx(ctx context.Context, tx pgx.Tx, tenantID uuid.UUID, from, to, customerID string, origin audit.Origin) ([]reservations.Reservation, error) {
	if err := ValidateTransfer(from, to); err != nil {
		return nil, err
	}
	g, err := lockOneTx(ctx, tx, Call{Action: ReleaseCart, TenantID: tenantID, CartID: from}, pg.QueueIsolation)
	if err != nil {
		return nil, err
	}
	moved, _ := splitDue(slices.DeleteFunc(g.held, func(r reservations.Reservation) bool { return r.Status != reservations.Held }), g.now)
	if inCheckout(moved) {
		return nil, reservationrows.ErrCheckoutInProgress
	}
	if err := mayMoveTx(ctx, tx, g.stocks, moved, to, customerID); err != nil {
		return nil, fmt.Errorf("transfer cart %s to %s: %w", from, to, err)
	}
	b := &pgx.Batch{}
	b.Queue(releaseSQL)
	reservationrows.QueueMove(b, moved, to, customerID, origin)
	if err := tx.SendBatch(ctx, b).Close(); err != nil {
		return nil, fmt.Errorf("transfer cart %s to %s: %w", from, to, err)
	}
	return moved, nil
}

// ValidateTransfer checks the ids of the carts of a transfer.
func ValidateTransfer(from, to string) error {
	if err := errors.Join(ValidateID("cart_id", from), ValidateID("to", to)); err != nil {
		return err
	}
	if from == to {
		return &InvalidError{Field: "to", Message: "must be another cart"}
	}
	return nil
}

// mayMoveTx returns ErrLimitExceeded if a limit of a cart or of a customer
// forbids that the holds become those of a cart. Under the locks of their stocks
// nothing is added to the cart.
func mayMoveTx(ctx context.Context, tx pgx.Tx, locked stocks, moved []reservations.Reservation, to, customerID string) error {
	if len(moved) == 0 {
		return nil
	}
	holds, err := reservationrows.HeldByHolder(ctx, tx, moved[0].TenantID, Kind, to)
	if err != nil {
		return err
	}
	there, _ := splitDue(holds, locked.now)
	byVariant := make(map[Ref][]reservations.Reservation)
	var requests []HoldRequest
	for i := range moved {
		ref := Ref{moved[i].TenantID, moved[i].ResourceKey}
		if byVariant[ref] == nil {
			requests = append(requests, HoldRequest{TenantID: ref.TenantID, VariantID: ref.VariantID, CartID: to, CustomerID: customerID})
		}
		byVariant[ref] = append(byVariant[ref], moved[i])
	}
	in := inputs{stocks: locked}
	if err := in.readBoughtTx(ctx, tx, requests); err != nil {
		return err
	}
	for i := range requests {
		ref := Ref{requests[i].TenantID, requests[i].VariantID}
		c, joining := locked.counters[ref], byVariant[ref]
		total := units(joining)
		for j := range there {
			if there[j].ResourceKey == ref.VariantID {
				total += there[j].Quantity
			}
		}
		switch {
		case c == nil:
			continue
		case c.MaxPerCart != nil && total > int64(*c.MaxPerCart), c.NamedUnits && total > unitrows.UnitsMax:
			return fmt.Errorf("variant %s: %w", ref.VariantID, ErrLimitExceeded)
		}
		for _, l := range in.limitsOf(&requests[i], c.Sale) {
			for j := range joining {
				owner := customerOf(&joining[j])
				if joins := customerID != "" || joining[j].CustomerID == ""; joins && owner != l.customerID {
					in.bought[l.customerKey] += l.counted(&joining[j], locked.now)
				}
			}
			if in.bought[l.customerKey] > int64(l.most) {
				return fmt.Errorf("variant %s: %w", ref.VariantID, ErrLimitExceeded)
			}
		}
	}
	return nil
}
