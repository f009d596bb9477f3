package client

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// Finished reports whether the request is done or failed.
func (r *Request) Finished() bool { return r.Status == "done" || r.Status == "failed" }

// Add requests more units of a variant for a cart. It returns once the request is
// accepted, or with CallOpts.Wait once it is finished if that is in time. With a
// repeated key it returns the first request.
//
// Error codes: admission_required, admission_refused, over_budget, overloaded among
// others. That the variant is sold out is an outcome.
func (c *Client) Add(ctx context.Context, cart, variant string, quantity int32, opts *CallOpts) (Request, error) {
	return c.addItem(ctx, cart, AddItemBody{VariantID: variant, Quantity: quantity}, opts)
}

// Units are which units of a block are wanted: those with these ids, or any of
// them, or any neighbours.
type Units struct {
	IDs             []string
	Any, Contiguous bool
}

// AddUnits requests units of a block for a cart, all or none: those that units
// names, or as many as quantity. It returns as Add does.
func (c *Client) AddUnits(ctx context.Context, cart, block string, units Units, quantity int32, opts *CallOpts) (Request, error) {
	body := AddItemBody{Block: block, UnitIDs: units.IDs, Contiguous: units.Contiguous}
	if units.Any || units.Contiguous {
		body.AnyOf = quantity
	}
	return c.addItem(ctx, cart, body, opts)
}

// Lines are the lines of a request: 1 to 50, no variant and no kit in two of them.
type Lines struct {
	Items []Line
	// Partial asks for what there is of each line. Otherwise all units of all lines
	// are held, or none.
	Partial bool
}

// AddLines requests several lines for a cart. Request.Lines has what is held for
// each. It returns as Add does.
func (c *Client) AddLines(ctx context.Context, cart string, lines Lines, opts *CallOpts) (Request, error) {
	return c.addItem(ctx, cart, AddItemBody{Lines: lines.Items, Partial: lines.Partial}, opts)
}

func (c *Client) addItem(ctx context.Context, cart string, body AddItemBody, opts *CallOpts) (Request, error) {
	if opts != nil {
		body.WaitForStock, body.Allotment = opts.WaitForStock, opts.Allotment
	}
	return do[Request](ctx, c, opts, http.MethodPost, Path("carts", cart, "items"), body)
}

// Set requests a quantity of a variant in place of the present one. It returns
// as Add does.
func (c *Client) Set(ctx context.Context, cart, variant string, quantity int32, opts *CallOpts) (Request, error) {
	body := SetItemBody{Quantity: quantity}
	if opts != nil {
		body.Allotment = opts.Allotment
	}
	return do[Request](ctx, c, opts, http.MethodPatch, Path("carts", cart, "items", variant), body)
}

// Remove takes a variant out of a cart, or everything if variant is "": its holds
// are released, for the reason (cart_removed if it is empty), and its undecided
// requests fail with reason cancelled. It is no error if the cart has none.
func (c *Client) Remove(ctx context.Context, cart, variant, reason string, opts *CallOpts) (Removed, error) {
	path := Path("carts", cart)
	if variant != "" {
		path = Path("carts", cart, "items", variant)
	}
	return do[Removed](ctx, c, opts, http.MethodDelete, path+query("reason", reason), nil)
}

// RemoveKit takes all kits with this id out of a cart, as Remove does.
func (c *Client) RemoveKit(ctx context.Context, cart, kit, reason string, opts *CallOpts) (Removed, error) {
	return do[Removed](ctx, c, opts, http.MethodDelete, Path("carts", cart, "kits", kit)+query("reason", reason), nil)
}

// Extend moves the deadlines of everything that a cart holds, by whole seconds,
// and returns the holds. Error code: lifetime_exceeded.
func (c *Client) Extend(ctx context.Context, cart string, by time.Duration, opts *CallOpts) ([]Reservation, error) {
	result, err := do[Extended](ctx, c, opts, http.MethodPost, Path("carts", cart, "extend"), ExtendBody{seconds(by)})
	return result.Extended, err
}

// Checkout commits everything that a cart holds, or nothing, and returns it.
// Error codes: requests_pending, cart_empty, hold_expired, checkout_in_progress.
func (c *Client) Checkout(ctx context.Context, cart string, opts *CallOpts) ([]Reservation, error) {
	result, err := do[CheckedOut](ctx, c, opts, http.MethodPost, Path("carts", cart, "checkout"), nil)
	return result.Committed, err
}

// TransferCart moves what a cart holds to another cart, with the deadlines, all or
// nothing, and returns the holds.
func (c *Client) TransferCart(ctx context.Context, from, to string, opts *CallOpts) ([]Reservation, error) {
	result, err := do[TransferredCart](ctx, c, opts, http.MethodPost, Path("carts", from, "transfer"), TransferCartBody{To: to})
	return result.Reservations, err
}

// Cart reads a page of a cart: up to limit of its reservations and of its requests
// (1 to 1,000; 0 for 1,000), from the cursor of an earlier page on. An unknown cart is empty.
func (c *Client) Cart(ctx context.Context, cart string, limit int, cursor string) (Cart, error) {
	return do[Cart](ctx, c, nil, http.MethodGet, Path("carts", cart)+page(limit, cursor, ""), nil)
}

// Request reads a request.
func (c *Client) Request(ctx context.Context, requestID string) (Request, error) {
	return do[Request](ctx, c, nil, http.MethodGet, Path("requests", requestID), nil)
}

// Wait returns a request once it is finished, or as it is after the timeout.
func (c *Client) Wait(ctx context.Context, requestID string, timeout time.Duration) (Request, error) {
	return poll(ctx, c, Path("requests", requestID), timeout, (*Request).Finished)
}

// Retry requests again what a request asked for that failed with internal_error.
// It needs the scope ops, and returns the new request as Add does.
func (c *Client) Retry(ctx context.Context, requestID string, opts *CallOpts) (Request, error) {
	return do[Request](ctx, c, opts, http.MethodPost, Path("requests", requestID, "retry"), nil)
}

// poll reads an object until it has ended, or until the timeout.
func poll[T any](ctx context.Context, c *Client, path string, timeout time.Duration, ended func(*T) bool) (T, error) {
	end := time.Now().Add(timeout)
	for {
		sent := time.Now()
		wait := max(min(longPoll, end.Sub(sent)).Round(time.Second), 0)
		v, err := do[T](ctx, c, &CallOpts{Wait: wait}, http.MethodGet, path, nil)
		if err != nil || ended(&v) || !time.Now().Before(end) {
			return v, err
		}
		if sleep(ctx, time.Until(sent.Add(pollPause))) != nil {
			return v, context.Cause(ctx)
		}
	}
}

// longPoll is how long one call of poll asks the service to wait. pollPause is
// the least pause between two calls: a service that has too many waiting
// callers, or stops, answers immediately.
const (
	longPoll  = 10 * time.Second
	pollPause = 200 * time.Millisecond
)

// query is a query of one parameter, "" if it is empty.
func query(name, value string) string {
	if value == "" {
		return ""
	}
	return "?" + url.Values{name: {value}}.Encode()
}

// page is the query for a page of a list, of a group unless that is "".
func page(limit int, cursor, group string) string {
	values := url.Values{}
	for name, value := range map[string]string{"limit": strconv.Itoa(limit), "cursor": cursor, "group": group} {
		if value != "" && value != "0" {
			values.Set(name, value)
		}
	}
	return strings.TrimSuffix("?"+values.Encode(), "?")
}

func seconds(d time.Duration) int32 { return int32(d / time.Second) }
