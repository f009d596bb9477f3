package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/cmd/internal/boot"
	"github.com/holdfast/holdfast/internal/tenants"
)

type keysCommand struct {
	Create keysCreate `cmd:"" help:"Make a key and print it; it cannot be shown again."`
	List   keysList   `cmd:"" help:"List the keys of all tenants, or of one."`
	Revoke keysRevoke `cmd:"" help:"Revoke a key permanently."`
}

type keysCreate struct {
	Name         string          `arg:"" optional:"" default:"key" help:"A name to recognise the key by."`
	Scopes       []tenants.Scope `help:"What the key permits: cart (storefront), stock (back office), ops (the lanes, which all tenants share). Default: cart,stock." default:"cart,stock" placeholder:"SCOPE,…"`
	Tenant       string          `help:"Name of the tenant. Default: dev." default:"dev" placeholder:"NAME"`
	CreateTenant bool            `help:"Create the tenant if it does not exist."`
	JSON         bool            `help:"Print the key and its details as an object."`
}

// opsNotice is printed for each key that has the scope ops.
const opsNotice = "The scope ops controls the lanes, which all tenants share: pausing one pauses it for every tenant. " +
	"It also makes admission tokens. Keep this key for the operator of the installation."

// Run prints only the key on stdout, for use in scripts, and its details on
// stderr.
func (c *keysCreate) Run(ctx context.Context, process boot.Process) error {
	return withDatabase(ctx, process, func(db *pgxpool.Pool) error {
		tenant, err := c.tenant(ctx, db)
		if err != nil {
			return err
		}
		plaintext, key, err := tenants.CreateKey(ctx, db, tenant.TenantID, c.Name, c.Scopes)
		if err != nil {
			return err
		}
		if slices.Contains(key.Scopes, tenants.ScopeOps) {
			fmt.Fprintln(process.Stderr, opsNotice)
		}
		if c.JSON {
			return printJSON(process.Stdout, struct {
				Key string `json:"key"`
				shownKey
			}{plaintext, show(tenant.Name, key)})
		}
		fmt.Fprintf(process.Stderr, "Key %s of tenant %s opens %v. It cannot be shown again.\n", key.KeyID, tenant.Name, key.Scopes)
		fmt.Fprintln(process.Stdout, plaintext)
		return nil
	})
}

// tenant finds the key's tenant. It creates one only with --create-tenant, so
// that a misspelt name does not.
func (c *keysCreate) tenant(ctx context.Context, db *pgxpool.Pool) (tenants.Tenant, error) {
	if c.CreateTenant {
		return tenants.Ensure(ctx, db, c.Tenant)
	}
	tenant, err := findTenant(ctx, db, c.Tenant)
	if errors.Is(err, tenants.ErrUnknownTenant) {
		err = fmt.Errorf("%w; --create-tenant creates it", err)
	}
	return tenant, err
}

// findTenant finds the tenant that the command line names.
func findTenant(ctx context.Context, db *pgxpool.Pool, name string) (tenants.Tenant, error) {
	tenant, err := tenants.Find(ctx, db, name)
	if errors.Is(err, tenants.ErrUnknownTenant) {
		err = fmt.Errorf("%w %q: `holdfast tenants` lists those that exist", tenants.ErrUnknownTenant, name)
	}
	return tenant, err
}

type keysList struct {
	Tenant string `help:"Name of the tenant. Default: all tenants." placeholder:"NAME"`
	listed
}

// Run prints a line for each key.
func (c *keysList) Run(ctx context.Context, process boot.Process) error {
	read := func(db *pgxpool.Pool) ([]shownKey, error) { return c.keys(ctx, db) }
	return list(ctx, process, c.listed, "KEY ID\tTENANT\tPREFIX\tNAME\tSCOPES\tCREATED\tREVOKED", read, func(w io.Writer, k *shownKey) {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%v\t%s\t%s\n", k.KeyID, k.Tenant, k.Prefix, k.Name, k.Scopes, k.CreatedAt.Format(time.DateTime), dateOrDash(k.RevokedAt))
	})
}

// keys returns the keys to list, by tenant.
func (c *keysList) keys(ctx context.Context, db *pgxpool.Pool) ([]shownKey, error) {
	owners, err := c.owners(ctx, db)
	if err != nil {
		return nil, err
	}
	shown := []shownKey{} // an empty array in JSON
	for _, owner := range owners {
		keys, err := tenants.ListKeys(ctx, db, owner.TenantID)
		if err != nil {
			return nil, err
		}
		for _, key := range keys {
			shown = append(shown, show(owner.Name, key))
		}
	}
	return shown, nil
}

