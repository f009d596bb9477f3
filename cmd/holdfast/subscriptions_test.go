package main

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/holdfast/holdfast/audit"
	"github.com/holdfast/holdfast/cmd/internal/programtest"
)

func TestSubscriptions(t *testing.T) {
	t.Parallel()
	shop := programtest.NewFixture(t)
	c := &tool{t, shop, shop.Env()}
	if out := c.run("subscriptions", "--json"); strings.TrimSpace(out) != "[]" {
		t.Errorf("without any: %q", out)
	}
	sub, err := audit.Subscribe(t.Context(), shop.DB, "emails", audit.SubscriptionConfig{FromBeginning: true})
	if err != nil {
		t.Fatal(err)
	}
	shop.Stock("shirt", 2)
	broken := errors.New("mail server:\ngone")
	shop.Until("a delivery failed", func() bool {
		_, err := sub.RunOnce(t.Context(), func(context.Context, *audit.Delivery) error { return broken })
		return errors.Is(err, broken)
	})
	var states []audit.SubscriptionState
	if err := json.Unmarshal([]byte(c.run("subscriptions", "list", "--json")), &states); err != nil || len(states) != 1 {
		t.Fatal(states, err)
	}
	if s := states[0]; s.Name != "emails" || s.Lag != 1 || s.Failures != 1 || s.LastError != broken.Error() {
		t.Errorf("%+v", s)
	}
	out := c.run("subscriptions")
	for _, want := range []string{"LAG SECONDS", "emails", `"mail server:\ngone"`} {
		if !strings.Contains(out, want) {
			t.Errorf("the list lacks %q:\n%s", want, out)
		}
	}
	c.run("subscriptions", "drop", "emails")
	if out := c.run("subscriptions"); strings.Count(out, "\n") != 1 {
		t.Errorf("after it was dropped:\n%s", out)
	}
}
