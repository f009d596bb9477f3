package holdfast

import (
	"context"
	"errors"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/internal/checkouts"
)

// CheckoutSaga is a checkout that waits for its payment, or has ended:
// committed, compensated or failed.
type CheckoutSaga struct {
	checkouts.Checkout
	// Committed is what it committed; empty unless the status is committed.
	Committed []Reservation
}

func (t *Tenant) beginCheckout(cart, paymentReference, callbackURL string, refusal error, opts *CallOpts) *call[CheckoutSaga] {
	return &call[CheckoutSaga]{
		tenant: t, opts: opts, verb: "BeginCheckout", args: []any{cart, paymentReference, callbackURL},
		do: func(ctx context.Context, tx pgx.Tx) (c CheckoutSaga, _, err error) {
			if refusal != nil {
				return c, nil, refusal
			}
			if err := t.client.steps.LockTimeoutTx(ctx, tx); err != nil {
				return c, nil, err
			}
			c.Checkout, err = checkouts.BeginTx(ctx, tx, checkouts.Start{
				TenantID: t.TenantID, CheckoutID: opts.id(), CartID: cart, PaymentReference: paymentReference, CallbackURL: callbackURL,
				IdempotencyKey: opts.key(), Origin: opts.origin(),
			}, t.client.config.Checkouts)
			return c, nil, err
		},
	}
}

// BeginCheckout locks everything that a cart holds to a payment, all or nothing,
// until the payment is recorded or Config.Checkouts.TTL is over. Until then no
// other verb changes these holds. With a callback URL,
// Config.Checkouts.Validator asks there whether the checkout is paid. A
// repetition under the same idempotency key returns the checkout as it is now.
//
// Errors: *InvalidError, ErrRequestsPending, ErrCheckoutInProgress,
// ErrHoldExpired, ErrCartEmpty, ErrKeyReused, ErrOutcomeUnknown.
func (t *Tenant) BeginCheckout(ctx context.Context, cart, paymentReference, callbackURL string, opts *CallOpts) (CheckoutSaga, error) {
	// A host is looked up before the transaction. A repetition gets its result
	// even if that fails by now.
	refusal := t.client.checkCallback(ctx, callbackURL)
	leave, err := t.client.steps.Enter(ctx)
	if err != nil {
		return CheckoutSaga{}, vocabulary(err)
	}
	defer leave()
	c := t.beginCheckout(cart, paymentReference, callbackURL, refusal, opts)
	begun, err := c.run(ctx)
	if c.replayed && err == nil {
		return t.presently(ctx, begun)
	}
	return begun, err
}

// BeginCheckoutTx is BeginCheckout in the caller's transaction, which must be
// READ COMMITTED. It locks the stocks in order, then the reservations, and sets
// the transaction's lock_timeout.
func (t *Tenant) BeginCheckoutTx(ctx context.Context, tx pgx.Tx, cart, paymentReference, callbackURL string, opts *CallOpts) (CheckoutSaga, error) {
	return t.beginCheckout(cart, paymentReference, callbackURL, t.client.checkCallback(ctx, callbackURL), opts).inTx(ctx, tx)
}

// urlValidator is a checkouts.Validator that checks a callback URL before the
// checkout begins.
type urlValidator interface {
	ValidateURL(ctx context.Context, field, url string) error
}

// checkCallback refuses a callback URL that the validator cannot call.
func (c *Client) checkCallback(ctx context.Context, url string) error {
	if url == "" {
		return nil
	}
	if c.config.Checkouts.Validator == nil {
		return &InvalidError{Field: "callback_url", Message: "must be left out: this installation makes no callbacks, so the shop reports the payment"}
	}
	if validator, checks := c.config.Checkouts.Validator.(urlValidator); checks {
		return validator.ValidateURL(ctx, "callback_url", url)
	}
	return nil
}

// presently replaces the stored result of a repetition by the checkout as it is
// now. One that was purged meanwhile is as it was stored.
func (t *Tenant) presently(ctx context.Context, stored CheckoutSaga) (CheckoutSaga, error) {
	now, err := t.GetCheckout(ctx, stored.CheckoutID)
	if errors.Is(err, ErrNotFound) {
		return stored, nil
	}
	return now, err
}

