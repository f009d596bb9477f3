package tenants

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Tenant is one shop, or whoever else must not see the others.
type Tenant struct {
	TenantID  uuid.UUID
	Name      string
	CreatedAt time.Time
}

// ErrUnknownTenant says that there is no such tenant.
var ErrUnknownTenant = errors.New("unknown tenant")

// Ensure finds the tenant of that name or makes it; any number of callers at once get the same one. A name is 1 to 128
// characters without control characters, taken as it is: case and spaces count. The error for another is an
// [*InvalidError].
func Ensure(ctx context.Context, pool *pgxpool.Pool, name string) (tenant Tenant, err error) {
	err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		tenant, err = EnsureTx(ctx, tx, name)
		return err
	})
	return tenant, err
}

const insertTenantSQL = `
INSERT INTO tenants (tenant_id, name)
VALUES ($1, $2)
ON CONFLICT (name) DO NOTHING`

const tenantSQL = `
SELECT tenant_id, name, created_at
FROM tenants
WHERE name = $1`

// Find returns the tenant of that name, or [ErrUnknownTenant]. Unlike [Ensure] it makes none.
func Find(ctx context.Context, db queryer, name string) (Tenant, error) {
	rows, err := db.Query(ctx, tenantSQL, name)
	if err != nil {
		return Tenant{}, fmt.Errorf("find tenant %s: %w", name, err)
	}
	tenant, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByName[Tenant])
	if errors.Is(err, pgx.ErrNoRows) {
		err = ErrUnknownTenant
	}
	if err != nil {
		return Tenant{}, fmt.Errorf("find tenant %s: %w", name, err)
	}
	return tenant, nil
}

const listTenantsSQL = `
SELECT tenant_id, name, created_at
FROM tenants
WHERE name > $1
ORDER BY name
LIMIT $2`

// List returns up to limit tenants in the order of their names, beginning after the name after: "" for the first page,
// then the last name of the page before. A page shorter than limit is the last one.
func List(ctx context.Context, db queryer, after string, limit int) ([]Tenant, error) {
	rows, err := db.Query(ctx, listTenantsSQL, after, limit)
	if err != nil {
		return nil, fmt.Errorf("list tenants: %w", err)
	}
	page, err := pgx.CollectRows(rows, pgx.RowToStructByName[Tenant])
	if err != nil {
		return nil, fmt.Errorf("list tenants: %w", err)
	}
	return page, nil
}

// EnsureTx is [Ensure] in the caller's transaction. It waits for another transaction that is just making the tenant. It is
// right at every isolation level.
func EnsureTx(ctx context.Context, tx pgx.Tx, name string) (Tenant, error) {
	if err := validateText("name", name, MaxText); err != nil {
		return Tenant{}, err
	}
	id, err := uuid.NewV7()
	if err != nil {
		return Tenant{}, fmt.Errorf("ensure tenant %s: %w", name, err)
	}
	if _, err := tx.Exec(ctx, insertTenantSQL, id, name); err != nil {
		return Tenant{}, fmt.Errorf("ensure tenant %s: %w", name, err)
	}
	// A statement of its own, because the insert cannot see the row that it lost to.
	rows, err := tx.Query(ctx, tenantSQL, name)
	if err != nil {
		return Tenant{}, fmt.Errorf("ensure tenant %s: %w", name, err)
	}
	tenant, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByName[Tenant])
	if err != nil {
		return Tenant{}, fmt.Errorf("ensure tenant %s: %w", name, err)
	}
	return tenant, nil
}
