package inventory

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/audit"
	"github.com/holdfast/holdfast/internal/reservationrows"
	"github.com/holdfast/holdfast/internal/unitrows"
	"github.com/holdfast/holdfast/reservations"
)

// ErrReturnExceeds means that more is returned than a committed reservation
// has, or a unit that it does not have.
var ErrReturnExceeds = errors.New("not so many units are committed")

// Part is some of the units of a reservation: a quantity of counted units, or
// the named units of a block. Where units are named, Quantity may be left 0.
type Part struct {
	Quantity int64
	UnitIDs  []string
}

// quantity returns how many units the part of a reservation has.
func (p Part) quantity(r *reservations.Reservation) (int64, error) {
	named := int64(len(p.UnitIDs))
	for i, id := range p.UnitIDs {
		if slices.Contains(p.UnitIDs[:i], id) {
			return 0, &InvalidError{Field: fmt.Sprintf("unit_ids[%d]", i), Message: "is the id of another unit in the list"}
		}
	}
	switch {
	case named > unitrows.UnitsMax:
		return 0, &InvalidError{Field: "unit_ids", Message: fmt.Sprintf("must have at most %d items", unitrows.UnitsMax)}
	case named > 0 && len(r.UnitIDs) == 0 && r.ReturnedQuantity == 0:
		return 0, &InvalidError{Field: "unit_ids", Message: "must be left out: the units of the reservation are counted"}
	case named == 0 && len(r.UnitIDs) > 0:
		return 0, &InvalidError{Field: "unit_ids", Message: "must name the units: the reservation is of a block"}
	case named > 0 && p.Quantity != 0 && p.Quantity != named:
		return 0, &InvalidError{Field: "quantity", Message: fmt.Sprintf("must be left out or %d, the number of unit_ids", named)}
	case named == 0 && p.Quantity < 1:
		return 0, &InvalidError{Field: "quantity", Message: "must be at least 1"}
	}
	return max(named, p.Quantity), nil
}

// strange returns the place of the first unit that the reservation does not
// have, -1 if it has all.
func (p Part) strange(r *reservations.Reservation) int {
	return slices.IndexFunc(p.UnitIDs, func(id string) bool { return !slices.Contains(r.UnitIDs, id) })
}

// CommitPartTx commits units of a hold as a separate reservation, which has
// its PartOf. The rest stays held, with its id and deadline. If the part is all
// that is held, the hold itself is committed, and rest is nil. stock and
// reserved fall by the units that are committed.
//
// It locks the stock, then the reservation, and is correct at every isolation
// level.
//
// Errors: [*InvalidError] for a part that is not of the hold;
// reservations.ErrNotFound, *reservations.ConflictError for one that has ended or
// is past its deadline, [reservationrows.ErrCheckoutInProgress], [ErrPartOfKit].
func CommitPartTx(ctx context.Context, tx pgx.Tx, tenantID, reservationID uuid.UUID, part Part, origin audit.Origin) (committed reservations.Reservation, rest *reservations.Reservation, err error) {
	g, err := lockOneTx(ctx, tx, Call{Action: CommitHold, TenantID: tenantID, ReservationID: reservationID})
	if err != nil {
		return committed, nil, err
	}
	if len(g.held) == 0 {
		return committed, nil, fmt.Errorf("reservation %s: %w", reservationID, reservations.ErrNotFound)
	}
	hold := g.held[0]
	if err := reservationrows.MustBeLive(g.held, g.now); err != nil {
		return committed, nil, err
	}
	quantity, err := part.quantity(&hold)
	strange := part.strange(&hold)
	switch {
	case err != nil:
		return committed, nil, err
	case strange >= 0:
		return committed, nil, &InvalidError{Field: fmt.Sprintf("unit_ids[%d]", strange), Message: "is not held by the reservation"}
	case quantity > hold.Quantity:
		return committed, nil, &InvalidError{Field: "quantity", Message: fmt.Sprintf("must be at most %d, what is held", hold.Quantity)}
	case quantity < hold.Quantity && hold.KitID != "":
		return committed, nil, fmt.Errorf("commit a part of reservation %s: %w", reservationID, ErrPartOfKit)
	}
	b := &pgx.Batch{}
	b.Queue(releaseSQL)
	if quantity == hold.Quantity {
		g.end(g.held, reservationrows.Ending{To: reservations.Committed, At: g.now, Origin: origin})
		committed = g.held[0]
	} else {
		committed = reservationrows.QueueCommitPart(b, &hold, uuid.Must(uuid.NewV7()), quantity, part.UnitIDs, g.now, origin)
		g.count([]reservations.Reservation{committed}, reservations.Committed)
		rest = &hold
	}
	g.QueueWrites(b)
	if err := tx.SendBatch(ctx, b).Close(); err != nil {
		return committed, nil, fmt.Errorf("commit a part of reservation %s: %w", reservationID, err)
	}
	return committed, rest, nil
}

