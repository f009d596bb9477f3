package tenants

import (
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/singleflight"

	"github.com/holdfast/holdfast/internal/telemetry"
)

// ErrUnknownKey means that a key is not valid. It is the same for malformed,
// unknown and revoked keys, so that a caller learns nothing from it.
var ErrUnknownKey = errors.New("unknown API key")

// ErrElsewhere means that the tenant is not active in this database: it is being
// moved to another one, or from there, or was moved.
var ErrElsewhere = errors.New("the tenant moves to another database, or has moved")

// Principal is the owner of a key.
type Principal struct {
	TenantID uuid.UUID
	KeyID    uuid.UUID
	// Prefix names the key in the audit log.
	Prefix string
	// Scopes are shared between callers: read only.
	Scopes []Scope
}

// Has reports whether the principal's key has scope.
func (p Principal) Has(scope Scope) bool { return slices.Contains(p.Scopes, scope) }

// Config bounds the cache of an [Authenticator].
type Config struct {
	// CacheFor is how old an answer may be when a call begins. A revoked key
	// stops working within it. A new key that was tried too early starts to
	// work within it. 0: 1 s. Negative: every call queries the database.
	CacheFor time.Duration
	// CacheSize is how many valid keys are cached, and how many unknown keys:
	// up to twice that number of each. 0: 10,000.
	CacheSize int
}

const (
	// DefaultCacheFor is the default of Config.CacheFor, and that of the programs.
	DefaultCacheFor  = time.Second
	defaultCacheSize = 10_000
	lookupTimeout    = 5 * time.Second
	// elsewhereFor is CacheFor of a tenant that is not active here: it may be in a
	// moment.
	elsewhereFor = 50 * time.Millisecond
)

// Authenticator turns API keys into principals. It is safe for concurrent use.
type Authenticator struct {
	pool     *pgxpool.Pool
	cacheFor time.Duration
	lookups  singleflight.Group
	// Unknown keys are cached separately, so that a flood of them evicts no
	// valid key.
	valid, unknown *recent[answer]
}

// NewAuthenticator returns an Authenticator that queries pool.
func NewAuthenticator(pool *pgxpool.Pool, config Config) *Authenticator {
	config.CacheFor = cmp.Or(config.CacheFor, DefaultCacheFor)
	if config.CacheSize <= 0 {
		config.CacheSize = defaultCacheSize
	}
	return &Authenticator{
		pool:     pool,
		cacheFor: config.CacheFor,
		valid:    newRecent[answer](config.CacheSize),
		unknown:  newRecent[answer](config.CacheSize),
	}
}

// Cached returns the principal of a key's plaintext if the cache has an
// answer that is at most CacheFor old. It does not query the database. False
// does not mean that the key is unknown.
func (a *Authenticator) Cached(plaintext string) (Principal, bool) {
	if a.cacheFor <= 0 {
		return Principal{}, false
	}
	ans, ok := a.valid.get(hashOf(plaintext))
	return ans.principal, ok && ans.err == nil && time.Since(ans.readAt) <= a.cacheFor
}

// Forget makes the next call with a key query the database: what it changes was
// refused, because its tenant moves to another one.
func (a *Authenticator) Forget(plaintext string) {
	a.valid.put(hashOf(plaintext), answer{err: ErrElsewhere})
}

