package holdfast

import (
	"cmp"
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/audit"
	"github.com/holdfast/holdfast/internal/carts"
	"github.com/holdfast/holdfast/internal/inventory"
	"github.com/holdfast/holdfast/internal/requestrows"
	"github.com/holdfast/holdfast/requests"
	"github.com/holdfast/holdfast/reservations"
)

type (
	// Cart is what a cart holds and waits for.
	Cart = requests.Cart
	// Reservation is units that are kept for a holder until a deadline.
	Reservation = reservations.Reservation
	// ReleaseReason is why a reservation was released: one of the reasons of
	// package reservations.
	ReleaseReason = reservations.ReleaseReason
	// Actor is who makes a call: audit.User, audit.Job, audit.System.
	Actor = audit.Actor
)

// Cart returns what a cart holds, its unfinished requests, up to limit of each,
// or 1,000 if it is 0, and its latest failed ones. An unknown cart is empty. The
// cursor is that of an earlier page, or empty.
//
// Errors: *InvalidError.
func (t *Tenant) Cart(ctx context.Context, cart string, limit int, cursor string) (Cart, error) {
	return requestrows.ViewCart(ctx, t.client.db, t.TenantID, cart, limit, cursor)
}

func (t *Tenant) remove(cart, variant string, reason ReleaseReason, opts *CallOpts) *call[requests.Removed] {
	v := inventory.Call{Action: inventory.ReleaseCart, CartID: cart, VariantID: variant, Reason: cmp.Or(reason, reservations.CartRemoved)}
	return holdCall(t, opts, "Remove", v, func(a carts.Applied) requests.Removed {
		return requests.Removed{Released: a.Reservations, Cancelled: a.Cancelled}
	})
}

// Remove takes a variant out of a cart, or all of them if variant is "": its
// holds are released, for the reason (default reservations.CartRemoved), and its
// undecided requests fail with reason cancelled. It is no error if the cart has
// none.
//
// Errors: *InvalidError for the reason, *RefusedError, ErrCheckoutInProgress,
// ErrPartOfKit if the cart holds units of the variant for a kit, ErrKeyReused,
// ErrOutcomeUnknown.
func (t *Tenant) Remove(ctx context.Context, cart, variant string, reason ReleaseReason, opts *CallOpts) (requests.Removed, error) {
	removed, err := t.remove(cart, variant, reason, opts).grouped(ctx)
	if err == nil {
		t.notifyCancelled(ctx, removed.Cancelled)
	}
	return removed, err
}

// RemoveTx is Remove in the caller's transaction, which must be READ COMMITTED.
// It locks requests, then stocks, then reservations.
func (t *Tenant) RemoveTx(ctx context.Context, tx pgx.Tx, cart, variant string, reason ReleaseReason, opts *CallOpts) (requests.Removed, error) {
	return t.remove(cart, variant, reason, opts).inTx(ctx, tx)
}

// notifyCancelled notifies the callers that wait for cancelled requests. They
// also poll.
func (t *Tenant) notifyCancelled(ctx context.Context, cancelled []uuid.UUID) {
	ended := make([]Request, len(cancelled))
	for i, id := range cancelled {
		ended[i] = Request{TenantID: t.TenantID, RequestID: id}
	}
	if err := requestrows.NotifyFinished(ctx, t.client.db, ended); err != nil {
		t.client.config.Log.WarnContext(ctx, "waiters were not notified of cancelled requests", "error", err)
	}
}

func (t *Tenant) extend(cart string, by time.Duration, opts *CallOpts) *call[[]Reservation] {
	return holdCall(t, opts, "Extend", inventory.Call{Action: inventory.ExtendCart, CartID: cart, By: by}, all)
}

func all(a carts.Applied) []Reservation { return a.Reservations }

// Extend moves the deadlines of all that a cart holds, all or none.
//
// Errors: *InvalidError, *RefusedError, ErrCartEmpty, ErrHoldExpired,
// ErrLifetimeExceeded, ErrCheckoutInProgress, ErrKeyReused, ErrOutcomeUnknown.
func (t *Tenant) Extend(ctx context.Context, cart string, by time.Duration, opts *CallOpts) ([]Reservation, error) {
	return t.extend(cart, by, opts).grouped(ctx)
}

// ExtendTx is Extend in the caller's transaction, which must be READ COMMITTED.
// It locks the reservations.
func (t *Tenant) ExtendTx(ctx context.Context, tx pgx.Tx, cart string, by time.Duration, opts *CallOpts) ([]Reservation, error) {
	return t.extend(cart, by, opts).inTx(ctx, tx)
}

func (t *Tenant) transferCart(from, to string, opts *CallOpts) *call[[]Reservation] {
	return &call[[]Reservation]{
		tenant: t, opts: opts, verb: "TransferCart", args: []any{from, to, opts.customer()},
		do: func(ctx context.Context, tx pgx.Tx) (moved []Reservation, _, err error) {
			moved, err = carts.TransferTx(ctx, tx, t.TenantID, from, to, opts.customer(), opts.origin())
			return moved, nil, err
		},
	}
}

// TransferCart moves what a cart holds to another cart, all or nothing: a guest
// logs in. Each hold keeps its id and deadline; the limits of the other cart and
// of the Customer of opts are checked. What is past its deadline is not moved.
//
// Errors: *InvalidError, ErrRequestsPending, ErrCheckoutInProgress,
// ErrLimitExceeded, ErrKeyReused, ErrOutcomeUnknown.
func (t *Tenant) TransferCart(ctx context.Context, from, to string, opts *CallOpts) ([]Reservation, error) {
	return t.transferCart(from, to, opts).run(ctx)
}

// TransferCartTx is TransferCart in the caller's transaction, which must be READ
// COMMITTED. It locks the stocks in order, then the reservations.
func (t *Tenant) TransferCartTx(ctx context.Context, tx pgx.Tx, from, to string, opts *CallOpts) ([]Reservation, error) {
	return t.transferCart(from, to, opts).inTx(ctx, tx)
}

func (t *Tenant) checkout(cart string, opts *CallOpts) *call[[]Reservation] {
	return holdCall(t, opts, "Checkout", inventory.Call{Action: inventory.CheckoutCart, CartID: cart}, all)
}

// Checkout commits everything that a cart holds, all or nothing: stock and
// reserved both fall by what was held.
//
// Errors: *RefusedError, ErrRequestsPending, ErrCheckoutInProgress,
// ErrHoldExpired, ErrCartEmpty, ErrKeyReused, ErrOutcomeUnknown.
func (t *Tenant) Checkout(ctx context.Context, cart string, opts *CallOpts) ([]Reservation, error) {
	return t.checkout(cart, opts).grouped(ctx)
}

// CheckoutTx is Checkout in the caller's transaction, which must be READ
// COMMITTED. It locks the stocks in order, then the reservations.
func (t *Tenant) CheckoutTx(ctx context.Context, tx pgx.Tx, cart string, opts *CallOpts) ([]Reservation, error) {
	return t.checkout(cart, opts).inTx(ctx, tx)
}
