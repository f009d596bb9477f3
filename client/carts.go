package client

import (
	"context"
	"net/http"
	"time"
)

// Request is a request of a cart for units.
type Request struct {
	RequestID string `json:"request_id"`
	// Status is queued, processing, waiting, done or failed; the last two are final.
	Status string `json:"status"`
	Reason string `json:"reason"` // why it failed, such as out_of_stock
	CartID string `json:"cart_id"`
	// VariantID names a variant or a block of units.
	VariantID string   `json:"variant_id"`
	Quantity  int64    `json:"quantity"`
	UnitIDs   []string `json:"unit_ids"`
	Lane      string   `json:"lane"` // hot or normal
	// Position is how many earlier requests for the same hot variant are not
	// decided; nil in the normal lane.
	Position *int64 `json:"position"`
	// Reservation is the hold that was made for the request; nil if there is
	// none.
	Reservation *Reservation `json:"reservation"`
	CreatedAt   time.Time    `json:"created_at"`
	UpdatedAt   time.Time    `json:"updated_at"`
}

// Finished reports whether the request is done or failed.
func (r Request) Finished() bool { return r.Status == "done" || r.Status == "failed" }

// Cart is what a cart contains.
type Cart struct {
	CartID       string        `json:"cart_id"`
	Reservations []Reservation `json:"reservations"` // in any status, newest first
	Unfinished   []Request     `json:"requests"`     // oldest first
	// Failed are the latest failed requests, not all of them.
	Failed []Request `json:"failed"`
	// NextCursor is the cursor of the next page; nil on the last.
	NextCursor *string `json:"next_cursor"`
}

// Add requests more units of a variant in a cart. It returns once the request
// is accepted, or with CallOpts.Wait once it is finished if that is in time.
// With a repeated key it returns the first request.
func (c *Client) Add(ctx context.Context, cartID, variantID string, quantity int64, opts *CallOpts) (Request, error) {
	body := struct {
		VariantID string `json:"variant_id"`
		Quantity  int64  `json:"quantity"`
	}{variantID, quantity}
	return do[Request](ctx, c, opts, http.MethodPost, Path("carts", cartID, "items"), body)
}

// Set requests a quantity of a variant in place of the present one. It returns
// as Add does.
func (c *Client) Set(ctx context.Context, cartID, variantID string, quantity int64, opts *CallOpts) (Request, error) {
	return do[Request](ctx, c, opts, http.MethodPatch, Path("carts", cartID, "items", variantID), map[string]int64{"quantity": quantity})
}

// Remove removes a variant from a cart, or everything if variantID is empty,
// and returns how many units were released.
func (c *Client) Remove(ctx context.Context, cartID, variantID string, opts *CallOpts) (released int64, err error) {
	path := Path("carts", cartID)
	if variantID != "" {
		path = Path("carts", cartID, "items", variantID)
	}
	result, err := do[struct{ Released int64 }](ctx, c, opts, http.MethodDelete, path, nil)
	return result.Released, err
}

// Extend moves the deadlines of everything that a cart holds, and returns the
// holds. Error codes: lifetime_exceeded among others.
func (c *Client) Extend(ctx context.Context, cartID string, by time.Duration, opts *CallOpts) ([]Reservation, error) {
	body := map[string]int64{"seconds": int64(by / time.Second)}
	result, err := do[struct{ Extended []Reservation }](ctx, c, opts, http.MethodPost, Path("carts", cartID, "extend"), body)
	return result.Extended, err
}

// Checkout commits everything that a cart holds, or nothing, and returns it.
// Error codes: requests_pending, cart_empty, hold_expired,
// checkout_in_progress.
func (c *Client) Checkout(ctx context.Context, cartID string, opts *CallOpts) ([]Reservation, error) {
	result, err := do[struct{ Committed []Reservation }](ctx, c, opts, http.MethodPost, Path("carts", cartID, "checkout"), nil)
	return result.Committed, err
}

// Cart reads the first page of a cart. An unknown cart is empty.
func (c *Client) Cart(ctx context.Context, cartID string) (Cart, error) {
	return do[Cart](ctx, c, nil, http.MethodGet, Path("carts", cartID), nil)
}

// Request reads a request. With a wait of a second or more the service answers
// once the request is finished, or when the wait is over.
func (c *Client) Request(ctx context.Context, requestID string, wait time.Duration) (Request, error) {
	return do[Request](ctx, c, &CallOpts{Wait: wait}, http.MethodGet, Path("requests", requestID), nil)
}

// Wait reads a request until it is finished or ctx ends.
func (c *Client) Wait(ctx context.Context, requestID string) (Request, error) {
	for {
		sent := time.Now()
		r, err := c.Request(ctx, requestID, longPoll)
		if err != nil || r.Finished() {
			return r, err
		}
		if sleep(ctx, time.Until(sent.Add(pollPause))) != nil {
			return r, context.Cause(ctx)
		}
	}
}

// longPoll is how long one call of Wait asks the service to wait. pollPause is
// the least pause between two calls: a service that has too many waiting
// callers, or stops, answers immediately.
const (
	longPoll  = 10 * time.Second
	pollPause = 200 * time.Millisecond
)
