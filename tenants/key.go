package tenants

import (
	"errors"
	"time"

	"github.com/google/uuid"

	"github.com/holdfast/holdfast/internal/isolation"
)

// MaxKeys is how many keys of one tenant may be valid at once.
const MaxKeys = 1000

// Key is an API key, without what would open anything.
type Key struct {
	TenantID uuid.UUID
	KeyID    uuid.UUID
	// Name is the owner's own word for it.
	Name string
	// Prefix is the beginning of the plaintext: enough to recognise a key, far too little to use it.
	Prefix string
	// Scopes are sorted, each once.
	Scopes    []Scope
	CreatedAt time.Time
	// RevokedAt is when the key was revoked; nil while it is valid.
	RevokedAt *time.Time
}

// Outcomes of the verbs on keys.
var (
	// ErrKeyNotFound says that the tenant has no such key.
	ErrKeyNotFound = errors.New("API key not found")
	// ErrIsolation means that a key was to be made in a transaction at REPEATABLE READ or SERIALIZABLE. Postgres has
	// aborted the transaction.
	ErrIsolation = isolation.ErrLevel
	// ErrTooManyKeys says that the tenant has MaxKeys valid keys.
	ErrTooManyKeys = errors.New("too many API keys")
)

const keyColumns = `tenant_id, key_id, name, prefix, scopes, created_at, revoked_at`
