package httpapi

import (
	"context"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/google/uuid"

	"github.com/holdfast/holdfast"
	"github.com/holdfast/holdfast/internal/checkouts"
	validity "github.com/holdfast/holdfast/internal/invalid"
	"github.com/holdfast/holdfast/internal/tenants"
)

// checkoutJSON is a checkout in a response.
type checkoutJSON struct {
	CheckoutID       uuid.UUID         `json:"checkout_id" format:"uuid"`
	CartID           cartID            `json:"cart_id"`
	Status           checkouts.Status  `json:"status" enum:"validating,finalizing,committed,compensated,failed" doc:"validating waits for the payment, finalizing is paid. The others are final: committed, compensated (not paid, the holds are released), failed (paid, and a hold was lost)."`
	Reason           *checkouts.Reason `json:"reason" enum:"payment_failed,payment_timeout,stock_lost" doc:"Why it is compensated or failed, else null."`
	Alert            *checkouts.Alert  `json:"alert" enum:"paid_too_late,stock_lost" doc:"Set if it was paid and does not receive its units, so that the payment must be given back; else null."`
	Committed        []reservationJSON `json:"committed" doc:"What it committed; empty unless the status is committed."`
	PaymentReference string            `json:"payment_reference"`
	StatusURL        string            `json:"status_url" format:"uri-reference" doc:"Where to read the checkout."`
	Deadline         time.Time         `json:"deadline" doc:"A checkout that is not paid by then is compensated."`
	CreatedAt        time.Time         `json:"created_at"`
	UpdatedAt        time.Time         `json:"updated_at"`
}

func checkoutURL(id uuid.UUID) string { return "/v1/checkouts/" + id.String() }

func checkoutBody(c holdfast.CheckoutSaga) checkoutJSON {
	body := checkoutJSON{
		CheckoutID: c.CheckoutID, CartID: cartID(c.CartID), Status: c.Status, Committed: reservationBodies(c.Committed),
		PaymentReference: c.PaymentReference, StatusURL: checkoutURL(c.CheckoutID),
		Deadline: c.Deadline.UTC(), CreatedAt: c.CreatedAt.UTC(), UpdatedAt: c.UpdatedAt.UTC(),
	}
	if c.Reason != "" {
		body.Reason = &c.Reason
	}
	if c.Alert != "" {
		body.Alert = &c.Alert
	}
	return body
}

type beginCheckoutBody struct {
	CartID           cartID  `json:"cart_id" example:"cart-17"`
	PaymentReference string  `json:"payment_reference" doc:"The shop's name of the payment, 1 to 200 characters." example:"order-4711"`
	CallbackURL      *string `json:"callback_url,omitempty" format:"uri" doc:"Where the shop's payment service reports whether the payment was made. Left out, the shop reports it itself." example:"https://pay.shop.example/holdfast"`
}

func (b *beginCheckoutBody) fields() []field {
	return []field{
		{"cart_id", true, into(&b.CartID, text[cartID](checkCartID))},
		{"payment_reference", true, into(&b.PaymentReference, bounded("payment_reference", checkouts.ReferenceMax))},
		{"callback_url", false, optional(&b.CallbackURL, bounded("callback_url", checkouts.CallbackURLMax))},
	}
}

// bounded reads a text of 1 to most characters of UTF-8 without control
// characters.
func bounded(field string, most int) reader[string] {
	r := text[string](func(s string) error { return validity.Check(field, s, most) })
	r.describe = func(s *huma.Schema) { s.MinLength, s.MaxLength = new(1), &most }
	return r
}

func (s *service) beginCheckout() endpoint[struct{}, beginCheckoutBody] {
	return endpoint[struct{}, beginCheckoutBody]{
		id: "begin-checkout", method: http.MethodPost, path: "/v1/checkouts", tag: tagCheckouts, scope: tenants.ScopeCart,
		summary: "Begin a checkout with a payment in between",
		doc: "Locks everything that the cart holds to the checkout: until it ends, the holds do not expire, and requests that would change them are " +
			"refused with `checkout_in_progress`. The checkout is committed once it is paid, and releases the holds if the payment fails, or is " +
			"not made by the deadline.\n\nWith a `callback_url`, the service calls the shop's payment service there until it reports a result. " +
			"Without one, the shop reports it at `/v1/checkouts/{checkout_id}/payment`; it may do so with a callback, too.\n\nA cart has one " +
			"unfinished checkout. For a shop that takes the payment first there is `/v1/carts/{cart_id}/checkout`.",
		responses:       map[int]any{http.StatusAccepted: checkoutJSON{}, http.StatusOK: checkoutJSON{}},
		problems:        []kind{requestsPending, holdExpired, cartEmpty, checkoutRunning},
		responseHeaders: beginCheckoutHeaders,
		handle: func(ctx context.Context, req *request, _ *struct{}, b *beginCheckoutBody) (response, error) {
			callback := ""
			if b.CallbackURL != nil {
				callback = *b.CallbackURL
			}
			begun, err := s.tenant(req).BeginCheckout(ctx, string(b.CartID), b.PaymentReference, callback, req.opts())
			resp, err := req.respond(checkoutBody(begun), err)
			if err != nil {
				return response{}, err
			}
			resp = resp.with("Location", checkoutURL(begun.CheckoutID))
			if begun.Status.Ended() { // a repetition
				return resp, nil
			}
			resp.status = http.StatusAccepted
			return resp.with("Retry-After", "1"), nil
		},
	}
}