// owners returns the tenants whose keys are listed.
func (c *keysList) owners(ctx context.Context, db *pgxpool.Pool) ([]tenants.Tenant, error) {
	if c.Tenant == "" {
		return allTenants(ctx, db)
	}
	tenant, err := findTenant(ctx, db, c.Tenant)
	return []tenants.Tenant{tenant}, err
}

type keysRevoke struct {
	Key    string `arg:"" help:"The key's id or its prefix, as keys list shows them, or the key."`
	Tenant string `help:"Name of the tenant that must own the key. Default: any." placeholder:"NAME"`
}

// Run revokes the key. No error contains the argument, which may be the key.
func (c *keysRevoke) Run(ctx context.Context, process boot.Process) error {
	return withDatabase(ctx, process, func(db *pgxpool.Pool) error {
		found, err := c.find(ctx, db)
		if err != nil {
			return err
		}
		key, err := tenants.RevokeKey(ctx, db, found.TenantID, found.KeyID)
		if err != nil {
			return err
		}
		fmt.Fprintf(process.Stdout, "Key %s (%s) is revoked. Every process refuses it within a second.\n", key.KeyID, key.Name)
		return nil
	})
}

// find returns the one key that the command line names.
func (c *keysRevoke) find(ctx context.Context, db *pgxpool.Pool) (tenants.Key, error) {
	keys, err := tenants.FindKeys(ctx, db, c.Key)
	if err != nil {
		return tenants.Key{}, err
	}
	hint := "`holdfast keys list` lists the keys of all tenants"
	if c.Tenant != "" {
		tenant, err := findTenant(ctx, db, c.Tenant)
		if err != nil {
			return tenants.Key{}, err
		}
		hint = fmt.Sprintf("none of tenant %s: leave out --tenant to revoke a key of any tenant", tenant.Name)
		keys = slices.DeleteFunc(keys, func(k tenants.Key) bool { return k.TenantID != tenant.TenantID })
	}
	switch len(keys) {
	case 0:
		return tenants.Key{}, fmt.Errorf("%w: %s", tenants.ErrKeyNotFound, hint)
	case 1:
		return keys[0], nil
	}
	return tenants.Key{}, fmt.Errorf("%d keys have this prefix: revoke one by its id, which `holdfast keys list` shows", len(keys))
}

// shownKey is a key as the tool prints it.
type shownKey struct {
	KeyID     uuid.UUID       `json:"key_id"`
	Tenant    string          `json:"tenant"`
	Prefix    string          `json:"prefix"`
	Name      string          `json:"name"`
	Scopes    []tenants.Scope `json:"scopes"`
	CreatedAt time.Time       `json:"created_at"`
	RevokedAt *time.Time      `json:"revoked_at"`
}

func show(tenant string, k tenants.Key) shownKey {
	return shownKey{k.KeyID, tenant, k.Prefix, k.Name, k.Scopes, k.CreatedAt.UTC(), k.RevokedAt}
}

// dateOrDash formats a time, or its absence.
func dateOrDash(t *time.Time) string {
	if t == nil {
		return "-"
	}
	return t.UTC().Format(time.DateTime)
}

type tenantsCommand struct{ listed }

// shownTenant is a tenant as the tool prints it.
type shownTenant struct {
	TenantID  uuid.UUID `json:"tenant_id"`
	Name      string    `json:"name"`
	CreatedAt time.Time `json:"created_at"`
}

// Run prints a line for each tenant.
func (c *tenantsCommand) Run(ctx context.Context, process boot.Process) error {
	read := func(db *pgxpool.Pool) ([]shownTenant, error) {
		all, err := allTenants(ctx, db)
		shown := make([]shownTenant, len(all)) // an empty array in JSON, if there is none
		for i, t := range all {
			shown[i] = shownTenant{t.TenantID, t.Name, t.CreatedAt.UTC()}
		}
		return shown, err
	}
	return list(ctx, process, c.listed, "TENANT\tCREATED\tTENANT ID", read, func(w io.Writer, t *shownTenant) {
		fmt.Fprintf(w, "%s\t%s\t%s\n", t.Name, t.CreatedAt.Format(time.DateTime), t.TenantID)
	})
}

// tenantPage is how many tenants are read at a time.
const tenantPage = 500

// allTenants returns every tenant, in the order of their names.
func allTenants(ctx context.Context, db *pgxpool.Pool) (all []tenants.Tenant, err error) {
	for after := ""; ; after = all[len(all)-1].Name {
		page, err := tenants.List(ctx, db, after, tenantPage)
		if err != nil {
			return nil, err
		}
		all = append(all, page...)
		if len(page) < tenantPage {
			return all, nil
		}
	}
}
