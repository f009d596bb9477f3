package holdfast

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/internal/admission"
	"github.com/holdfast/holdfast/internal/carts"
	"github.com/holdfast/holdfast/internal/inventory"
	"github.com/holdfast/holdfast/internal/requestrows"
	"github.com/holdfast/holdfast/internal/sleep"
	"github.com/holdfast/holdfast/requests"
	"github.com/holdfast/holdfast/reservations"
)

type (
	// Request is what a caller asked for: queued, processing, done or failed
	// with a reason. Its hold, if it is granted, has its id.
	Request = requests.Request
	// Outcome is a request with the reservation that was made for it, nil if
	// there is none.
	Outcome = requests.View
	// Cart is what a cart holds and waits for.
	Cart = requests.Cart
	// Removed is what a removal released and cancelled.
	Removed = requests.Removed
	// Reservation is units that are kept for a holder until a deadline.
	Reservation = reservations.Reservation
)

// The statuses of a finished request.
const (
	Done   = requests.Done
	Failed = requests.Failed
)

// Add requests units of a variant for a cart, in addition to those that it
// holds. The request is queued when Add returns, and decided soon; Wait returns
// its outcome.
//
// Errors: *InvalidError, *RefusedError, ErrKeyReused, ErrOutcomeUnknown. That a
// variant is unknown or sold out is an outcome.
func (t *Tenant) Add(ctx context.Context, cart, variant string, quantity int32, opts *CallOpts) (Request, error) {
	return t.submit(ctx, requestrows.Submission{Kind: requests.Add, CartID: cart, VariantID: variant, Quantity: quantity}, opts)
}

// AddTx is Add in the caller's transaction, which must be READ COMMITTED: the
// request is queued when it commits. It is never refused for load.
func (t *Tenant) AddTx(ctx context.Context, tx pgx.Tx, cart, variant string, quantity int32, opts *CallOpts) (Request, error) {
	return t.submitTx(ctx, tx, requestrows.Submission{Kind: requests.Add, CartID: cart, VariantID: variant, Quantity: quantity}, opts)
}

// Set requests that the cart holds quantity units of a variant, in place of
// those that it holds: the old hold is released and the new one made, both or
// neither.
//
// Errors: as Add.
func (t *Tenant) Set(ctx context.Context, cart, variant string, quantity int32, opts *CallOpts) (Request, error) {
	return t.submit(ctx, requestrows.Submission{Kind: requests.Set, CartID: cart, VariantID: variant, Quantity: quantity}, opts)
}

// SetTx is Set in the caller's transaction, as AddTx is Add.
func (t *Tenant) SetTx(ctx context.Context, tx pgx.Tx, cart, variant string, quantity int32, opts *CallOpts) (Request, error) {
	return t.submitTx(ctx, tx, requestrows.Submission{Kind: requests.Set, CartID: cart, VariantID: variant, Quantity: quantity}, opts)
}

// described completes a submission with the tenant and the options of its call.
func (t *Tenant) described(s requestrows.Submission, opts *CallOpts) (requestrows.Submission, error) {
	c := call[Request]{tenant: t, opts: opts, verb: string(s.Kind), args: []any{s.CartID, s.VariantID, s.Quantity, s.Units}}
	origin := opts.origin()
	s.TenantID, s.CorrelationID, s.ActorID, s.IdempotencyKey = t.TenantID, origin.CorrelationID, origin.Actor.ID, opts.key()
	var err error
	if s.IdempotencyKey != "" {
		s.Fingerprint, err = c.fingerprint()
	}
	return s, err
}

func (t *Tenant) submit(ctx context.Context, s requestrows.Submission, opts *CallOpts) (r Request, err error) {
	c := t.client
	if s, err = t.described(s, opts); err != nil {
		return r, err
	}
	if c.acceptor != nil && c.started.Load() {
		r, err = c.acceptor.Intake.Submit(ctx, s)
		return r, vocabulary(err)
	}
	own := call[Request]{tenant: t, do: func(ctx context.Context, tx pgx.Tx) (r Request, _, err error) {
		r, err = admission.SubmitTx(ctx, tx, c.inserter, s)
		return r, nil, err
	}}
	return own.run(ctx)
}

func (t *Tenant) submitTx(ctx context.Context, tx pgx.Tx, s requestrows.Submission, opts *CallOpts) (Request, error) {
	s, err := t.described(s, opts)
	if err != nil {
		return Request{}, err
	}
	r, err := admission.SubmitTx(ctx, tx, t.client.inserter, s)
	return r, vocabulary(err)
}

// Request returns a request as it is now.
//
// Errors: ErrNotFound.
func (t *Tenant) Request(ctx context.Context, requestID uuid.UUID) (Outcome, error) {
	v, err := requestrows.Get(ctx, t.client.db, t.TenantID, requestID)
	return v, vocabulary(err)
}

// pollEvery is how often Wait reads a request in a process whose client is not
// started.
const pollEvery = 100 * time.Millisecond

