package tenants_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/internal/pgtest"
	"github.com/holdfast/holdfast/tenants"
)

// bundle is what every test of this package needs.
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

// count answers a query that counts.
func (b *bundle) count(t *testing.T, sql string, args ...any) (n int) {
	t.Helper()
	if err := b.pool.QueryRow(t.Context(), sql, args...).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// awaitWaiting returns once that many backends of the test's database wait for a lock.
func (b *bundle) awaitWaiting(t *testing.T, backends int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for n := 0; n < backends; {
		err := b.pool.QueryRow(ctx, `
			SELECT count(*)
			FROM pg_locks AS l
			JOIN pg_stat_activity AS a USING (pid)
			WHERE NOT l.granted AND a.datname = current_database()`).Scan(&n)
		if err != nil {
			t.Fatalf("wait for %d backends to wait for a lock: %v", backends, err)
		}
	}
}
