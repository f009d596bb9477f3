package requests

import (
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/holdfast/holdfast/internal/secrettest"
	"github.com/holdfast/holdfast/metered"
)

// Neither a pass, nor a caller in the line with its visit, shows the token it presents.
func TestPassIsOpaque(t *testing.T) {
	t.Parallel()
	const plaintext = "hft_0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKL"
	p := Pass{
		Rates: []metered.Rate{{Scope: "shop", Amount: 1, Limit: 1, Window: time.Second}}, Token: metered.ParseToken(plaintext), Subject: "ann",
	}
	m := newMember(t.Context(), Submission{TenantID: uuid.New(), CartID: "cart", VariantID: "shoe", Quantity: 1})
	visit, err := p.visit(&m.submission)
	if err != nil {
		t.Fatal(err)
	}
	m.visit, m.shows = visit, true
	secrettest.Look(t, secrettest.Diffed(p), plaintext)
	for name, value := range map[string]any{"pass": p, "pointer": &p, "member": *m, "line": []*member{m}, "visit": visit} {
		secrettest.Look(t, secrettest.Shown(value), plaintext)
		if t.Failed() {
			t.Fatal(name)
		}
	}
}
