package admission

import (
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/holdfast/holdfast/internal/requestrows"
	"github.com/holdfast/holdfast/internal/secrettest"
	"github.com/holdfast/holdfast/metered"
	"github.com/holdfast/holdfast/ratelimit"
)

// Printing credentials, or a caller in the queue, does not print the token.
func TestCredentialsAreOpaque(t *testing.T) {
	t.Parallel()
	const plaintext = "hft_0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKL"
	p := Credentials{
		Rates: []ratelimit.Rate{{Scope: "shop", Amount: 1, Limit: 1, Window: time.Second}}, Token: metered.ParseToken(plaintext), Subject: "ann",
	}
	w := newWaiter(t.Context(), requestrows.Submission{TenantID: uuid.New(), CartID: "cart", VariantID: "shoe", Quantity: 1})
	token, err := p.present(&w.submission)
	if err != nil {
		t.Fatal(err)
	}
	w.token, w.hasToken = token, true
	secrettest.AssertAbsent(t, secrettest.Diffed(p), plaintext)
	for name, value := range map[string]any{"credentials": p, "pointer": &p, "member": w, "queue": []*waiter{w}, "presented": token} {
		secrettest.AssertAbsent(t, secrettest.Shown(value), plaintext)
		if t.Failed() {
			t.Fatal(name)
		}
	}
}
