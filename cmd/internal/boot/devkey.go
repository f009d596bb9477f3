package boot

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/internal/tenants"
)

// devTenant is the tenant of the keys that the all-in-one makes.
const devTenant = "dev"

// localKey is a key that the all-in-one makes.
type localKey struct {
	name   string // of the key
	file   string // stores the key in the folder of the all-in-one
	scopes []tenants.Scope
}

// developmentKey has all scopes. The scope ops controls the lanes of all
// tenants. That gives away nothing more: the ready line also prints the
// database's URL, which opens more.
var developmentKey = localKey{name: "holdfast run", file: "key", scopes: tenants.AllScopes()}

// makeKey returns the key in plaintext: the one stored in dir while it is valid,
// otherwise a new one. The database stores only the hash of a key. Without a
// folder each run therefore makes its own key, which Stop revokes.
func (l *Local) makeKey(ctx context.Context, db *pgxpool.Pool, k localKey, dir string) (string, error) {
	if dir != "" {
		if plaintext, err := k.stored(ctx, db, dir); err != nil || plaintext != "" {
			return plaintext, err
		}
	}
	tenant, err := tenants.Ensure(ctx, db, devTenant)
	if err != nil {
		return "", err
	}
	plaintext, key, err := tenants.CreateKey(ctx, db, tenant.TenantID, k.name, k.scopes)
	if err != nil {
		return "", err
	}
	if dir == "" {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.made = append(l.made, key)
		return plaintext, nil
	}
	if err := os.WriteFile(filepath.Join(dir, k.file), []byte(plaintext+"\n"), 0o600); err != nil {
		return "", fmt.Errorf("keep the key %q: %w", k.name, err)
	}
	return plaintext, nil
}

// revokeKeys ends the keys that were made for one run, in the first cell. It has all of STOP_WITHIN:
// the programs have stopped, and nothing but these keys is left.
func (p *Program) revokeKeys(keys []tenants.Key) error {
	if len(keys) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), p.Config.StopWithin)
	defer cancel()
	db, err := p.inCells()[0].openTool(ctx, toolPool)
	if err != nil {
		return fmt.Errorf("revoke the keys of this run: %w", err)
	}
	defer db.Close()
	for _, key := range keys {
		_, revoked := tenants.RevokeKey(ctx, db, key.TenantID, key.KeyID)
		err = errors.Join(err, revoked)
	}
	return err
}

// stored returns the key in the file of an earlier run, or "" if the file has
// no valid key with exactly these scopes.
func (k localKey) stored(ctx context.Context, db *pgxpool.Pool, dir string) (string, error) {
	text, err := os.ReadFile(filepath.Join(dir, k.file))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("read the key %q: %w", k.name, err)
	}
	plaintext := strings.TrimSpace(string(text))
	principal, err := tenants.NewAuthenticator(db, tenants.Config{}).Authenticate(ctx, plaintext)
	if errors.Is(err, tenants.ErrUnknownKey) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	for _, scope := range tenants.AllScopes() {
		if principal.Has(scope) != slices.Contains(k.scopes, scope) {
			return "", nil
		}
	}
	return plaintext, nil
}