// Authenticate returns the principal of a key's plaintext, or [ErrUnknownKey], or
// [ErrElsewhere] for the key of a tenant that arrives or is gone. The key of one
// that is moving away is good: its fence refuses what would change something.
// Any other error means nothing about the key, and the next call may succeed.
// The answer is the state in the database when the call began, or at most
// CacheFor earlier, but not for a tenant whose move has begun: so nothing that
// begins after it has left reads what it left behind. Concurrent calls with one key share a query. A call whose
// ctx ends leaves the others undisturbed.
func (a *Authenticator) Authenticate(ctx context.Context, plaintext string) (Principal, error) {
	if !WellFormed(plaintext) {
		return Principal{}, ErrUnknownKey
	}
	began := time.Now()
	fresh := func(ans answer) bool {
		age := began.Sub(ans.readAt)
		if errors.Is(ans.err, ErrElsewhere) && age > elsewhereFor || ans.leaving && age > 0 {
			return false
		}
		return age <= max(a.cacheFor, 0)
	}
	hash := hashOf(plaintext)
	cached := func() (answer, bool) {
		for _, cache := range []*recent[answer]{a.valid, a.unknown} {
			if ans, ok := cache.get(hash); ok && fresh(ans) && a.cacheFor > 0 {
				return ans, true
			}
		}
		return answer{}, false
	}
	if ans, ok := cached(); ok {
		return ans.principal, ans.err
	}
	// A query may have ended since.
	query := func() (any, error) {
		if ans, ok := cached(); ok {
			return ans, nil
		}
		return a.lookUp(ctx, hash)
	}
	for {
		select {
		case <-ctx.Done():
			return Principal{}, fmt.Errorf("authenticate: %w", ctx.Err())
		case done := <-a.lookups.DoChan(string(hash[:]), query):
			if done.Err != nil {
				return Principal{}, done.Err
			}
			// A query that began before this call may have read too early. The
			// next one cannot.
			if ans, ok := done.Val.(answer); ok && fresh(ans) {
				return ans.principal, ans.err
			}
		}
	}
}

// answer is what the database returned for a key at a time.
type answer struct {
	principal Principal
	err       error // nil, ErrUnknownKey or ErrElsewhere
	readAt    time.Time
	leaving   bool // a move of the tenant has begun
}

const authenticateSQL = `
SELECT k.tenant_id, k.key_id, k.prefix, k.scopes, k.hash, s.state IN ('active', 'moving'), s.moves_to IS NOT NULL
FROM api_keys k
JOIN tenant_state s ON s.tenant_id = k.tenant_id
WHERE k.hash = $1 AND k.revoked_at IS NULL
LIMIT 1`

// lookUp queries the database and caches the answer, even if the waiting
// callers go away.
func (a *Authenticator) lookUp(ctx context.Context, hash [sha256.Size]byte) (_ answer, err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lookupTimeout)
	defer cancel()
	ctx, done := telemetry.Verb(ctx, "tenants.authenticate")
	defer func() { done("", err) }()
	ans := answer{err: ErrUnknownKey, readAt: time.Now()}
	var stored []byte
	var here bool
	var p Principal
	err = a.pool.QueryRow(ctx, authenticateSQL, hash[:]).Scan(&p.TenantID, &p.KeyID, &p.Prefix, &p.Scopes, &stored, &here, &ans.leaving)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return answer{}, fmt.Errorf("look up API key: %w", err)
	}
	known := err == nil && subtle.ConstantTimeCompare(stored, hash[:]) == 1
	switch {
	case known && here && ans.leaving:
		ans.principal, ans.err = p, nil
		return ans, nil
	case known && here:
		ans.principal, ans.err = p, nil
	case known:
		ans.err = ErrElsewhere
	default:
		a.unknown.put(hash, ans)
		return ans, nil
	}
	a.valid.put(hash, ans)
	return ans, nil
}

// recent caches the newest values by the hashes of keys, at least size and at
// most twice as many, in two generations. When the new generation is full, it
// becomes the old one, and the old one is dropped. So every step costs the same.
type recent[V any] struct {
	mu       sync.Mutex
	size     int
	new, old map[[sha256.Size]byte]V
}

func newRecent[V any](size int) *recent[V] {
	return &recent[V]{size: size, new: make(map[[sha256.Size]byte]V)}
}

func (r *recent[V]) get(hash [sha256.Size]byte) (V, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if v, ok := r.new[hash]; ok {
		return v, true
	}
	v, ok := r.old[hash]
	return v, ok
}

func (r *recent[V]) put(hash [sha256.Size]byte, v V) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.new) >= r.size {
		r.old, r.new = r.new, make(map[[sha256.Size]byte]V)
	}
	r.new[hash] = v
}
