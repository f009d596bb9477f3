package main

import (
	"strings"
	"testing"

	"github.com/holdfast/holdfast/cmd/internal/programtest"
	"github.com/holdfast/holdfast/internal/checkouts/callback"
)

// The tool prints the secret of the tenant and not that of the installation.
func TestCallbackSecret(t *testing.T) {
	t.Parallel()
	const master = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSwBjK2YLpzX0k="
	c := keyTool(t)
	if err := c.fail("callback-secret", "--tenant", "shop"); !strings.Contains(err.Error(), "CHECKOUT_CALLBACK_SECRET") {
		t.Errorf("without the variable: %v", err)
	}
	c.env["CHECKOUT_CALLBACK_SECRET"] = master
	secret, err := callback.ParseSecret(master)
	if err != nil {
		t.Fatal(err)
	}
	stdout, stderr, err := programtest.Once(t, run, c.env, "callback-secret", "--tenant", "shop")
	if want := secret.ForTenant(c.shop.Tenant).Plaintext() + "\n"; err != nil || stdout != want {
		t.Errorf("%q, %v; want %q", stdout, err, want)
	}
	if strings.Contains(stderr, "whsec_") {
		t.Errorf("stderr has a secret: %s", stderr)
	}
	if err := c.fail("callback-secret", "--tenant", "shpo"); !strings.Contains(err.Error(), "shpo") {
		t.Errorf("an unknown tenant: %v", err)
	}
}
