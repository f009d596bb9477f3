package tenants

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/audit"
	"github.com/holdfast/holdfast/internal/invalid"
	"github.com/holdfast/holdfast/internal/pg"
)

// MaxKeys is how many keys of one tenant may be valid at once.
const MaxKeys = 1000

// Key is an API key without its secret.
type Key struct {
	TenantID uuid.UUID
	KeyID    uuid.UUID
	// Name is chosen by the owner.
	Name string
	// Prefix is the beginning of the plaintext: enough to recognise a key, far
	// too little to use it.
	Prefix string
	// Scopes are sorted, each once.
	Scopes    []Scope
	CreatedAt time.Time
	// RevokedAt is when the key was revoked; nil while it is valid.
	RevokedAt *time.Time
}

// Outcomes of the verbs on keys.
var (
	// ErrKeyNotFound means that the tenant has no such key.
	ErrKeyNotFound = errors.New("API key not found")
	// ErrIsolation means that a key was to be made in a transaction at
	// REPEATABLE READ or SERIALIZABLE. Postgres has aborted the transaction.
	ErrIsolation = pg.ErrIsolation
	// ErrTooManyKeys means that the tenant has MaxKeys valid keys.
	ErrTooManyKeys = errors.New("too many API keys")
)

const keyColumns = `tenant_id, key_id, name, prefix, scopes, created_at, revoked_at`

// Scope is a part of the API that a key gives access to.
type Scope string

// The scopes: the storefront, the back office, the operator. The first two
// reach one tenant's rows; ScopeOps also controls the lanes, which all tenants
// share.
const (
	ScopeCart  Scope = "cart"
	ScopeStock Scope = "stock"
	ScopeOps   Scope = "ops"
)

// AllScopes returns all scopes.
func AllScopes() []Scope { return []Scope{ScopeCart, ScopeStock, ScopeOps} }

// normalizeScopes returns the scopes sorted and each once, or an *InvalidError
// for none or an unknown one.
func normalizeScopes(scopes []Scope) ([]Scope, error) {
	if len(scopes) == 0 {
		return nil, &InvalidError{Field: "scopes", Message: "must name at least one of cart, stock, ops"}
	}
	for i, s := range scopes {
		if !slices.Contains(AllScopes(), s) {
			return nil, &InvalidError{
				Field:   fmt.Sprintf("scopes[%d]", i),
				Message: fmt.Sprintf("must be cart, stock or ops, not %.40q", string(s)),
			}
		}
	}
	sorted := slices.Sorted(slices.Values(scopes))
	return slices.Compact(sorted), nil
}

// CreateKey makes an API key and returns its plaintext, which is returned only
// once. The name is 1 to 128 characters without control characters and need not
// be unique. At least one scope is needed; duplicates are ignored.
//
// Errors: [*InvalidError] naming the field, [ErrUnknownTenant],
// [ErrTooManyKeys]. The key works as soon as the transaction has committed.
func CreateKey(ctx context.Context, pool *pgxpool.Pool, tenantID uuid.UUID, name string, scopes []Scope) (plaintext string, key Key, err error) {
	err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		plaintext, key, err = CreateKeyTx(ctx, tx, tenantID, name, scopes)
		return err
	})
	if err != nil {
		return "", Key{}, err
	}
	return plaintext, key, nil
}

const lockTenantSQL = `SELECT FROM tenants WHERE tenant_id = $1 FOR NO KEY UPDATE`

const insertKeySQL = `
INSERT INTO api_keys (tenant_id, key_id, name, prefix, hash, scopes)
SELECT t.tenant_id, $2, $3, $4, $5, $6
FROM tenants AS t
WHERE t.tenant_id = $1
  AND (SELECT count(*) FROM api_keys AS k WHERE k.tenant_id = $1 AND k.revoked_at IS NULL) < $7
RETURNING ` + keyColumns

