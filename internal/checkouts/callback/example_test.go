package callback_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/google/uuid"

	"github.com/holdfast/holdfast/internal/checkouts"
	"github.com/holdfast/holdfast/internal/checkouts/callback"
)

// A validator for checkouts.Config asks a payment service, which answers that
// the payment was made.
func Example() {
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Println(r.Method, r.URL.Path, "for", r.Header.Get("webhook-id"))
		fmt.Fprint(w, `{"result":"paid"}`)
	}))
	defer service.Close()

	secret, err := callback.ParseSecret("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSwBjK2YLpzX0k=")
	if err != nil {
		fmt.Println(err)
		return
	}
	// AllowPrivate, because this service is on the loopback interface.
	bank, err := callback.New(callback.Config{Secret: secret, AllowPrivate: true})
	if err != nil {
		fmt.Println(err)
		return
	}
	config := checkouts.Config{Validator: bank} // of checkouts.NewRecovery, which calls it
	result, err := config.Validator.Validate(context.Background(), checkouts.Checkout{
		CheckoutID: uuid.MustParse("0190a1b2-c3d4-7e5f-8a9b-0c1d2e3f4a5b"), CallbackURL: service.URL + "/paid",
	})
	fmt.Println(result, err)
	// Output:
	// POST /paid for 0190a1b2-c3d4-7e5f-8a9b-0c1d2e3f4a5b
	// paid <nil>
}
