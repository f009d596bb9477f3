package storefront

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/holdfast/holdfast/cmd/internal/client"
	"github.com/holdfast/holdfast/internal/sleep"
)

// Stock is a variant's counters, in units.
type Stock struct {
	VariantID string `json:"variant_id"`
	Stock     int64  `json:"stock"`
	Reserved  int64  `json:"reserved"`
	// Available is what a new buyer can have. Units held past their deadline
	// count as available, although reserved.
	Available int64 `json:"available"`
}

// StockPatch is a change of a variant. A nil field stays unchanged.
type StockPatch struct {
	Stock      *int64  `json:"stock,omitempty"`
	Tracked    *bool   `json:"tracked,omitempty"`
	Backorder  *bool   `json:"backorder,omitempty"`
	MaxPerCart *int32  `json:"max_per_cart,omitempty"`
	Lane       *string `json:"lane,omitempty"`
}

// SetStock creates or changes a variant.
func (s *Shop) SetStock(ctx context.Context, variantID string, patch StockPatch) (stock Stock, err error) {
	err = s.do(ctx, call{method: http.MethodPut, path: client.Path("v1", "stocks", variantID), body: patch}, &stock)
	return stock, err
}

// Stock reads a variant.
func (s *Shop) Stock(ctx context.Context, variantID string) (stock Stock, err error) {
	err = s.do(ctx, call{method: http.MethodGet, path: client.Path("v1", "stocks", variantID)}, &stock)
	return stock, err
}

// Request is a request in the form of the API.
type Request struct {
	RequestID string `json:"request_id"`
	Status    string `json:"status"`
	Reason    string `json:"reason"`
	CartID    string `json:"cart_id"`
	VariantID string `json:"variant_id"`
	Lane      string `json:"lane"`
	// Reservation is the hold that was made for the request, or nil.
	Reservation *Reservation `json:"reservation"`
}

// Finished reports whether the request is done or failed.
func (r Request) Finished() bool { return r.Status == "done" || r.Status == "failed" }

// Reservation is a hold in any state. A hold that was made for a request has
// the request's id.
type Reservation struct {
	ReservationID string `json:"reservation_id"`
	VariantID     string `json:"variant_id"`
	Quantity      int64  `json:"quantity"`
	Status        string `json:"status"`
}

// item is the body of an add.
type item struct {
	VariantID string `json:"variant_id"`
	Quantity  int32  `json:"quantity"`
}

// Add requests more units in a cart. It returns once the request is accepted.
// With a repeated key it returns the first request.
func (s *Shop) Add(ctx context.Context, cartID, variantID string, quantity int32, key string) (r Request, err error) {
	err = s.do(ctx, call{
		method: http.MethodPost, path: client.Path("v1", "carts", cartID, "items"), body: item{variantID, quantity}, key: key,
	}, &r)
	return r, err
}

// SetQuantity requests a new quantity of the variant in the cart. It returns as
// Add does.
func (s *Shop) SetQuantity(ctx context.Context, cartID, variantID string, quantity int32, key string) (r Request, err error) {
	body := struct {
		Quantity int32 `json:"quantity"`
	}{quantity}
	err = s.do(ctx, call{
		method: http.MethodPatch, path: client.Path("v1", "carts", cartID, "items", variantID), body: body, key: key,
	}, &r)
	return r, err
}

// Request reads a request. With a wait of a second or more the API answers once
// the request is finished, or when the wait is over.
func (s *Shop) Request(ctx context.Context, requestID string, wait time.Duration) (r Request, err error) {
	path := client.Path("v1", "requests", requestID)
	if wait >= time.Second {
		path += fmt.Sprintf("?wait=%d", wait/time.Second)
	}
	err = s.do(ctx, call{method: http.MethodGet, path: path, wait: wait}, &r)
	return r, err
}

// Await reads a request until it is finished or ctx ends.
func (s *Shop) Await(ctx context.Context, requestID string) (Request, error) {
	for {
		asked := time.Now()
		r, err := s.Request(ctx, requestID, longPoll)
		if err != nil || r.Finished() {
			return r, err
		}
		if sleep.For(ctx, time.Until(asked.Add(pollPause))) != nil {
			return r, context.Cause(ctx)
		}
	}
}

// longPoll is how long one call of Await asks the API to wait. pollPause is the
// least pause between two calls: an API that has too many waiting callers, or
// stops, answers at once.
const (
	longPoll  = 10 * time.Second
	pollPause = 200 * time.Millisecond
)

// Cart is the API's view of a cart.
type Cart struct {
	Reservations []Reservation `json:"reservations"`
	Unfinished   []Request     `json:"requests"`
	// Failed are the latest failed requests, not all of them.
	Failed []Request `json:"failed"`
}

// Cart reads a cart.
func (s *Shop) Cart(ctx context.Context, cartID string) (cart Cart, err error) {
	err = s.do(ctx, call{method: http.MethodGet, path: client.Path("v1", "carts", cartID)}, &cart)
	return cart, err
}

// Remove removes a variant from a cart and returns how many units were
// released.
func (s *Shop) Remove(ctx context.Context, cartID, variantID, key string) (released int64, err error) {
	var answer struct {
		Released int64 `json:"released"`
	}
	err = s.do(ctx, call{
		method: http.MethodDelete, path: client.Path("v1", "carts", cartID, "items", variantID), key: key,
	}, &answer)
	return answer.Released, err
}

// Checkout commits what a cart holds and returns it.
func (s *Shop) Checkout(ctx context.Context, cartID, key string) ([]Reservation, error) {
	var answer struct {
		Committed []Reservation `json:"committed"`
	}
	err := s.do(ctx, call{method: http.MethodPost, path: client.Path("v1", "carts", cartID, "checkout"), key: key}, &answer)
	return answer.Committed, err
}
