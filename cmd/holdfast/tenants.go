package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/cmd/internal/boot"
	"github.com/holdfast/holdfast/tenants"
)

type tenantsCommand struct {
	JSON bool `help:"Print an array of objects."`
}

// shownTenant is a tenant as the tool prints it.
type shownTenant struct {
	TenantID  uuid.UUID `json:"tenant_id"`
	Name      string    `json:"name"`
	CreatedAt time.Time `json:"created_at"`
}

// Run prints a line for each tenant.
func (c *tenantsCommand) Run(ctx context.Context, process boot.Process) error {
	return withDatabase(ctx, process, func(db *pgxpool.Pool) error {
		shown := []shownTenant{} // an empty array in JSON
		err := eachTenant(ctx, db, func(t tenants.Tenant) error {
			shown = append(shown, shownTenant{t.TenantID, t.Name, t.CreatedAt.UTC()})
			return nil
		})
		if err != nil {
			return err
		}
		if c.JSON {
			return printJSON(process.Stdout, shown)
		}
		return table(process.Stdout, "TENANT\tCREATED\tTENANT ID", len(shown), func(w io.Writer, i int) {
			t := shown[i]
			fmt.Fprintf(w, "%s\t%s\t%s\n", t.Name, t.CreatedAt.Format(time.DateTime), t.TenantID)
		})
	})
}

// tenantPage is how many tenants are read at a time.
const tenantPage = 500

// eachTenant calls fn for every tenant, in the order of their names.
func eachTenant(ctx context.Context, db *pgxpool.Pool, fn func(tenants.Tenant) error) error {
	for after := ""; ; {
		page, err := tenants.List(ctx, db, after, tenantPage)
		if err != nil {
			return err
		}
		for _, tenant := range page {
			if err := fn(tenant); err != nil {
				return err
			}
			after = tenant.Name
		}
		if len(page) < tenantPage {
			return nil
		}
	}
}
