package client

import (
	"context"
	"net/http"
	"time"
)

// Reservation is units set aside for a cart. One that was made for a request
// has the request's id.
type Reservation struct {
	ReservationID string   `json:"reservation_id"`
	CartID        string   `json:"cart_id"`
	VariantID     string   `json:"variant_id"`
	Quantity      int64    `json:"quantity"`
	UnitIDs       []string `json:"unit_ids"` // of a block
	// Status is held, committed, released or expired.
	Status        string     `json:"status"`
	ReleaseReason string     `json:"release_reason"`
	FirstHeldAt   time.Time  `json:"first_held_at"`
	HeldAt        time.Time  `json:"held_at"`
	ExpiresAt     time.Time  `json:"expires_at"` // the deadline of a hold
	EndedAt       *time.Time `json:"ended_at"`
}

// Reservation reads a reservation.
func (c *Client) Reservation(ctx context.Context, reservationID string) (Reservation, error) {
	return do[Reservation](ctx, c, nil, http.MethodGet, Path("reservations", reservationID), nil)
}

// Commit ends a hold as sold. Error code: conflicting_state if it has ended
// otherwise.
func (c *Client) Commit(ctx context.Context, reservationID string, opts *CallOpts) (Reservation, error) {
	return do[Reservation](ctx, c, opts, http.MethodPost, Path("reservations", reservationID, "commit"), nil)
}

// Release ends a hold and returns its units. The reason is cart_removed,
// payment_failed, abandoned or operator; empty for the first. Error code:
// conflicting_state if it has ended otherwise.
func (c *Client) Release(ctx context.Context, reservationID, reason string, opts *CallOpts) (Reservation, error) {
	body := struct {
		Reason string `json:"reason,omitempty"`
	}{reason}
	return do[Reservation](ctx, c, opts, http.MethodPost, Path("reservations", reservationID, "release"), body)
}

// ExtendReservation moves the deadline of a hold.
func (c *Client) ExtendReservation(ctx context.Context, reservationID string, by time.Duration, opts *CallOpts) (Reservation, error) {
	body := map[string]int64{"seconds": int64(by / time.Second)}
	return do[Reservation](ctx, c, opts, http.MethodPost, Path("reservations", reservationID, "extend"), body)
}

// Payment is a checkout that commits a cart once it is paid.
type Payment struct {
	CheckoutID string `json:"checkout_id"`
	CartID     string `json:"cart_id"`
	// Status is validating or finalizing, and in the end committed, compensated
	// (not paid) or failed (paid, and a hold was lost).
	Status           string        `json:"status"`
	Reason           string        `json:"reason"`
	Alert            string        `json:"alert"` // set if the payment must be given back
	Committed        []Reservation `json:"committed"`
	PaymentReference string        `json:"payment_reference"`
	Deadline         time.Time     `json:"deadline"`
	CreatedAt        time.Time     `json:"created_at"`
	UpdatedAt        time.Time     `json:"updated_at"`
}

// BeginCheckout locks what the cart holds until it is paid or the deadline is
// over. The payment service is asked at callbackURL; empty if the shop calls
// RecordPayment.
func (c *Client) BeginCheckout(ctx context.Context, cartID, paymentReference, callbackURL string, opts *CallOpts) (Payment, error) {
	body := struct {
		CartID           string `json:"cart_id"`
		PaymentReference string `json:"payment_reference"`
		CallbackURL      string `json:"callback_url,omitempty"`
	}{cartID, paymentReference, callbackURL}
	return do[Payment](ctx, c, opts, http.MethodPost, Path("checkouts"), body)
}

// Payment reads a checkout. With a wait of a second or more the service answers
// once it has ended, or when the wait is over.
func (c *Client) Payment(ctx context.Context, checkoutID string, wait time.Duration) (Payment, error) {
	return do[Payment](ctx, c, &CallOpts{Wait: wait}, http.MethodGet, Path("checkouts", checkoutID), nil)
}

// RecordPayment reports whether the checkout was paid. Error code:
// conflicting_state if it has ended otherwise.
func (c *Client) RecordPayment(ctx context.Context, checkoutID string, paid bool, opts *CallOpts) (Payment, error) {
	result := "failed"
	if paid {
		result = "paid"
	}
	return do[Payment](ctx, c, opts, http.MethodPost, Path("checkouts", checkoutID, "payment"), map[string]string{"result": result})
}
