package main

import (
	"errors"
	"strings"
	"testing"

	"github.com/holdfast/holdfast/client"
	"github.com/holdfast/holdfast/cmd/internal/programtest"
)

// The all-in-one with metered commands creates their tables automatically, and
// the tool opens and closes a sale.
func TestMetered(t *testing.T) {
	t.Parallel()
	shop := programtest.NewFixture(t)
	s := ready(t, programtest.Start(t, run, shop.Env("METERED_COMMANDS_ENABLED", "true"), "run").Stdout)
	c := &tool{t, shop, shop.Env("HOLDFAST_URL", s.url, "HOLDFAST_KEY", s.key, "METERED_COMMANDS_ENABLED", "true")}
	if out := c.run("migrate"); !strings.Contains(out, "up to date") {
		t.Errorf("migrate: %s", out)
	}
	c.expect(map[string]any{"admission": "token"}, "stock", "set", "ticket", "--stock", "5", "--admission", "token")
	if list := c.run("stock", "list"); !strings.Contains(list, "admission=token") {
		t.Errorf("the list does not show the admission:\n%s", list)
	}
	c.run("verify")
	c.expect(map[string]any{"admission": "open"}, "stock", "set", "ticket", "--admission", "open")
	s.add("cart-1", "ticket")

	off := newTool(t)
	var problem *client.Error
	if err := off.fail("stock", "set", "ticket", "--stock", "5", "--admission", "token"); !errors.As(err, &problem) || problem.Status != 422 {
		t.Errorf("without metered commands: %v", err)
	}
}
