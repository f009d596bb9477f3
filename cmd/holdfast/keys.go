package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/cmd/internal/boot"
	"github.com/holdfast/holdfast/tenants"
)

type keysCommand struct {
	Create keysCreate `cmd:"" help:"Make a key and print it; it cannot be had again."`
	List   keysList   `cmd:"" help:"List a tenant's keys."`
	Revoke keysRevoke `cmd:"" help:"End a key for ever."`
}

// ofTenant is whose keys a command is about.
type ofTenant struct {
	Tenant string `help:"Name of the tenant." default:"dev" placeholder:"NAME"`
}

// within runs fn with the database and the tenant, which it makes if it is new.
func (o ofTenant) within(ctx context.Context, process boot.Process, fn func(*pgxpool.Pool, tenants.Tenant) error) error {
	return withDatabase(ctx, process, func(db *pgxpool.Pool) error {
		tenant, err := tenants.Ensure(ctx, db, o.Tenant)
		if err != nil {
			return err
		}
		return fn(db, tenant)
	})
}

type keysCreate struct {
	Name   string          `arg:"" optional:"" default:"key" help:"A word of yours to recognise it by."`
	Scopes []tenants.Scope `help:"What it opens: cart (storefront), stock (back office), ops (operator)." default:"cart,stock,ops" placeholder:"SCOPE,…"`
	JSON   bool            `help:"Print an object with the key and what it is."`
	ofTenant
}

// Run prints the key alone on stdout, so that a script can take it, and what it is on stderr.
func (c *keysCreate) Run(ctx context.Context, process boot.Process) error {
	return c.within(ctx, process, func(db *pgxpool.Pool, tenant tenants.Tenant) error {
		plaintext, key, err := tenants.CreateKey(ctx, db, tenant.TenantID, c.Name, c.Scopes)
		if err != nil {
			return err
		}
		if c.JSON {
			return printJSON(process.Stdout, struct {
				Key string `json:"key"`
				shownKey
			}{plaintext, show(key)})
		}
		fmt.Fprintf(process.Stderr, "Key %s of tenant %s opens %v. It cannot be shown again.\n", key.KeyID, tenant.Name, key.Scopes)
		fmt.Fprintln(process.Stdout, plaintext)
		return nil
	})
}

type keysList struct {
	JSON bool `help:"Print an array of objects."`
	ofTenant
}

// Run prints a line for each key.
func (c *keysList) Run(ctx context.Context, process boot.Process) error {
	return c.within(ctx, process, func(db *pgxpool.Pool, tenant tenants.Tenant) error {
		keys, err := tenants.ListKeys(ctx, db, tenant.TenantID)
		if err != nil {
			return err
		}
		shown := make([]shownKey, len(keys))
		for i := range keys {
			shown[i] = show(keys[i])
		}
		if c.JSON {
			return printJSON(process.Stdout, shown)
		}
		return table(process.Stdout, "KEY ID\tPREFIX\tNAME\tSCOPES\tCREATED\tREVOKED", len(shown), func(w io.Writer, i int) {
			k := shown[i]
			fmt.Fprintf(w, "%s\t%s\t%s\t%v\t%s\t%s\n", k.KeyID, k.Prefix, k.Name, k.Scopes, k.CreatedAt.Format(time.DateTime), k.revoked())
		})
	})
}

type keysRevoke struct {
	KeyID string `arg:"" help:"The key's id, as keys list shows it."`
	ofTenant
}

// Run ends the key.
func (c *keysRevoke) Run(ctx context.Context, process boot.Process) error {
	id, err := uuid.Parse(c.KeyID)
	if err != nil {
		return &boot.UsageError{Message: fmt.Sprintf("%q is no key id: `holdfast keys list` shows them", c.KeyID)}
	}
	return c.within(ctx, process, func(db *pgxpool.Pool, tenant tenants.Tenant) error {
		key, err := tenants.RevokeKey(ctx, db, tenant.TenantID, id)
		if err != nil {
			return err
		}
		fmt.Fprintf(process.Stdout, "Key %s of tenant %s is revoked. Every process refuses it within a second.\n", key.KeyID, tenant.Name)
		return nil
	})
}

// shownKey is a key as the tool prints it.
type shownKey struct {
	KeyID     uuid.UUID       `json:"key_id"`
	Prefix    string          `json:"prefix"`
	Name      string          `json:"name"`
	Scopes    []tenants.Scope `json:"scopes"`
	CreatedAt time.Time       `json:"created_at"`
	RevokedAt *time.Time      `json:"revoked_at"`
}

func show(k tenants.Key) shownKey {
	return shownKey{k.KeyID, k.Prefix, k.Name, k.Scopes, k.CreatedAt.UTC(), k.RevokedAt}
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