// Wait returns a request when it is done or failed, or as it is after the
// timeout.
//
// Errors: ErrNotFound; ctx's.
func (t *Tenant) Wait(ctx context.Context, requestID uuid.UUID, timeout time.Duration) (Outcome, error) {
	c := t.client
	if c.started.Load() {
		v, err := c.watcher.Wait(ctx, t.TenantID, requestID, timeout)
		return v, vocabulary(err)
	}
	within, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	for {
		v, err := t.Request(ctx, requestID)
		if err != nil || v.Status == Done || v.Status == Failed || within.Err() != nil {
			return v, err
		}
		_ = sleep.For(within, pollEvery) // or the time is over
	}
}

// Cart returns what a cart holds, its unfinished requests, up to 1,000 of each,
// and its latest failed ones. An unknown cart is empty. The cursor is that of an
// earlier page, or empty.
//
// Errors: *InvalidError.
func (t *Tenant) Cart(ctx context.Context, cart, cursor string) (Cart, error) {
	return requestrows.ViewCart(ctx, t.client.db, t.TenantID, cart, 0, cursor)
}

func (t *Tenant) remove(cart, variant string, opts *CallOpts) *call[Removed] {
	return &call[Removed]{t, opts, "Remove", []any{cart, variant}, func(ctx context.Context, tx pgx.Tx) (removed Removed, _, err error) {
		removed, err = carts.RemoveTx(ctx, tx, t.TenantID, cart, variant, reservations.CartRemoved, opts.origin())
		return removed, nil, err
	}}
}

// Remove takes a variant out of a cart, or all of them if variant is "": its
// holds are released and its undecided requests fail with reason cancelled. It
// is no error if the cart has none.
//
// Errors: *RefusedError, ErrCheckoutInProgress, ErrKeyReused,
// ErrOutcomeUnknown.
func (t *Tenant) Remove(ctx context.Context, cart, variant string, opts *CallOpts) (Removed, error) {
	verb := &inventory.Call{Action: inventory.ReleaseCart, CartID: cart, VariantID: variant, Reason: reservations.CartRemoved}
	return t.remove(cart, variant, opts).synchronous(ctx, verb, func(released []Reservation) Removed { return Removed{Released: released} })
}

// RemoveTx is Remove in the caller's transaction, which must be READ COMMITTED.
// It locks requests, then stocks, then reservations.
func (t *Tenant) RemoveTx(ctx context.Context, tx pgx.Tx, cart, variant string, opts *CallOpts) (Removed, error) {
	return t.remove(cart, variant, opts).inTx(ctx, tx)
}

func (t *Tenant) extend(cart string, by time.Duration, opts *CallOpts) *call[[]Reservation] {
	return &call[[]Reservation]{t, opts, "Extend", []any{cart, by}, func(ctx context.Context, tx pgx.Tx) (held []Reservation, _, err error) {
		held, err = inventory.ExtendCartTx(ctx, tx, t.TenantID, cart, by, t.client.lifetimeMax(), opts.origin())
		return held, nil, err
	}}
}

// Extend moves the deadlines of all that a cart holds, all or none.
//
// Errors: *InvalidError, *RefusedError, ErrCartEmpty, ErrHoldExpired,
// ErrLifetimeExceeded, ErrCheckoutInProgress, ErrKeyReused, ErrOutcomeUnknown.
func (t *Tenant) Extend(ctx context.Context, cart string, by time.Duration, opts *CallOpts) ([]Reservation, error) {
	verb := &inventory.Call{Action: inventory.ExtendCart, CartID: cart, By: by, LifetimeMax: t.client.lifetimeMax()}
	return t.extend(cart, by, opts).synchronous(ctx, verb, unchanged)
}

// ExtendTx is Extend in the caller's transaction, which must be READ COMMITTED.
// It locks the reservations.
func (t *Tenant) ExtendTx(ctx context.Context, tx pgx.Tx, cart string, by time.Duration, opts *CallOpts) ([]Reservation, error) {
	return t.extend(cart, by, opts).inTx(ctx, tx)
}

func (c *Client) lifetimeMax() time.Duration { return c.config.Terms.LifetimeMax }

func unchanged(of []Reservation) []Reservation { return of }

func (t *Tenant) checkout(cart string, opts *CallOpts) *call[[]Reservation] {
	return &call[[]Reservation]{t, opts, "Checkout", []any{cart}, func(ctx context.Context, tx pgx.Tx) (committed []Reservation, _, err error) {
		committed, err = carts.CheckoutTx(ctx, tx, t.TenantID, cart, opts.origin())
		return committed, nil, err
	}}
}

// Checkout commits everything that a cart holds, all or nothing: stock and
// reserved both fall by what was held.
//
// Errors: *RefusedError, ErrRequestsPending, ErrCheckoutInProgress,
// ErrHoldExpired, ErrCartEmpty, ErrKeyReused, ErrOutcomeUnknown.
func (t *Tenant) Checkout(ctx context.Context, cart string, opts *CallOpts) ([]Reservation, error) {
	return t.checkout(cart, opts).synchronous(ctx, &inventory.Call{Action: inventory.CheckoutCart, CartID: cart}, unchanged)
}

// CheckoutTx is Checkout in the caller's transaction, which must be READ
// COMMITTED. It locks the stocks in order, then the reservations.
func (t *Tenant) CheckoutTx(ctx context.Context, tx pgx.Tx, cart string, opts *CallOpts) ([]Reservation, error) {
	return t.checkout(cart, opts).inTx(ctx, tx)
}
