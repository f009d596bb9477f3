package boot

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/tenants"
)

const (
	// devTenant is the tenant of the development key.
	devTenant = "dev"
	// devKeyName is the name of the key, and of the file that stores it.
	devKeyName = "holdfast run"
	devKeyFile = "key"
)

// developmentKey returns a key of the development tenant with all scopes: the
// key stored in dir while it is valid, otherwise a new one. The scope ops
// controls the lanes of all tenants. That gives away nothing more: the ready
// line also prints the database's URL, which opens more. The database stores
// only the hash of a key. Without a folder each run therefore makes its own
// key, which is returned as made.
func developmentKey(ctx context.Context, db *pgxpool.Pool, dir string) (plaintext string, made *tenants.Key, err error) {
	if dir != "" {
		if plaintext, err = storedKey(ctx, db, filepath.Join(dir, devKeyFile)); err != nil || plaintext != "" {
			return plaintext, nil, err
		}
	}
	tenant, err := tenants.Ensure(ctx, db, devTenant)
	if err != nil {
		return "", nil, err
	}
	plaintext, key, err := tenants.CreateKey(ctx, db, tenant.TenantID, devKeyName, tenants.AllScopes())
	if err != nil || dir == "" {
		return plaintext, &key, err
	}
	if err := os.WriteFile(filepath.Join(dir, devKeyFile), []byte(plaintext+"\n"), 0o600); err != nil {
		return "", nil, fmt.Errorf("keep the development key: %w", err)
	}
	return plaintext, nil, nil
}

// revokeKey ends a key that was made for one run.
func (p *Program) revokeKey(key *tenants.Key) error {
	_, closing := p.stopTimes()
	ctx, cancel := context.WithTimeout(context.Background(), closing)
	defer cancel()
	db, err := p.OpenTool(ctx)
	if err != nil {
		return fmt.Errorf("revoke the development key %s: %w", key.KeyID, err)
	}
	defer db.Close()
	_, err = tenants.RevokeKey(ctx, db, key.TenantID, key.KeyID)
	return err
}

// storedKey returns the key in the file of an earlier run, or "" if the file
// has no valid key.
func storedKey(ctx context.Context, db *pgxpool.Pool, file string) (string, error) {
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("read the development key: %w", err)
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
		if !principal.Has(scope) {
			return "", nil
		}
	}
	return plaintext, nil
}
