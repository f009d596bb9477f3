package checkouts

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/audit"
	"github.com/holdfast/holdfast/internal/invalid"
	"github.com/holdfast/holdfast/internal/inventory"
	"github.com/holdfast/holdfast/internal/reservationrows"
	"github.com/holdfast/holdfast/reservations"
)

// Result is the result of a payment.
type Result string

// The results. ResultPending, that it is not known yet, is for a Validator
// only.
const (
	ResultPaid    Result = "paid"
	ResultFailed  Result = "failed"
	ResultPending Result = "pending"
)

// Payment is the answer of a payment.
type Payment struct {
	TenantID, CheckoutID uuid.UUID
	Result               Result
	Origin               audit.Origin
}

// Answer records the result of a payment and takes the next step.
//
// ResultPaid is recorded in one transaction, after which the checkout is
// finalizing, and the holds are committed in a second one. If the second one
// fails, the error is logged, Answer returns the finalizing checkout, and
// recovery commits it later. ResultFailed releases all holds in one
// transaction.
//
// The error is a *ConflictError, with the checkout as it is, if the answer does
// not agree with the checkout: it has ended; it is finalizing and the result is
// ResultFailed; the result is ResultPaid and its deadline has passed, which
// compensates it; or it was paid and has lost a hold. ResultPaid for a
// checkout that is compensated, also by this call, or that fails raises an
// Alert. A repeated ResultPaid for a finalizing checkout commits the holds.
//
// Other errors: *inventory.InvalidError for another result; ErrNotFound.
func Answer(ctx context.Context, db *pgxpool.Pool, p Payment, config Config) (Checkout, error) {
	steps, err := NewSteps(db, config)
	if err != nil {
		return Checkout{}, err
	}
	var a Answered
	err = pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		a, err = AnswerTx(ctx, tx, p)
		return err
	})
	if err != nil {
		return Checkout{}, err
	}
	return steps.Finish(ctx, a)
}

// Answered is what AnswerTx has written.
type Answered struct {
	// Checkout is the checkout as it is then.
	Checkout Checkout
	// Conflict is not nil if the answer does not agree with the checkout; see
	// Answer. The compensation and the alert of such a checkout are written, so
	// the caller commits.
	Conflict *ConflictError

	payment Payment
}

// AnswerTx is the first transaction of Answer, as a part of the caller's, which
// calls Steps.Finish after the commit. Without it, recovery commits what is
// paid, and an alert that the answer has raised is recorded but not reported.
// After an error the caller rolls back.
//
// It locks the checkout; for ResultPaid before the deadline then its
// reservations, otherwise the stocks in order, then the reservations. It is
// correct at every isolation level.
func AnswerTx(ctx context.Context, tx pgx.Tx, p Payment) (Answered, error) {
	if p.Result != ResultPaid && p.Result != ResultFailed {
		return Answered{}, &invalid.Error{Field: "result", Message: fmt.Sprintf("must be %s or %s", ResultPaid, ResultFailed)}
	}
	c, now, err := lockTx(ctx, tx, p.TenantID, p.CheckoutID)
	if err != nil {
		return Answered{}, err
	}
	paid := p.Result == ResultPaid
	switch {
	case paid && c.Status == Finalizing:
		return Answered{Checkout: c, payment: p}, nil
	case c.Status != Validating:
		return conflictTx(ctx, tx, c, p)
	case paid && now.Before(c.Deadline):
		err = paidTx(ctx, tx, &c, now, p.Origin)
	case paid:
		err = compensateTx(ctx, tx, &c, PaymentTimeout, now, p.Origin)
	default:
		err = compensateTx(ctx, tx, &c, PaymentFailed, now, p.Origin)
	}
	switch {
	case err != nil:
		return Answered{}, err
	case paid && c.Status == Compensated:
		return conflictTx(ctx, tx, c, p)
	}
	return Answered{Checkout: c, payment: p}, nil
}

// conflictTx returns a locked checkout with a *ConflictError, and raises the
// alert if it was paid and does not receive its units.
func conflictTx(ctx context.Context, tx pgx.Tx, c Checkout, p Payment) (Answered, error) {
	conflict := &ConflictError{CheckoutID: c.CheckoutID, Status: c.Status}
	if p.Result == ResultPaid && c.Status != Committed && c.Alert == "" {
		conflict.Raised = PaidTooLate
		p.Origin.Reason = string(PaidTooLate)
		err := moveTx(ctx, tx, &c, EventAlert, p.Origin, func(c *Checkout) { c.Alert = PaidTooLate })
		if err != nil {
			return Answered{}, err
		}
	}
	return Answered{Checkout: c, Conflict: conflict, payment: p}, nil
}

// paidTx records that a locked checkout is paid, and keeps its holds for the
// commit.
func paidTx(ctx context.Context, tx pgx.Tx, c *Checkout, now time.Time, origin audit.Origin) error {
	if _, err := reservationrows.KeepCheckoutTx(ctx, tx, c.TenantID, c.CheckoutID, KeptFor, origin); err != nil {
		return err
	}
	return moveTx(ctx, tx, c, EventPaid, origin, func(c *Checkout) {
		c.Status, c.NextAttemptAt = Finalizing, now.Add(finalizeWithin)
	})
}

// compensateTx releases what a locked checkout still holds.
func compensateTx(ctx context.Context, tx pgx.Tx, c *Checkout, reason Reason, now time.Time, origin audit.Origin) error {
	holds, err := inventory.LockCheckoutTx(ctx, tx, c.TenantID, c.CheckoutID)
	if err != nil {
		return err
	}
	if err := holds.ReleaseTx(ctx, tx, reservations.PaymentFailed, origin); err != nil {
		return fmt.Errorf("compensate checkout %s: %w", c.CheckoutID, err)
	}
	return moveTx(ctx, tx, c, EventCompensated, origin, func(c *Checkout) {
		c.Status, c.Reason, c.EndedAt = Compensated, reason, &now
	})
}

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

// finalizeTx commits the holds of a finalizing checkout and returns it as it is
// then: committed, or failed if a hold was lost, which raises an Alert. It
// reports whether it raised one. A checkout of another status is returned as it
// is.
//
// Errors: ErrNotFound.
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
