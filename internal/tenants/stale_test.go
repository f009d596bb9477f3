package tenants

import (
	"errors"
	"testing"
	"time"

	"github.com/holdfast/holdfast/internal/pgtest"
)

// An answer older than CacheFor is not returned, whether the key is valid or
// unknown. Unknown keys are cached separately from valid ones.
func TestOldAnswersAreNotGiven(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	tenant, err := Ensure(t.Context(), pool, "rolls and buns")
	if err != nil {
		t.Fatal(err)
	}
	valid, _, err := CreateKey(t.Context(), pool, tenant.TenantID, "till", []Scope{ScopeCart})
	if err != nil {
		t.Fatal(err)
	}
	revoked := newSecret()
	a := NewAuthenticator(pool, Config{CacheFor: time.Hour, CacheSize: 2})
	remember := func(age time.Duration) {
		a.unknown.put(hashOf(valid), answer{err: ErrUnknownKey, readAt: time.Now().Add(-age)})
		a.valid.put(hashOf(revoked), answer{principal: Principal{Prefix: "was valid"}, readAt: time.Now().Add(-age)})
	}

	remember(30 * time.Minute)
	if _, err := a.Authenticate(t.Context(), valid); !errors.Is(err, ErrUnknownKey) {
		t.Errorf("the cached refusal was not returned: %v", err)
	}
	if p, err := a.Authenticate(t.Context(), revoked); err != nil || p.Prefix != "was valid" {
		t.Errorf("the cached principal was not returned: %+v, %v", p, err)
	}
	remember(61 * time.Minute)
	if p, err := a.Authenticate(t.Context(), valid); err != nil || p.TenantID != tenant.TenantID {
		t.Errorf("an old refusal was returned: %+v, %v", p, err)
	}
	if _, err := a.Authenticate(t.Context(), revoked); !errors.Is(err, ErrUnknownKey) {
		t.Errorf("an old principal was returned: %v", err)
	}

	for range 100 {
		if _, err := a.Authenticate(t.Context(), newSecret()); !errors.Is(err, ErrUnknownKey) {
			t.Fatal(err)
		}
	}
	if _, ok := a.valid.get(hashOf(valid)); !ok || len(a.unknown.new)+len(a.unknown.old) > 4 {
		t.Errorf("a flood of unknown keys displaced a valid one, or %d are cached", len(a.unknown.new)+len(a.unknown.old))
	}
}

// A call may join a query that read the key before the call began. If that was
// more than CacheFor earlier, the key is read again.
func TestOldLookUpsAreNotShared(t *testing.T) {
	t.Parallel()
	a := NewAuthenticator(pgtest.New(t), Config{CacheFor: -1})
	secret := newSecret()
	hash := hashOf(secret)
	underWay, begun := make(chan struct{}), make(chan struct{})
	a.lookups.DoChan(string(hash[:]), func() (any, error) {
		early := answer{principal: Principal{Prefix: "was valid"}, readAt: time.Now()}
		close(underWay)
		<-begun
		return early, nil
	})
	<-underWay
	result := make(chan error)
	go func() {
		close(begun)
		_, err := a.Authenticate(t.Context(), secret)
		result <- err
	}()
	if err := <-result; !errors.Is(err, ErrUnknownKey) {
		t.Errorf("got %v", err)
	}
}
