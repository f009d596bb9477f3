package checkouts

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/audit"
	"github.com/holdfast/holdfast/internal/invalid"
	"github.com/holdfast/holdfast/inventory"
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
func Answer(ctx context.Context, db *pgxpool.Pool, p Payment, config Config) (c Checkout, err error) {
	config, err = config.withDefaults()
	if err != nil {
		return Checkout{}, err
	}
	var conflict *ConflictError // is returned once the alert is committed
	err = pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		c, err = AnswerTx(ctx, tx, p)
		if errors.As(err, &conflict) {
			return nil
		}
		return err
	})
	switch {
	case err != nil:
		return Checkout{}, err
	case conflict != nil:
		if conflict.Raised != "" {
			ReportAlert(ctx, config.Log, c, conflict.Raised)
		}
		return c, conflict
	case c.Status != Finalizing:
		return c, nil
	}
	ended, err := Finalize(ctx, db, p.TenantID, p.CheckoutID, p.Origin, config)
	switch {
	case err != nil:
		config.Log.WarnContext(ctx, "a paid checkout is left to recovery", "tenant_id", p.TenantID, "checkout_id", p.CheckoutID, "error", err)
		return c, nil
	case ended.Status == Failed:
		return ended, &ConflictError{CheckoutID: ended.CheckoutID, Status: ended.Status}
	}
	return ended, nil
}

// AnswerTx is the first transaction of Answer, as a part of the caller's. If it
// returns a finalizing checkout, the caller calls Finalize after the commit, or
// leaves that to recovery. On a *ConflictError the caller must commit, because
// the compensation and the alert are written there too, and then call
// ReportAlert if the error has Raised. After any other error it rolls back.
//
// It locks the checkout; for ResultPaid before the deadline then its
// reservations, otherwise the stocks in order, then the reservations. It is
// correct at every isolation level.
func AnswerTx(ctx context.Context, tx pgx.Tx, p Payment) (Checkout, error) {
	if p.Result != ResultPaid && p.Result != ResultFailed {
		return Checkout{}, &invalid.Error{Field: "result", Message: fmt.Sprintf("must be %s or %s", ResultPaid, ResultFailed)}
	}
	c, now, err := lockTx(ctx, tx, p.TenantID, p.CheckoutID)
	if err != nil {
		return Checkout{}, err
	}
	paid := p.Result == ResultPaid
	switch {
	case paid && c.Status == Finalizing:
		return c, nil
	case c.Status != Validating:
		return conflictTx(ctx, tx, c, paid, p.Origin)
	case paid && now.Before(c.Deadline):
		err = paidTx(ctx, tx, &c, now, p.Origin)
	case paid:
		err = compensateTx(ctx, tx, &c, PaymentTimeout, now, p.Origin)
	default:
		err = compensateTx(ctx, tx, &c, PaymentFailed, now, p.Origin)
	}
	switch {
	case err != nil:
		return Checkout{}, err
	case paid && c.Status == Compensated:
		return conflictTx(ctx, tx, c, paid, p.Origin)
	}
	return c, nil
}

// conflictTx returns a locked checkout with a *ConflictError, and raises the
// alert if it was paid and does not receive its units.
func conflictTx(ctx context.Context, tx pgx.Tx, c Checkout, paid bool, origin audit.Origin) (Checkout, error) {
	conflict := &ConflictError{CheckoutID: c.CheckoutID, Status: c.Status}
	if paid && c.Status != Committed && c.Alert == "" {
		conflict.Raised = PaidTooLate
		origin.Reason = string(PaidTooLate)
		err := moveTx(ctx, tx, &c, EventAlert, origin, func(c *Checkout) { c.Alert = PaidTooLate })
		if err != nil {
			return Checkout{}, err
		}
	}
	return c, conflict
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
