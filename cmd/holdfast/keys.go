package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/cmd/internal/boot"
	"github.com/holdfast/holdfast/tenants"
)

type keysCommand struct {
	Create keysCreate `cmd:"" help:"Make a key and print it; it cannot be shown again."`
	List   keysList   `cmd:"" help:"List the keys of all tenants, or of one."`
	Revoke keysRevoke `cmd:"" help:"End a key for ever."`
}

type keysCreate struct {
	Name         string          `arg:"" optional:"" default:"key" help:"A word of yours to recognise it by."`
	Scopes       []tenants.Scope `help:"What it opens: cart (storefront), stock (back office), ops (the lanes, which all tenants share). Default: cart,stock." default:"cart,stock" placeholder:"SCOPE,…"`
	Tenant       string          `help:"Name of the tenant. Default: dev." default:"dev" placeholder:"NAME"`
	CreateTenant bool            `help:"Make the tenant if there is none of that name."`
	JSON         bool            `help:"Print an object with the key and what it is."`
}

// opsNotice is printed for each key that has the scope ops.
const opsNotice = "The scope ops controls the lanes, which all tenants share: pausing one pauses it for every tenant. " +
	"It also makes admission tokens. Keep this key for the operator of the installation."

// Run prints the key alone on stdout, so that a script can take it, and what it is on stderr.
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

// tenant finds the key's tenant. Only with --create-tenant it makes one: a misspelt name must not.
func (c *keysCreate) tenant(ctx context.Context, db *pgxpool.Pool) (tenants.Tenant, error) {
	if c.CreateTenant {
		return tenants.Ensure(ctx, db, c.Tenant)
	}
	tenant, err := findTenant(ctx, db, c.Tenant)
	if errors.Is(err, tenants.ErrUnknownTenant) {
		err = fmt.Errorf("%w; --create-tenant makes it", err)
	}
	return tenant, err
}

// findTenant finds a tenant that a command line names.
func findTenant(ctx context.Context, db *pgxpool.Pool, name string) (tenants.Tenant, error) {
	tenant, err := tenants.Find(ctx, db, name)
	if errors.Is(err, tenants.ErrUnknownTenant) {
		err = fmt.Errorf("%w %q: `holdfast tenants` lists those that exist", tenants.ErrUnknownTenant, name)
	}
	return tenant, err
}

type keysList struct {
	Tenant string `help:"Name of the tenant. Default: all tenants." placeholder:"NAME"`
	JSON   bool   `help:"Print an array of objects."`
}

// Run prints a line for each key.
func (c *keysList) Run(ctx context.Context, process boot.Process) error {
	return withDatabase(ctx, process, func(db *pgxpool.Pool) error {
		shown, err := c.keys(ctx, db)
		if err != nil {
			return err
		}
		if c.JSON {
			return printJSON(process.Stdout, shown)
		}
		return table(process.Stdout, "KEY ID\tTENANT\tPREFIX\tNAME\tSCOPES\tCREATED\tREVOKED", len(shown), func(w io.Writer, i int) {
			k := shown[i]
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%v\t%s\t%s\n", k.KeyID, k.Tenant, k.Prefix, k.Name, k.Scopes, k.CreatedAt.Format(time.DateTime), k.revoked())
		})
	})
}

// keys returns the keys to list, by tenant.
func (c *keysList) keys(ctx context.Context, db *pgxpool.Pool) ([]shownKey, error) {
	shown := []shownKey{} // an empty array in JSON
	add := func(tenant tenants.Tenant) error {
		keys, err := tenants.ListKeys(ctx, db, tenant.TenantID)
		for i := range keys {
			shown = append(shown, show(tenant.Name, keys[i]))
		}
		return err
	}
	if c.Tenant == "" {
		err := eachTenant(ctx, db, add)
		return shown, err
	}
	tenant, err := findTenant(ctx, db, c.Tenant)
	if err == nil {
		err = add(tenant)
	}
	return shown, err
}

type keysRevoke struct {
	KeyID  string `arg:"" help:"The key's id, as keys list shows it."`
	Tenant string `help:"Name of the tenant whose key it must be. Default: any." placeholder:"NAME"`
}

// Run ends the key.
func (c *keysRevoke) Run(ctx context.Context, process boot.Process) error {
	id, err := uuid.Parse(c.KeyID)
	if err != nil { // which is not repeated: it may be the key itself
		return &boot.UsageError{Message: "keys revoke takes a key's id, a UUID: `holdfast keys list` shows them"}
	}
	return withDatabase(ctx, process, func(db *pgxpool.Pool) error {
		tenantID, err := c.tenantOf(ctx, db, id)
		if err != nil {
			return err
		}
		key, err := tenants.RevokeKey(ctx, db, tenantID, id)
		if errors.Is(err, tenants.ErrKeyNotFound) {
			return fmt.Errorf("%w of tenant %s: without --tenant a key of any tenant is revoked", err, c.Tenant)
		}
		if err != nil {
			return err
		}
		fmt.Fprintf(process.Stdout, "Key %s (%s) is revoked. Every process refuses it within a second.\n", key.KeyID, key.Name)
		return nil
	})
}

// tenantOf returns whose key it is, or whose it must be if the command line says so.
func (c *keysRevoke) tenantOf(ctx context.Context, db *pgxpool.Pool, keyID uuid.UUID) (uuid.UUID, error) {
	if c.Tenant != "" {
		tenant, err := findTenant(ctx, db, c.Tenant)
		return tenant.TenantID, err
	}
	key, err := tenants.FindKey(ctx, db, keyID)
	if errors.Is(err, tenants.ErrKeyNotFound) {
		err = fmt.Errorf("%w: `holdfast keys list` shows those of all tenants", err)
	}
	return key.TenantID, err
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

func (k shownKey) revoked() string {
	if k.RevokedAt == nil {
		return "-"
	}
	return k.RevokedAt.UTC().Format(time.DateTime)
}

// printJSON writes a value as indented JSON.
func printJSON(w io.Writer, value any) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	return encoder.Encode(value)
}

// table writes rows under a heading, in columns.
func table(w io.Writer, heading string, rows int, row func(io.Writer, int)) error {
	columns := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(columns, heading)
	for i := range rows {
		row(columns, i)
	}
	return columns.Flush()
}
