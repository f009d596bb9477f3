package inventory

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/audit"
	"github.com/holdfast/holdfast/internal/pg"
	"github.com/holdfast/holdfast/internal/reservationrows"
	"github.com/holdfast/holdfast/reservations"
)

// The verbs of this file change the holds of a checkout, for package checkouts.
// Between LockCartTx and the end of the checkout, every other verb refuses them
// with reservationrows.ErrCheckoutInProgress. Only their deadline still ends them.

// LockedCart is what LockCartTx has locked to a checkout.
type LockedCart struct {
	Holds []reservations.Reservation
	// Now is a reading of the database's clock, taken under the locks.
	Now time.Time
}

// Units is the number of units of all holds.
func (c *LockedCart) Units() int64 { return units(c.Holds) }

// LockCartTx locks everything a cart holds to a checkout, all or nothing, and
// sets the deadlines to the time ttl after now. It writes one audit row
// (reservation.extended) for each hold.
//
// It locks the stocks of the cart's variants in order, then its reservations.
//
// The transaction must be READ COMMITTED, else ErrIsolation.
//
// Errors, in order of precedence: reservationrows.ErrCheckoutInProgress if a hold
// is locked to another checkout; ErrHoldExpired; ErrCartEmpty.
func LockCartTx(ctx context.Context, tx pgx.Tx, tenantID uuid.UUID, cartID string, checkoutID uuid.UUID, ttl time.Duration, origin audit.Origin) (LockedCart, error) {
	g, err := lockOneTx(ctx, tx, Call{Action: CheckoutCart, TenantID: tenantID, CartID: cartID}, pg.QueueIsolation)
	if err != nil {
		return LockedCart{}, err
	}
	live, _ := splitDue(g.held, g.now)
	if err := g.mayCheckOut(&g.Members[0], live); err != nil {
		return LockedCart{}, err
	}
	deadline := g.now.Add(ttl).Truncate(time.Microsecond)
	deltas := make(map[Ref]counterDelta)
	for i := range live {
		if deadline.Before(live[i].ExpiresAt) {
			deltas[Ref{live[i].TenantID, live[i].ResourceKey}] = counterDelta{earliest: deadline}
		}
	}
	b := &pgx.Batch{}
	b.Queue(releaseSQL)
	queueDeltas(b, deltas)
	reservationrows.QueueLockToCheckout(b, live, checkoutID, deadline, origin)
	if err := tx.SendBatch(ctx, b).Close(); err != nil {
		return LockedCart{}, fmt.Errorf("lock cart %s to checkout %s: %w", cartID, checkoutID, err)
	}
	return LockedCart{live, g.now}, nil
}

// CheckoutHolds are the holds of a checkout under the locks of LockCheckoutTx.
type CheckoutHolds struct {
	// Held are live and locked to the checkout; Committed are those that it has
	// committed already. All others are lost: due, expired, or ended by other
	// means.
	Held, Committed []reservations.Reservation

	due []reservations.Reservation
	now time.Time
}

// LockCheckoutTx locks the stocks of a checkout's holds in order, then the
// reservations, and returns them as they are under the locks. The caller has
// locked the checkout. Its counts show which of the holds are still the
// checkout's; then it calls CommitTx or ReleaseTx in the same transaction.
//
// It is correct at every isolation level.
func LockCheckoutTx(ctx context.Context, tx pgx.Tx, tenantID, checkoutID uuid.UUID) (*CheckoutHolds, error) {
	found, err := reservationrows.OfCheckout(ctx, tx, tenantID, checkoutID)
	if err != nil {
		return nil, err
	}
	lock := holdLock{variants: variantsOfHolds(found), refs: reservationrows.Refs(found)}
	if err := lock.lockTx(ctx, tx); err != nil {
		return nil, err
	}
	if _, err := tx.Exec(ctx, releaseSQL); err != nil {
		return nil, fmt.Errorf("lock the holds of checkout %s: %w", checkoutID, err)
	}
	holds := &CheckoutHolds{now: lock.now}
	for _, r := range lock.held {
		switch {
		case r.Due(holds.now):
			holds.due = append(holds.due, r)
		case r.Status == reservations.Held:
			holds.Held = append(holds.Held, r)
		case r.Status == reservations.Committed:
			holds.Committed = append(holds.Committed, r)
		}
	}
	return holds, nil
}

// CommitTx commits the holds that are Held: stock and reserved both fall by
// their units. It is correct at every isolation level.
func (h *CheckoutHolds) CommitTx(ctx context.Context, tx pgx.Tx, origin audit.Origin) error {
	return endTx(ctx, tx, h.Held, reservationrows.Ending{To: reservations.Committed, At: h.now, Origin: origin})
}

// ReleaseTx releases the holds that are Held for the given reason, and records
// the expiry of those that are due. It is correct at every isolation level.
func (h *CheckoutHolds) ReleaseTx(ctx context.Context, tx pgx.Tx, reason reservations.ReleaseReason, origin audit.Origin) error {
	if err := endTx(ctx, tx, h.due, expiry(h.now)); err != nil {
		return err
	}
	return endTx(ctx, tx, h.Held, reservationrows.Ending{To: reservations.Released, Reason: reason, At: h.now, Origin: origin})
}

// variantsOfHolds returns the distinct variants of the holds.
func variantsOfHolds(held []reservations.Reservation) (refs []Ref) {
	seen := make(map[Ref]bool)
	for i := range held {
		if ref := (Ref{held[i].TenantID, held[i].ResourceKey}); !seen[ref] {
			seen[ref] = true
			refs = append(refs, ref)
		}
	}
	return refs
}