// CreateKeyTx is [CreateKey] in the caller's transaction. It locks the tenant's
// row, so that concurrent calls count correctly. The transaction must be READ
// COMMITTED, else [ErrIsolation]: an older snapshot would miss keys made since.
func CreateKeyTx(ctx context.Context, tx pgx.Tx, tenantID uuid.UUID, name string, scopes []Scope) (plaintext string, key Key, err error) {
	if err := invalid.Check("name", name, MaxText); err != nil {
		return "", Key{}, err
	}
	if scopes, err = normalizeScopes(scopes); err != nil {
		return "", Key{}, err
	}
	id, err := uuid.NewV7()
	if err != nil {
		return "", Key{}, fmt.Errorf("create API key %s: %w", name, err)
	}
	plaintext = newSecret()
	hash := hashOf(plaintext)
	b := &pgx.Batch{}
	pg.QueueIsolation(b)
	known := false
	b.Queue(lockTenantSQL, tenantID).Exec(func(tag pgconn.CommandTag) error {
		known = tag.RowsAffected() == 1
		return nil
	})
	made := pg.CollectOne(b, pgx.RowToStructByName[Key], insertKeySQL, tenantID, id, name, plaintext[:prefixLength], hash[:], scopes, MaxKeys)
	err = tx.SendBatch(ctx, b).Close()
	switch {
	case errors.Is(err, pgx.ErrNoRows) && !known:
		err = ErrUnknownTenant
	case errors.Is(err, pgx.ErrNoRows):
		err = ErrTooManyKeys
	}
	if err != nil {
		return "", Key{}, fmt.Errorf("create API key %s: %w", name, err)
	}
	return plaintext, *made, nil
}

const listKeysSQL = `
SELECT ` + keyColumns + `
FROM api_keys
WHERE tenant_id = $1
ORDER BY revoked_at IS NOT NULL, key_id DESC
LIMIT $2`

// ListKeys returns a tenant's keys: all valid ones first, then the revoked
// ones, newest first, up to [MaxKeys] together.
func ListKeys(ctx context.Context, db audit.Querier, tenantID uuid.UUID) ([]Key, error) {
	rows, _ := db.Query(ctx, listKeysSQL, tenantID, MaxKeys)
	keys, err := pgx.CollectRows(rows, pgx.RowToStructByName[Key])
	if err != nil {
		return nil, fmt.Errorf("list API keys: %w", err)
	}
	return keys, nil
}

const findKeysSQL = `
SELECT ` + keyColumns + `
FROM api_keys
WHERE key_id = $1 OR hash = $2 OR prefix = $3
ORDER BY key_id
LIMIT $4`

// FindKeys returns the keys that name means, of any tenant, up to [MaxKeys]:
// name is a key's id, its plaintext, or its prefix, which several keys can have.
// It is for the operator's tool. A caller that acts for one tenant uses
// [ListKeys] or [RevokeKey], which cannot read another tenant's keys. FindKeys
// reads all keys, because no index begins with a key's id.
//
// An error contains no part of name, which may be a key.
func FindKeys(ctx context.Context, db audit.Querier, name string) ([]Key, error) {
	if invalid.Check("key", name, MaxText) != nil { // Postgres refuses such text
		return nil, nil
	}
	id, _ := uuid.Parse(name) // the zero id is no key's
	hash := hashOf(name)
	rows, _ := db.Query(ctx, findKeysSQL, id, hash[:], name, MaxKeys)
	keys, err := pgx.CollectRows(rows, pgx.RowToStructByName[Key])
	if err != nil {
		return nil, fmt.Errorf("find API keys: %w", err)
	}
	return keys, nil
}

const revokeKeySQL = `
UPDATE api_keys
SET revoked_at = COALESCE(revoked_at, clock_timestamp())
WHERE tenant_id = $1 AND key_id = $2
RETURNING ` + keyColumns

// RevokeKey revokes a key permanently and returns it; a second call changes
// nothing. Every [Authenticator] refuses it within its CacheFor. The error is
// [ErrKeyNotFound] if this tenant does not have the key, even if another tenant
// has it.
func RevokeKey(ctx context.Context, pool *pgxpool.Pool, tenantID, keyID uuid.UUID) (Key, error) {
	return one(ctx, pool, pgx.RowToStructByName[Key], ErrKeyNotFound, "revoke API key "+keyID.String(), revokeKeySQL, tenantID, keyID)
}
