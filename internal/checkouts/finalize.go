package checkouts

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/audit"
	"github.com/holdfast/holdfast/internal/inventory"
	"github.com/holdfast/holdfast/reservations"
)

// counts are the holds of a paid checkout: those in its record, and of these
// those that are still held by it, and those that it has committed. The others
// are lost: they have expired, or were ended by other means.
type counts struct{ recorded, held, committed int }

// finding is what the counts of a paid checkout mean.
type finding int

const (
	heldByUs      finding = iota + 1 // none is lost: commit those that are held
	committedByUs                    // all are committed: record it
	lost                             // at least one is lost: release those that are held, and fail
)

// judge returns what the counts mean. Counts that exceed the record cannot be
// this checkout's, and are lost.
func (n counts) judge() finding {
	switch {
	case n.held+n.committed != n.recorded:
		return lost
	case n.held == 0:
		return committedByUs
	default:
		return heldByUs
	}
}

// Finalize commits the holds of a finalizing checkout and returns it as it is
// then: committed, or failed if a hold was lost, which raises an Alert. A
// checkout of another status is returned as it is.
//
// It waits at most half a second for each lock. Recovery repeats a commit that
// has failed.
//
// Errors: ErrNotFound.
func Finalize(ctx context.Context, db *pgxpool.Pool, tenantID, checkoutID uuid.UUID, origin audit.Origin, config Config) (Checkout, error) {
	steps, err := NewSteps(db, config)
	if err != nil {
		return Checkout{}, err
	}
	return steps.finalize(ctx, tenantID, checkoutID, origin)
}

// finalizeTx is Finalize in one transaction, and reports whether it raised an
// alert.
func finalizeTx(ctx context.Context, tx pgx.Tx, tenantID, checkoutID uuid.UUID, origin audit.Origin) (c Checkout, raised bool, err error) {
	c, now, err := lockTx(ctx, tx, tenantID, checkoutID)
	if err != nil || c.Status != Finalizing {
		return c, false, err
	}
	holds, err := inventory.LockCheckoutTx(ctx, tx, tenantID, checkoutID)
	if err != nil {
		return c, false, err
	}
	switch (counts{int(c.Holds), len(holds.Held), len(holds.Committed)}).judge() {
	case lost:
		err = failTx(ctx, tx, &c, holds, now, origin)
		return c, true, err
	case heldByUs:
		err = holds.CommitTx(ctx, tx, origin)
	case committedByUs:
	}
	if err == nil {
		err = moveTx(ctx, tx, &c, EventCommitted, origin, func(c *Checkout) { c.Status, c.EndedAt = Committed, &now })
	}
	return c, false, err
}

// failTx ends a paid checkout that has lost a hold, and raises the alert.
func failTx(ctx context.Context, tx pgx.Tx, c *Checkout, holds *inventory.CheckoutHolds, now time.Time, origin audit.Origin) error {
	if err := holds.ReleaseTx(ctx, tx, reservations.PaymentFailed, origin); err != nil {
		return err
	}
	err := moveTx(ctx, tx, c, EventFailed, origin, func(c *Checkout) {
		c.Status, c.Reason, c.Alert, c.EndedAt = Failed, LostStock, StockLost, &now
	})
	if err != nil {
		return err
	}
	origin.Reason = string(StockLost)
	return audit.WriteTx(ctx, tx, []audit.Entry{{
		TenantID: c.TenantID, TargetID: c.CheckoutID, Action: EventAlert, Origin: origin, Before: c.state(), After: c.state(),
	}})
}

// recoveryOrigin is the origin of what recovery does with a checkout.
func (c *Checkout) recoveryOrigin() audit.Origin {
	return audit.Origin{Actor: audit.Job("checkout_recovery"), CorrelationID: c.CorrelationID}
}

// timeoutTx compensates a validating checkout whose deadline has passed. A
// checkout of another status, or before its deadline, is returned as it is.
func timeoutTx(ctx context.Context, tx pgx.Tx, tenantID, checkoutID uuid.UUID) (Checkout, error) {
	c, now, err := lockTx(ctx, tx, tenantID, checkoutID)
	if err != nil || c.Status != Validating || now.Before(c.Deadline) {
		return c, err
	}
	err = compensateTx(ctx, tx, &c, PaymentTimeout, now, c.recoveryOrigin())
	return c, err
}
