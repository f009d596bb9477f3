package client

import (
	"context"
	"net/http"
	"time"
)

// Reservation reads a reservation.
func (c *Client) Reservation(ctx context.Context, reservationID string) (Reservation, error) {
	return do[Reservation](ctx, c, nil, http.MethodGet, Path("reservations", reservationID), nil)
}

// History returns the record of a reservation: its changes, oldest first.
func (c *Client) History(ctx context.Context, reservationID string) ([]Record, error) {
	result, err := do[History](ctx, c, nil, http.MethodGet, Path("reservations", reservationID, "history"), nil)
	return result.Items, err
}

// Commit ends a hold as sold. Error code: conflicting_state if it has ended
// otherwise.
func (c *Client) Commit(ctx context.Context, reservationID string, opts *CallOpts) (Reservation, error) {
	return do[Reservation](ctx, c, opts, http.MethodPost, Path("reservations", reservationID, "commit"), nil)
}

// CommitPart commits some of the units of a hold. The rest stays held, with its
// id and deadline.
func (c *Client) CommitPart(ctx context.Context, reservationID string, part Part, opts *CallOpts) (CommittedPart, error) {
	return do[CommittedPart](ctx, c, opts, http.MethodPost, Path("reservations", reservationID, "commit"), part)
}

// Release ends a hold and returns its units. The reason is cart_removed,
// payment_failed, abandoned or operator; empty for the first. Error code:
// conflicting_state if it has ended otherwise.
func (c *Client) Release(ctx context.Context, reservationID, reason string, opts *CallOpts) (Reservation, error) {
	return do[Reservation](ctx, c, opts, http.MethodPost, Path("reservations", reservationID, "release"), ReleaseBody{reason})
}

// ExtendHold moves the deadline of a hold, by whole seconds. Error code:
// lifetime_exceeded.
func (c *Client) ExtendHold(ctx context.Context, reservationID string, by time.Duration, opts *CallOpts) (Reservation, error) {
	return do[Reservation](ctx, c, opts, http.MethodPost, Path("reservations", reservationID, "extend"), ExtendBody{seconds(by)})
}

// Return brings units of a committed reservation back, for CallOpts.Reason: they
// are for sale again.
func (c *Client) Return(ctx context.Context, reservationID string, part Part, opts *CallOpts) (Reservation, error) {
	body := ReturnBody{Quantity: part.Quantity, UnitIDs: part.UnitIDs, Reason: opts.reason()}
	return do[Reservation](ctx, c, opts, http.MethodPost, Path("reservations", reservationID, "return"), body)
}

// BeginCheckout locks what the cart holds until it is paid or the deadline is
// over. The payment service is asked at callbackURL; empty if the shop calls
// RecordPayment.
func (c *Client) BeginCheckout(ctx context.Context, cart, paymentReference, callbackURL string, opts *CallOpts) (CheckoutSaga, error) {
	body := BeginCheckoutBody{CartID: cart, PaymentReference: paymentReference, CallbackURL: callbackURL}
	return do[CheckoutSaga](ctx, c, opts, http.MethodPost, Path("checkouts"), body)
}

// GetCheckout reads a checkout that BeginCheckout began.
func (c *Client) GetCheckout(ctx context.Context, checkoutID string) (CheckoutSaga, error) {
	return do[CheckoutSaga](ctx, c, nil, http.MethodGet, Path("checkouts", checkoutID), nil)
}

// Ended reports whether the checkout is committed, compensated or failed.
func (s *CheckoutSaga) Ended() bool { return s.Status != "validating" && s.Status != "finalizing" }

// WaitCheckout returns a checkout once it has ended, or as it is after the
// timeout.
func (c *Client) WaitCheckout(ctx context.Context, checkoutID string, timeout time.Duration) (CheckoutSaga, error) {
	return poll(ctx, c, Path("checkouts", checkoutID), timeout, (*CheckoutSaga).Ended)
}

// RecordPayment reports whether the checkout was paid. Error code:
// conflicting_state if it has ended otherwise.
func (c *Client) RecordPayment(ctx context.Context, checkoutID string, paid bool, opts *CallOpts) (CheckoutSaga, error) {
	body := PaymentBody{"failed"}
	if paid {
		body.Result = "paid"
	}
	return do[CheckoutSaga](ctx, c, opts, http.MethodPost, Path("checkouts", checkoutID, "payment"), body)
}

// MintAdmission makes an admission token for a customer, valid once, for the
// variant or for any if that is "", for whole seconds; 0 for ten minutes. It needs
// METERED_COMMANDS_ENABLED.
func (c *Client) MintAdmission(ctx context.Context, subject, variant string, ttl time.Duration, opts *CallOpts) (MintedAdmission, error) {
	body := MintAdmissionBody{Subject: subject, VariantID: variant, TTLSeconds: seconds(ttl)}
	return do[MintedAdmission](ctx, c, opts, http.MethodPost, Path("admissions"), body)
}
