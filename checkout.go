package holdfast

import (
	"context"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/internal/checkouts"
)

// CheckoutSaga is a checkout that waits for its payment, or has ended:
// committed, compensated or failed.
type CheckoutSaga = checkouts.Checkout

func (t *Tenant) beginCheckout(cart, paymentReference string, opts *CallOpts) *call[CheckoutSaga] {
	return &call[CheckoutSaga]{t, opts, "BeginCheckout", []any{cart, paymentReference}, func(ctx context.Context, tx pgx.Tx) (c CheckoutSaga, _, err error) {
		if err := t.client.steps.LockTimeoutTx(ctx, tx); err != nil {
			return c, nil, err
		}
		c, err = checkouts.BeginTx(ctx, tx, checkouts.Start{
			TenantID: t.TenantID, CartID: cart, PaymentReference: paymentReference, IdempotencyKey: opts.key(), Origin: opts.origin(),
		}, t.client.config.Checkouts)
		return c, nil, err
	}}
}

// BeginCheckout locks everything that a cart holds to a payment, all or nothing,
// until the payment is recorded or Config.Checkouts.TTL is over. Until then no
// other verb changes these holds.
//
// Errors: *InvalidError, ErrRequestsPending, ErrCheckoutInProgress,
// ErrHoldExpired, ErrCartEmpty, ErrKeyReused, ErrOutcomeUnknown.
func (t *Tenant) BeginCheckout(ctx context.Context, cart, paymentReference string, opts *CallOpts) (CheckoutSaga, error) {
	leave, err := t.client.steps.Enter(ctx)
	if err != nil {
		return CheckoutSaga{}, err
	}
	defer leave()
	return t.beginCheckout(cart, paymentReference, opts).run(ctx)
}

// BeginCheckoutTx is BeginCheckout in the caller's transaction, which must be
// READ COMMITTED. It locks the stocks in order, then the reservations, and sets
// the transaction's lock_timeout.
func (t *Tenant) BeginCheckoutTx(ctx context.Context, tx pgx.Tx, cart, paymentReference string, opts *CallOpts) (CheckoutSaga, error) {
	return t.beginCheckout(cart, paymentReference, opts).inTx(ctx, tx)
}

// RecordPayment records whether a checkout is paid, and takes the next step:
// the holds are committed or released. It may be repeated. If a paid checkout
// cannot be committed now, recovery does it later.
//
// Errors: ErrNotFound, *PaymentConflictError, ErrOutcomeUnknown.
func (t *Tenant) RecordPayment(ctx context.Context, checkoutID uuid.UUID, paid bool, opts *CallOpts) (CheckoutSaga, error) {
	p := checkouts.Payment{TenantID: t.TenantID, CheckoutID: checkoutID, Result: checkouts.ResultFailed, Origin: opts.origin()}
	if paid {
		p.Result = checkouts.ResultPaid
	}
	var written checkouts.Answered
	c := &call[CheckoutSaga]{t, opts, "RecordPayment", []any{checkoutID, paid}, func(ctx context.Context, tx pgx.Tx) (_ CheckoutSaga, conflict, err error) {
		if err := t.client.steps.LockTimeoutTx(ctx, tx); err != nil {
			return CheckoutSaga{}, nil, err
		}
		if written, err = checkouts.AnswerTx(ctx, tx, p); err == nil && written.Conflict != nil {
			conflict = written.Conflict
		}
		return written.Checkout, conflict, err
	}}
	if !paid {
		leave, err := t.client.steps.Enter(ctx)
		if err != nil {
			return CheckoutSaga{}, err
		}
		defer leave()
	}
	stored, err := c.run(ctx)
	if err != nil || written.Checkout.CheckoutID == uuid.Nil { // it was answered before
		return stored, err
	}
	return t.client.steps.Finish(ctx, written)
}

// GetCheckout returns a checkout as it is now.
//
// Errors: ErrNotFound.
func (t *Tenant) GetCheckout(ctx context.Context, checkoutID uuid.UUID) (CheckoutSaga, error) {
	c, err := checkouts.Get(ctx, t.client.db, t.TenantID, checkoutID)
	return c, vocabulary(err)
}
