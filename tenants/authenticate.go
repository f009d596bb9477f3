package tenants

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/singleflight"

	"github.com/holdfast/holdfast/internal/telemetry"
)

// ErrUnknownKey says that a key opens nothing. Malformed, unknown and revoked are one answer, so that nothing can be
// learnt from it.
var ErrUnknownKey = errors.New("unknown API key")

// Principal is who a key speaks for.
type Principal struct {
	TenantID uuid.UUID
	KeyID    uuid.UUID
	// Prefix names the key in the audit log.
	Prefix string
	// Scopes are shared between callers: read only.
	Scopes []Scope
}

// Has reports whether the principal's key opens scope.
func (p Principal) Has(scope Scope) bool { return slices.Contains(p.Scopes, scope) }

// Config says how an [Authenticator] remembers.
type Config struct {
	// CacheFor is how old an answer may be when a call begins, and so the time within which a revoked key dies and a new
	// one, tried too early, starts to work. 0: 1 s. Below 0: every call asks the database.
	CacheFor time.Duration
	// CacheSize is how many valid keys, and as many unknown ones, are remembered: up to twice that. 0: 10,000.
	CacheSize int
}

const (
	defaultCacheFor  = time.Second
	defaultCacheSize = 10_000
	lookupTimeout    = 5 * time.Second
)

// Authenticator turns API keys into principals. It is safe for concurrent use.
type Authenticator struct {
	pool     *pgxpool.Pool
	cacheFor time.Duration
	lookups  singleflight.Group
	// Unknown keys are remembered apart, so that a flood of them displaces no valid one.
	valid, unknown *recent
}

// NewAuthenticator returns one that asks pool.
func NewAuthenticator(pool *pgxpool.Pool, config Config) *Authenticator {
	if config.CacheFor == 0 {
		config.CacheFor = defaultCacheFor
	}
	if config.CacheSize <= 0 {
		config.CacheSize = defaultCacheSize
	}
	return &Authenticator{
		pool:     pool,
		cacheFor: config.CacheFor,
		valid:    newRecent(config.CacheSize),
		unknown:  newRecent(config.CacheSize),
	}
}

// Remembered returns whom the plaintext of a key speaks for, if the database gave the answer at most CacheFor ago. It asks
// nothing; false does not mean that the key is unknown.
func (a *Authenticator) Remembered(plaintext string) (Principal, bool) {
	if a.cacheFor <= 0 {
		return Principal{}, false
	}
	ans, ok := a.valid.get(hashOf(plaintext))
	return ans.principal, ok && ans.err == nil && time.Since(ans.readAt) <= a.cacheFor
}

// Authenticate returns whom the plaintext of a key speaks for, or [ErrUnknownKey]; any other error says nothing of the
// key and may be gone at the next try. The answer is as the database had it when the call began or at most CacheFor
// earlier. Calls with one key at one time share a look-up; a call whose ctx ends leaves the others undisturbed.
func (a *Authenticator) Authenticate(ctx context.Context, plaintext string) (Principal, error) {
	if !WellFormed(plaintext) {
		return Principal{}, ErrUnknownKey
	}
	began := time.Now()
	fresh := func(ans answer) bool { return began.Sub(ans.readAt) <= max(a.cacheFor, 0) }
	hash := hashOf(plaintext)
	for _, cache := range []*recent{a.valid, a.unknown} {
		if ans, ok := cache.get(hash); ok && fresh(ans) && a.cacheFor > 0 {
			return ans.principal, ans.err
		}
	}
	for {
		select {
		case <-ctx.Done():
			return Principal{}, fmt.Errorf("authenticate: %w", ctx.Err())
		case done := <-a.lookups.DoChan(string(hash[:]), func() (any, error) { return a.lookUp(ctx, hash) }):
			if done.Err != nil {
				return Principal{}, done.Err
			}
			// A look-up that was under way before this call may have read too early; the next one cannot.
			if ans, ok := done.Val.(answer); ok && fresh(ans) {
				return ans.principal, ans.err
			}
		}
	}
}

// answer is what the database said of a key at a time.
type answer struct {
	principal Principal
	err       error // nil or ErrUnknownKey
	readAt    time.Time
}

const authenticateSQL = `
SELECT tenant_id, key_id, prefix, scopes, hash
FROM api_keys
WHERE hash = $1 AND revoked_at IS NULL
LIMIT 1`

// lookUp asks the database, whoever of those waiting goes away, and remembers the answer.
func (a *Authenticator) lookUp(ctx context.Context, hash [sha256.Size]byte) (_ answer, err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lookupTimeout)
	defer cancel()
	ctx, done := telemetry.Verb(ctx, "tenants.authenticate")
	defer func() { done("", err) }()
	ans := answer{err: ErrUnknownKey, readAt: time.Now()}
	var stored []byte
	var p Principal
	err = a.pool.QueryRow(ctx, authenticateSQL, hash[:]).Scan(&p.TenantID, &p.KeyID, &p.Prefix, &p.Scopes, &stored)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return answer{}, fmt.Errorf("look up API key: %w", err)
	}
	if err == nil && subtle.ConstantTimeCompare(stored, hash[:]) == 1 {
		ans.principal, ans.err = p, nil
		a.valid.put(hash, ans)
	} else {
		a.unknown.put(hash, ans)
	}
	return ans, nil
}