// ReturnTx brings units of a committed reservation back: they are for sale
// again, and the reservation's ReturnedQuantity grows. Its status stays. It
// writes two audit rows: reservation.returned and stock.adjusted.
//
// It locks the stock, then the reservation, and is correct at every isolation
// level.
//
// Errors: [*InvalidError]; reservations.ErrNotFound, *reservations.ConflictError
// for one that is not committed; [ErrReturnExceeds]; [ErrUnknownVariant] if the
// stock was deleted since.
func ReturnTx(ctx context.Context, tx pgx.Tx, tenantID, reservationID uuid.UUID, part Part, origin audit.Origin) (r reservations.Reservation, err error) {
	r, err = getHold(ctx, tx, tenantID, reservationID)
	if err != nil {
		return r, err
	}
	rows, _ := tx.Query(ctx, lockOneSQL, tenantID, r.ResourceKey)
	stock, err := pgx.CollectExactlyOneRow(rows, toStock)
	if errors.Is(err, pgx.ErrNoRows) {
		err = ErrUnknownVariant
	}
	if err != nil {
		return r, fmt.Errorf("return units of reservation %s to stock %s: %w", reservationID, r.ResourceKey, err)
	}
	locked, _, err := reservationrows.LockTx(ctx, tx, []reservationrows.Ref{{TenantID: tenantID, ReservationID: reservationID}})
	switch {
	case err != nil:
		return r, err
	case len(locked) == 0:
		return r, fmt.Errorf("reservation %s: %w", reservationID, reservations.ErrNotFound)
	case locked[0].Status != reservations.Committed:
		return r, &reservations.ConflictError{ID: reservationID, Expected: reservations.Committed, Actual: locked[0].Status}
	}
	r = locked[0]
	quantity, err := part.quantity(&r)
	switch {
	case err != nil:
		return r, err
	case part.strange(&r) >= 0 || quantity > r.Quantity-r.ReturnedQuantity:
		return r, fmt.Errorf("return %d units of reservation %s: %w", quantity, reservationID, ErrReturnExceeds)
	case stock.NamedUnits != (len(part.UnitIDs) > 0): // a new stock has the id
		return r, fmt.Errorf("return units of reservation %s to stock %s: %w", reservationID, r.ResourceKey, ErrUnknownVariant)
	}
	after := stock
	after.Stock += quantity
	if after.Stock > MaxStock {
		return r, &InvalidError{Field: "quantity", Message: fmt.Sprintf("would make a stock of more than %d", MaxStock)}
	}
	adjusted, err := entry("stock.adjusted", &stock, after, origin)
	if err != nil {
		return r, err
	}
	b := &pgx.Batch{}
	reservationrows.QueueReturn(b, &r, quantity, part.UnitIDs, origin)
	queueDeltas(b, map[Ref]counterDelta{{tenantID, r.ResourceKey}: {stock: quantity}})
	audit.Queue(b, []audit.Entry{adjusted})
	err = tx.SendBatch(ctx, b).Close()
	if errors.Is(err, unitrows.ErrChanged) { // a new block has the id, and its units are not the reservation's
		err = ErrUnknownVariant
	}
	if err != nil {
		return r, fmt.Errorf("return units of reservation %s to stock %s: %w", reservationID, r.ResourceKey, err)
	}
	return r, nil
}
