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
	if _, err := inventory.KeepCheckoutTx(ctx, tx, c.TenantID, c.CheckoutID, KeptFor, origin); err != nil {
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
