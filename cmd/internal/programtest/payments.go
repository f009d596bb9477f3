package programtest

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"

	"github.com/google/uuid"

	"github.com/holdfast/holdfast/audit"
	"github.com/holdfast/holdfast/internal/checkouts"
)

// CallbackSecret is a value of CHECKOUT_CALLBACK_SECRET.
const CallbackSecret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSwBjK2YLpzX0k="

// CallbackEnv is an environment with callbacks, also to this machine.
func (f *Fixture) CallbackEnv(more ...string) map[string]string {
	return f.Env(append([]string{
		"CHECKOUT_CALLBACK_SECRET", CallbackSecret, "CHECKOUT_CALLBACK_PRIVATE", "true", "CHECKOUT_CALLBACK_TIMEOUT", "1s",
	}, more...)...)
}

// BeginCheckout begins the checkout of a cart, with a callback unless the URL is empty.
func (f *Fixture) BeginCheckout(cartID, callbackURL string) checkouts.Checkout {
	f.TB.Helper()
	c, err := checkouts.Begin(f.TB.Context(), f.DB, checkouts.Start{
		TenantID: f.Tenant, CartID: cartID, PaymentReference: "pay-" + cartID, CallbackURL: callbackURL, Origin: audit.Origin{Actor: audit.System()},
	}, checkouts.Config{})
	f.Must(err)
	return c
}

// Checkout reads a checkout.
func (f *Fixture) Checkout(id uuid.UUID) checkouts.Checkout {
	f.TB.Helper()
	c, err := checkouts.Get(f.TB.Context(), f.DB, f.Tenant, id)
	f.Must(err)
	return c
}

// PaymentCall is a call that a payment service received.
type PaymentCall struct {
	// ID is the webhook-id.
	ID string

	CheckoutID       string `json:"checkout_id"`
	CartID           string `json:"cart_id"`
	PaymentReference string `json:"payment_reference"`
	Attempt          int    `json:"attempt"`

	// Header and Body are the call as it was sent.
	Header http.Header `json:"-"`
	Body   []byte      `json:"-"`
}

// Payments is the payment service of a shop, on the loopback interface.
type Payments struct {
	URL string

	mu    sync.Mutex
	calls []PaymentCall
}

// ServePayments starts a payment service. answer returns the status and the
// body of the answer to a call.
func ServePayments(t testing.TB, answer func(c PaymentCall) (status int, body string)) *Payments {
	t.Helper()
	p := &Payments{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		c := PaymentCall{ID: r.Header.Get("webhook-id"), Header: r.Header, Body: body}
		if err == nil {
			err = json.Unmarshal(body, &c)
		}
		if err != nil || r.Method != http.MethodPost {
			t.Errorf("%s %s: %v", r.Method, body, err)
		}
		p.mu.Lock()
		p.calls = append(p.calls, c)
		p.mu.Unlock()
		status, text := answer(c)
		w.WriteHeader(status)
		_, _ = io.WriteString(w, text)
	}))
	t.Cleanup(server.Close)
	p.URL = server.URL
	return p
}

// Calls returns the calls so far.
func (p *Payments) Calls() []PaymentCall {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.calls)
}
