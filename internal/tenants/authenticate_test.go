package tenants_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/internal/pgtest"
	"github.com/holdfast/holdfast/internal/tenants"
)

// uncached reads the database each time. caching caches answers for longer
// than a test takes.
var (
	uncached = tenants.Config{CacheFor: -1}
	caching  = tenants.Config{CacheFor: time.Hour}
)

func TestAuthenticate(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	plaintext, key := b.createKey(t, tenants.ScopeCart, tenants.ScopeOps)
	unknown, unknownKey := b.createKey(t, tenants.ScopeCart)
	if _, err := b.DB.Exec(t.Context(), `DELETE FROM api_keys WHERE key_id = $1`, unknownKey.KeyID); err != nil {
		t.Fatal(err)
	}
	revoked, revokedKey := b.createKey(t, tenants.ScopeCart)
	if _, err := tenants.RevokeKey(t.Context(), b.DB, b.tenant.TenantID, revokedKey.KeyID); err != nil {
		t.Fatal(err)
	}
	for _, config := range []tenants.Config{{}, uncached, caching} {
		a := tenants.NewAuthenticator(b.DB, config)
		for range 2 { // the second time from the cache, if there is one
			p, err := a.Authenticate(t.Context(), plaintext)
			if err != nil {
				t.Fatal(err)
			}
			want := tenants.Principal{
				TenantID: b.tenant.TenantID, KeyID: key.KeyID, Prefix: key.Prefix,
				Scopes: []tenants.Scope{tenants.ScopeCart, tenants.ScopeOps},
			}
			if diff := cmp.Diff(want, p); diff != "" {
				t.Error(diff)
			}
			if !p.Has(tenants.ScopeCart) || !p.Has(tenants.ScopeOps) || p.Has(tenants.ScopeStock) {
				t.Errorf("wrong scopes: %v", p.Scopes)
			}
			for why, s := range map[string]string{
				"malformed": plaintext[1:], "empty": "", "unknown": unknown, "revoked": revoked,
			} {
				if p, err := a.Authenticate(t.Context(), s); !errors.Is(err, tenants.ErrUnknownKey) || p.Prefix != "" {
					t.Errorf("%s: got %+v, %v", why, p, err)
				}
			}
		}
	}
}

func TestRevokedKeyIsRefusedOnceMemoryIsOver(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	plaintext, key := b.createKey(t, tenants.ScopeCart)
	asking, cached := tenants.NewAuthenticator(b.DB, uncached), tenants.NewAuthenticator(b.DB, caching)
	for _, a := range []*tenants.Authenticator{asking, cached} {
		if _, err := a.Authenticate(t.Context(), plaintext); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := tenants.RevokeKey(t.Context(), b.DB, b.tenant.TenantID, key.KeyID); err != nil {
		t.Fatal(err)
	}
	if _, err := asking.Authenticate(t.Context(), plaintext); !errors.Is(err, tenants.ErrUnknownKey) {
		t.Errorf("without a cache: %v", err)
	}
	if _, err := cached.Authenticate(t.Context(), plaintext); err != nil {
		t.Errorf("the cache did not answer: %v", err)
	}
}

// countingPool counts the statements of every connection it opens.
func countingPool(t *testing.T, b *fixture) (*pgxpool.Pool, *queryCount) {
	t.Helper()
	config := b.DB.Config()
	count := &queryCount{}
	config.ConnConfig.Tracer = count
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool, count
}

type queryCount struct{ atomic.Int64 }

func (q *queryCount) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	q.Add(1)
	return ctx
}

func (*queryCount) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func TestLookUpsOfOneKeyAreShared(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	plaintext, _ := b.createKey(t, tenants.ScopeCart)
	pool, queries := countingPool(t, b)
	a := tenants.NewAuthenticator(pool, caching)

	tx := b.Begin()
	if _, err := tx.Exec(t.Context(), `LOCK TABLE api_keys IN ACCESS EXCLUSIVE MODE`); err != nil {
		t.Fatal(err)
	}
	const callers = 50
	leaving, leave := context.WithCancel(t.Context())
	left := make(chan error)
	go func() {
		_, err := a.Authenticate(leaving, plaintext)
		left <- err
	}()
	pgtest.UntilBlocked(t, b.DB, 1) // its query is running
	stayed := make(chan error, callers)
	for range callers {
		go func() {
			_, err := a.Authenticate(t.Context(), plaintext)
			stayed <- err
		}()
	}
	leave()
	if err := <-left; !errors.Is(err, context.Canceled) {
		t.Errorf("the caller that left received %v", err)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	for range callers {
		if err := <-stayed; err != nil {
			t.Errorf("the caller that stayed received %v", err)
		}
	}
	// A caller between its read of the cache and its query may need a separate
	// query.
	if n := queries.Load(); n > callers/5 {
		t.Errorf("%d statements for %d calls", n, callers)
	}
}

func TestOutageIsNoAnswer(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	plaintext, _ := b.createKey(t, tenants.ScopeCart)
	closed, _ := countingPool(t, b)
	closed.Close()
	if _, err := tenants.NewAuthenticator(closed, tenants.Config{}).Authenticate(t.Context(), plaintext); err == nil || errors.Is(err, tenants.ErrUnknownKey) {
		t.Errorf("got %v", err)
	}
}