var beginCheckoutHeaders = map[string]*huma.Param{
	"Location":     {Description: "The status_url.", Schema: &huma.Schema{Type: huma.TypeString}},
	"Retry-After":  {Description: "When to read the checkout, in whole seconds; with 202.", Schema: &huma.Schema{Type: huma.TypeInteger}},
	replayedHeader: {Description: "true for a repetition of an earlier request.", Schema: &huma.Schema{Type: huma.TypeString}},
}

type checkoutParams struct {
	CheckoutID uuid.UUID `path:"checkout_id" format:"uuid"`
}

type getCheckoutParams struct {
	CheckoutID uuid.UUID    `path:"checkout_id" format:"uuid"`
	Wait       checkoutWait `query:"wait"`
}

// checkoutWait is how long a caller asks to wait for a checkout; 0 if left out.
type checkoutWait int

// Schema describes the wait, for huma.
func (checkoutWait) Schema(r huma.Registry) *huma.Schema {
	s := waitSeconds(0).Schema(r)
	s.Description = "Wait up to this many seconds for the checkout to end."
	return s
}

func (s *service) getCheckout() endpoint[getCheckoutParams, emptyBody] {
	return endpoint[getCheckoutParams, emptyBody]{
		id: "get-checkout", method: http.MethodGet, path: "/v1/checkouts/{checkout_id}", tag: tagCheckouts, scope: tenants.ScopeCart,
		summary: "Read a checkout",
		doc: "With wait the response comes when the checkout has ended or the time is over, whichever is first. With If-None-Match the " +
			"response is 304 if nothing changed by then.",
		responses:       map[int]any{http.StatusOK: checkoutJSON{}, http.StatusNotModified: nil},
		problems:        []kind{notFound},
		requestHeaders:  []*huma.Param{ifNoneMatch},
		responseHeaders: map[string]*huma.Param{"ETag": {Description: "Identifies this state of the checkout.", Schema: &huma.Schema{Type: huma.TypeString}}},
		timeout:         waitTimeout,
		handle: func(ctx context.Context, req *request, p *getCheckoutParams, _ *emptyBody) (response, error) {
			limit, bound := time.Duration(p.Wait)*time.Second, s.bounds.request
			if limit > 0 {
				bound = limit + s.bounds.grace
			}
			reading, cancel := context.WithTimeout(ctx, bound)
			defer cancel()
			c, err := s.tenant(req).WaitCheckout(reading, p.CheckoutID, limit)
			if err != nil {
				return response{}, err
			}
			return unlessMatched(req, jsonResponse(http.StatusOK, checkoutBody(c))), nil
		},
	}
}

type paymentBody struct {
	Result checkouts.Result `json:"result" example:"paid"`
}

func (b *paymentBody) fields() []field {
	return []field{{"result", true, into(&b.Result, oneOf(checkouts.ResultPaid, checkouts.ResultFailed))}}
}

func (s *service) answerCheckout() endpoint[checkoutParams, paymentBody] {
	return endpoint[checkoutParams, paymentBody]{
		id: "answer-checkout", method: http.MethodPost, path: "/v1/checkouts/{checkout_id}/payment", tag: tagCheckouts, scope: tenants.ScopeStock,
		summary: "Report the result of a checkout's payment",
		doc: "`paid` commits what is locked to the checkout: stock and reserved decrease. If the commit does not succeed at once, the response has " +
			"the status `finalizing`, and the service commits it soon. `failed` releases the holds.\n\nA result that comes after the checkout has " +
			"ended, or after its deadline, is refused with `conflicting_state`, and `actual` is the checkout's status. If it is `paid` and the units " +
			"were released, the checkout has an `alert` from then on: the payment must be given back.\n\nThe key needs the scope `stock`: the back " +
			"office receives the payments. A key with the scope `cart` is no less trusted: it chooses the `callback_url`, and may check a cart out " +
			"without a payment. Keep both on the shop's servers.",
		responses: map[int]any{http.StatusOK: checkoutJSON{}},
		problems:  []kind{notFound, conflictingState},
		handle: func(ctx context.Context, req *request, p *checkoutParams, b *paymentBody) (response, error) {
			c, err := s.tenant(req).RecordPayment(ctx, p.CheckoutID, b.Result == checkouts.ResultPaid, req.opts())
			return req.respond(checkoutBody(c), err)
		},
	}
}