// RecordPayment records whether a checkout is paid, and takes the next step:
// the holds are committed or released. It may be repeated. If a paid checkout
// cannot be committed now, recovery does it later.
//
// Errors: ErrNotFound, *PaymentConflictError, ErrKeyReused, ErrOutcomeUnknown.
func (t *Tenant) RecordPayment(ctx context.Context, checkoutID uuid.UUID, paid bool, opts *CallOpts) (CheckoutSaga, error) {
	p := checkouts.Payment{TenantID: t.TenantID, CheckoutID: checkoutID, Result: checkouts.ResultFailed, Origin: opts.origin()}
	if paid { // locks no stock, unless it is too late
		p.Result = checkouts.ResultPaid
	} else {
		leave, err := t.client.steps.Enter(ctx)
		if err != nil {
			return CheckoutSaga{}, vocabulary(err)
		}
		defer leave()
	}
	var written checkouts.Answered
	c := &call[CheckoutSaga]{
		tenant: t, opts: opts, verb: "RecordPayment", args: []any{checkoutID, paid},
		do: func(ctx context.Context, tx pgx.Tx) (_ CheckoutSaga, conflict, err error) {
			if err := t.client.steps.LockTimeoutTx(ctx, tx); err != nil {
				return CheckoutSaga{}, nil, err
			}
			if written, err = checkouts.AnswerTx(ctx, tx, p); err == nil && written.Conflict != nil {
				conflict = written.Conflict
			}
			return CheckoutSaga{Checkout: written.Checkout}, conflict, err
		},
	}
	stored, err := c.run(ctx)
	_, conflict := errors.AsType[*PaymentConflictError](err)
	switch {
	case err != nil && !conflict:
		return stored, err
	case c.replayed:
		return t.presently(ctx, stored)
	}
	finished, err := t.client.steps.Finish(ctx, written)
	if err != nil {
		return CheckoutSaga{Checkout: finished}, err
	}
	return t.withCommitted(ctx, finished)
}

// withCommitted reads what a checkout committed. These rows do not change any
// more, so they need not be read in the snapshot of the checkout.
func (t *Tenant) withCommitted(ctx context.Context, c checkouts.Checkout) (CheckoutSaga, error) {
	saga := CheckoutSaga{Checkout: c}
	var err error
	if c.Status == checkouts.Committed {
		saga.Committed, err = checkouts.Holds(ctx, t.client.db, t.TenantID, c.CheckoutID)
	}
	return saga, err
}

// GetCheckout returns a checkout as it is now.
//
// Errors: ErrNotFound.
func (t *Tenant) GetCheckout(ctx context.Context, checkoutID uuid.UUID) (CheckoutSaga, error) {
	c, err := checkouts.Get(ctx, t.client.db, t.TenantID, checkoutID)
	if err != nil {
		return CheckoutSaga{}, vocabulary(err)
	}
	return t.withCommitted(ctx, c)
}

const (
	// checkoutWaitersMax is how many callers may wait for a checkout at one time.
	// Each of them reads its row about every second. A further caller gets the
	// checkout in its present state.
	checkoutWaitersMax = 1000
	// checkoutPoll is the pause after the first read of a checkout. It doubles up
	// to checkoutPollMax.
	checkoutPoll, checkoutPollMax = 100 * time.Millisecond, time.Second
)

// WaitCheckout returns a checkout once it has ended, or as it is after the
// timeout or EndWaits. It reads the row repeatedly: a payment takes seconds, so
// a notification would save little.
//
// Errors: ErrNotFound; ctx's.
func (t *Tenant) WaitCheckout(ctx context.Context, checkoutID uuid.UUID, timeout time.Duration) (CheckoutSaga, error) {
	c := t.client
	defer c.checkoutWaiters.Add(-1)
	if c.checkoutWaiters.Add(1) > checkoutWaitersMax {
		timeout = 0
	}
	over := time.NewTimer(timeout)
	defer over.Stop()
	for pause, last := checkoutPoll, timeout <= 0; ; pause = min(2*pause, checkoutPollMax) {
		saga, err := t.GetCheckout(ctx, checkoutID)
		if err != nil || saga.Status.Ended() || last {
			return saga, err
		}
		last = c.pause(ctx, over.C, pause)
	}
}
