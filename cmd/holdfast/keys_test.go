package main

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast/holdfast/cmd/internal/programtest"
	"github.com/holdfast/holdfast/internal/tenants"
)

// keyTool returns a tool on a database without a running service. It has the
// tenant "shop".
func keyTool(t *testing.T) *tool {
	t.Helper()
	shop := programtest.NewFixture(t)
	return &tool{t, shop, shop.Env()}
}

// A key gives access only to its tenant's rows unless the command line names
// the scope ops. Then the tool prints what that scope gives access to.
func TestKeysCreateScopes(t *testing.T) {
	t.Parallel()
	c := keyTool(t)
	for _, test := range []struct {
		args   []string
		scopes []any
		notice bool
	}{
		{nil, []any{"cart", "stock"}, false},
		{[]string{"--scopes", "stock"}, []any{"stock"}, false},
		{[]string{"--scopes", "cart,ops"}, []any{"cart", "ops"}, true},
	} {
		args := append([]string{"keys", "create", "--tenant", "shop"}, test.args...)
		made := c.object(append(args, "--json")...)
		if diff := cmp.Diff(test.scopes, made["scopes"]); diff != "" {
			t.Errorf("%q: scopes (-want +got):\n%s", args, diff)
		}
		stdout, stderr, err := programtest.Once(t, run, c.env, args...)
		if err != nil || !tenants.WellFormed(strings.TrimSuffix(stdout, "\n")) {
			t.Errorf("%q printed %q, %v; want a key alone", args, stdout, err)
		}
		if strings.Contains(stderr, "every tenant") != test.notice {
			t.Errorf("%q printed %q; want the notice about ops: %t", args, stderr, test.notice)
		}
	}
}

// No command creates a tenant for a misspelt name. The error names the commands
// that list and create tenants.
func TestKeysUnknownTenant(t *testing.T) {
	t.Parallel()
	c := keyTool(t)
	for _, args := range [][]string{
		{"keys", "create"}, // the tenant dev, which only `holdfast run` creates
		{"keys", "create", "--tenant", "shpo"},
		{"keys", "list", "--tenant", "shpo"},
		{"keys", "revoke", "01a1f8c7-993c-7910-b8ca-25f7672f8c85", "--tenant", "shpo"},
	} {
		err := c.fail(args...)
		if !errors.Is(err, tenants.ErrUnknownTenant) || !strings.Contains(err.Error(), "`holdfast tenants`") ||
			strings.Contains(err.Error(), "--create-tenant") != (args[1] == "create") {
			t.Errorf("%q: %v", args, err)
		}
	}
	if n := c.shop.Int(`SELECT count(*) FROM tenants`); n != 1 {
		t.Errorf("%d tenants, want the existing one", n)
	}
	for range 2 { // the second time the tenant exists
		c.run("keys", "create", "--tenant", "second", "--create-tenant")
	}
	if n := c.shop.Int(`SELECT count(*) FROM tenants AS t JOIN api_keys USING (tenant_id) WHERE t.name = 'second'`); n != 2 {
		t.Errorf("%d keys of the named tenant, want 2", n)
	}
}

// Without --tenant, keys of all tenants are listed and revoked.
func TestKeysOfAnyTenant(t *testing.T) {
	t.Parallel()
	c := keyTool(t)
	first := c.object("keys", "create", "till", "--tenant", "shop", "--json")
	second := c.object("keys", "create", "web", "--tenant", "second shop", "--create-tenant", "--json")
	for _, want := range []string{"TENANT", "shop", "second shop", first["key_id"].(string), second["key_id"].(string)} {
		if list := c.run("keys", "list"); !strings.Contains(list, want) {
			t.Errorf("the list lacks %q:\n%s", want, list)
		}
	}
	if list := c.run("keys", "list", "--tenant", "shop"); !strings.Contains(list, "till") || strings.Contains(list, "web") {
		t.Errorf("keys of one tenant:\n%s", list)
	}
	for _, want := range []string{"TENANT", "shop", "second shop"} {
		if list := c.run("tenants"); !strings.Contains(list, want) || strings.Count(list, "\n") != 3 {
			t.Errorf("want %q among the tenants:\n%s", want, list)
		}
	}
	if list := c.run("tenants", "--json"); strings.Count(list, `"tenant_id"`) != 2 {
		t.Errorf("tenants as JSON:\n%s", list)
	}

	id := second["key_id"].(string)
	if err := c.fail("keys", "revoke", id, "--tenant", "shop"); !errors.Is(err, tenants.ErrKeyNotFound) || !strings.Contains(err.Error(), "leave out --tenant") {
		t.Errorf("a key of another tenant: %v", err)
	}
	if n := c.shop.Int(`SELECT count(*) FROM api_keys WHERE revoked_at IS NOT NULL`); n != 0 {
		t.Errorf("%d keys were revoked", n)
	}
	c.run("keys", "revoke", id)
	if n := c.shop.Int(`SELECT count(*) FROM api_keys WHERE revoked_at IS NOT NULL AND key_id = '` + id + `'`); n != 1 {
		t.Errorf("%d keys were revoked, want the one", n)
	}
	if err := c.fail("keys", "revoke", "01a1f8c7-993c-7910-b8ca-25f7672f8c85"); !errors.Is(err, tenants.ErrKeyNotFound) || !strings.Contains(err.Error(), "`holdfast keys list`") {
		t.Errorf("an unknown key: %v", err)
	}
}

// A key is revoked by its id, by its text, or by a prefix that no other key has.
// An error does not show the key.
func TestKeysRevokeByName(t *testing.T) {
	t.Parallel()
	c := keyTool(t)
	create := func() map[string]any { return c.object("keys", "create", "--tenant", "shop", "--json") }
	for _, field := range []string{"key_id", "prefix", "key"} {
		key := create()
		if printed := c.run("keys", "revoke", key[field].(string)); !strings.Contains(printed, key["key_id"].(string)) || strings.Contains(printed, key["key"].(string)) {
			t.Errorf("revoke by %s printed %q", field, printed)
		}
		if n := c.shop.Int(`SELECT count(*) FROM api_keys WHERE revoked_at IS NULL`); n != 0 {
			t.Errorf("%d keys are still valid after revoke by %s", n, field)
		}
	}
	first, second := create(), create()
	if _, err := c.shop.DB.Exec(t.Context(), `UPDATE api_keys SET prefix = $1 WHERE key_id = $2`, first["prefix"], second["key_id"]); err != nil {
		t.Fatal(err)
	}
	if err := c.fail("keys", "revoke", first["prefix"].(string)); !strings.Contains(err.Error(), "2 keys have this prefix") {
		t.Errorf("a prefix of two keys: %v", err)
	}
	wrong := first["key"].(string) + "x"
	if err := c.fail("keys", "revoke", wrong); !errors.Is(err, tenants.ErrKeyNotFound) || strings.Contains(err.Error(), wrong[:9]) {
		t.Errorf("a mistyped key: %v", err)
	}
	if n := c.shop.Int(`SELECT count(*) FROM api_keys WHERE revoked_at IS NULL`); n != 2 {
		t.Errorf("%d keys are valid, want both", n)
	}
}
