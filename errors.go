package holdfast

import (
	"errors"
	"fmt"

	"github.com/holdfast/holdfast/internal/admission"
	"github.com/holdfast/holdfast/internal/checkouts"
	"github.com/holdfast/holdfast/internal/invalid"
	"github.com/holdfast/holdfast/internal/inventory"
	"github.com/holdfast/holdfast/internal/pg"
	"github.com/holdfast/holdfast/internal/requestrows"
	"github.com/holdfast/holdfast/internal/reservationrows"
	"github.com/holdfast/holdfast/internal/tenants"
	"github.com/holdfast/holdfast/reservations"
)

// The errors of the client, for errors.Is. A request that is rejected is no
// error: it has a Reason.
var (
	// ErrUnknownVariant means that the tenant has no stock of that id (Stock,
	// AdjustStock, TransferStock, DeleteStock, Pin, MintAdmission).
	ErrUnknownVariant = inventory.ErrUnknownVariant
	// ErrBelowReserved means that the stock would be less than what is held of
	// it (SetStock, AdjustStock, DeleteStock), or an allotment less than was taken
	// from it (SetAllotment).
	ErrBelowReserved = inventory.ErrBelowReserved
	// ErrOutOfStock means that fewer units are free than are to be moved
	// (TransferStock) or set aside (SetAllotment).
	ErrOutOfStock = inventory.ErrOutOfStock
	// ErrReturnExceeds means that fewer units are committed than are to be returned,
	// or not the named ones (Return).
	ErrReturnExceeds = inventory.ErrReturnExceeds
	// ErrLimitExceeded means that a cart or a customer would have more units than
	// allowed (TransferCart). A request that exceeds a limit fails with a Reason.
	ErrLimitExceeded = inventory.ErrLimitExceeded
	// ErrCartEmpty means that the cart holds nothing (Checkout, BeginCheckout,
	// Extend).
	ErrCartEmpty = inventory.ErrCartEmpty
	// ErrHoldExpired means that a hold of the cart has expired since it was last
	// checked out, and was neither removed nor added again (Checkout,
	// BeginCheckout, Extend).
	ErrHoldExpired = inventory.ErrHoldExpired
	// ErrRequestsPending means that the cart has requests that are not decided
	// yet (Checkout, BeginCheckout, TransferCart).
	ErrRequestsPending = requestrows.ErrRequestsPending
	// ErrCheckoutInProgress means that a checkout has locked the holds (all verbs
	// that change them).
	ErrCheckoutInProgress = reservationrows.ErrCheckoutInProgress
	// ErrPartOfKit means that the units cannot be given back alone, because they
	// are held for a kit: remove the kit (Remove, Release, CommitPart).
	ErrPartOfKit = inventory.ErrPartOfKit
	// ErrLifetimeExceeded means that the hold cannot be extended further (Extend,
	// ExtendHold).
	ErrLifetimeExceeded = reservations.ErrLifetimeExceeded
	// ErrTenantMoving means that the tenant moves to another cell, or has moved:
	// nothing was done (all verbs that write). Look it up again: Cells.Tenant.
	ErrTenantMoving = tenants.ErrElsewhere
	// ErrNotFound means that the tenant has no such request, reservation or
	// checkout (Request, Wait, Observe, Retry, Reservation, Commit, Release,
	// ExtendHold, GetCheckout, WaitCheckout, RecordPayment), kit (Kit, DeleteKit) or
	// group (Group), or that the variant has no such allotment or it has ended
	// (Allotment, EndAllotment).
	ErrNotFound = errors.New("holdfast: not found")
	// ErrKeyReused means that the idempotency key was used for another call (all
	// verbs that write).
	ErrKeyReused = errors.New("holdfast: the idempotency key was used for another call")
	// ErrOverloaded means that too many calls or requests wait, or that the
	// client stops. Nothing was written. A *RefusedError has the time to wait
	// (Add, Set, AddUnits, Retry, and the synchronous verbs).
	ErrOverloaded = admission.ErrOverloaded
	// ErrOverLimit means that too many calls or requests of this tenant wait;
	// see ErrOverloaded.
	ErrOverLimit = admission.ErrOverLimit
	// ErrTokenRequired means that the variant requires an admission token and the
	// call has none (Add, Set, AddUnits).
	ErrTokenRequired = admission.ErrTokenRequired
	// ErrOutcomeUnknown means that the connection was lost during the COMMIT. A
	// call with an idempotency key is safe to repeat (all verbs that write).
	ErrOutcomeUnknown = admission.ErrOutcomeUnknown
)

type (
	// InvalidError names the field that a call refuses, and why.
	InvalidError = invalid.Error
	// RefusedError means that a call was refused before anything was written.
	// RetryAfter is how long to wait before the next try.
	RefusedError = admission.RefusedError
	// ConflictError means that the reservation is not, or no longer, what the
	// verb needs. Actual is its status (Commit, Release, ExtendHold).
	ConflictError = reservations.ConflictError
	// PaymentConflictError means that the payment does not agree with the
	// checkout. Status is the checkout's (RecordPayment).
	PaymentConflictError = checkouts.ConflictError
)

// vocabulary gives one name to an error that several packages have.
func vocabulary(err error) error {
	if errors.Is(err, inventory.ErrStockRequired) {
		return fmt.Errorf("%w: %w", &InvalidError{Field: "stock", Message: "is required for a new variant that is tracked"}, err)
	}
	if pg.Code(err) == tenants.FenceCode {
		return fmt.Errorf("%w: %w", ErrTenantMoving, err)
	}
	for _, same := range []struct {
		is    error
		names []error
	}{
		{ErrNotFound, []error{
			requestrows.ErrNotFound, reservations.ErrNotFound, checkouts.ErrNotFound,
			inventory.ErrUnknownKit, inventory.ErrUnknownGroup, inventory.ErrUnknownAllotment,
		}},
		{ErrOverloaded, []error{checkouts.ErrBusy}},
		{ErrKeyReused, []error{requestrows.ErrKeyReused, tenants.ErrKeyReused}},
	} {
		for _, name := range same.names {
			if errors.Is(err, name) && !errors.Is(err, same.is) {
				return fmt.Errorf("%w: %w", same.is, err)
			}
		}
	}
	return err
}
