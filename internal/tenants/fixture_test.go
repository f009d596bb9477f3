package tenants_test

import (
	"testing"

	"github.com/holdfast/holdfast/internal/pgtest"
	"github.com/holdfast/holdfast/internal/tenants"
)

// fixture is the fixture of the tests of this package.
type fixture struct {
	pgtest.Fixture
	tenant tenants.Tenant
	other  tenants.Tenant
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	b := &fixture{Fixture: pgtest.NewFixture(t)}
	b.tenant, b.other = b.ensure(t, "rolls and buns"), b.ensure(t, "whole milk")
	return b
}

func (b *fixture) ensure(t *testing.T, name string) tenants.Tenant {
	t.Helper()
	tenant, err := tenants.Ensure(t.Context(), b.DB, name)
	if err != nil {
		t.Fatal(err)
	}
	return tenant
}

func (b *fixture) createKey(t *testing.T, scopes ...tenants.Scope) (string, tenants.Key) {
	t.Helper()
	plaintext, key, err := tenants.CreateKey(t.Context(), b.DB, b.tenant.TenantID, "till", scopes)
	if err != nil {
		t.Fatal(err)
	}
	return plaintext, key
}
