package tenants_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/internal/pgtest"
	"github.com/holdfast/holdfast/internal/tenants"
)

// bundle is the fixture of the tests of this package.
type bundle struct {
	pool   *pgxpool.Pool
	tenant tenants.Tenant
	other  tenants.Tenant
}

func newBundle(t *testing.T) *bundle {
	t.Helper()
	b := &bundle{pool: pgtest.New(t)}
	b.tenant, b.other = b.ensure(t, "rolls and buns"), b.ensure(t, "whole milk")
	return b
}

func (b *bundle) ensure(t *testing.T, name string) tenants.Tenant {
	t.Helper()
	tenant, err := tenants.Ensure(t.Context(), b.pool, name)
	if err != nil {
		t.Fatal(err)
	}
	return tenant
}

func (b *bundle) createKey(t *testing.T, scopes ...tenants.Scope) (string, tenants.Key) {
	t.Helper()
	plaintext, key, err := tenants.CreateKey(t.Context(), b.pool, b.tenant.TenantID, "till", scopes)
	if err != nil {
		t.Fatal(err)
	}
	return plaintext, key
}

func (b *bundle) begin(t *testing.T) pgx.Tx {
	t.Helper()
	tx, err := b.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	return tx
}

// count returns the number that a query returns.
func (b *bundle) count(t *testing.T, sql string, args ...any) int {
	t.Helper()
	return int(pgtest.Int(t, b.pool, sql, args...))
}
