package tenants

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/audit"
	"github.com/holdfast/holdfast/internal/invalid"
)

// Tenant is one customer of the service, such as a shop. Tenants cannot see
// each other.
type Tenant struct {
	TenantID  uuid.UUID
	Name      string
	CreatedAt time.Time
}

// FenceCode is the SQLSTATE of a row that the fence of a tenant refuses: the
// tenant moves to another database, or has moved.
const FenceCode = "HF001"

// ErrUnknownTenant means that there is no such tenant.
var ErrUnknownTenant = errors.New("unknown tenant")

// The maximum number of characters of a name, and of an idempotency key. The
// latter is the same as for the key of a queued request.
const (
	MaxText    = 128
	MaxKeyText = 255
)

// InvalidError is bad input: Field is where it came in, and Message what is
// wrong with it, in words for the caller.
type InvalidError = invalid.Error

// Ensure finds or makes the tenant of that name. Concurrent callers get the
// same tenant. A name is 1 to 128 characters without control characters; case
// and spaces count. The error for any other name is an [*InvalidError].
func Ensure(ctx context.Context, pool *pgxpool.Pool, name string) (Tenant, error) {
	if err := invalid.Check("name", name, MaxText); err != nil {
		return Tenant{}, err
	}
	id, err := uuid.NewV7()
	if err == nil {
		_, err = pool.Exec(ctx, insertTenantSQL, id, name)
	}
	if err != nil {
		return Tenant{}, fmt.Errorf("ensure tenant %s: %w", name, err)
	}
	// This is a statement of its own, because the insert cannot see the row
	// that it conflicted with.
	return Find(ctx, pool, name)
}

const insertTenantSQL = `
WITH made AS (
    INSERT INTO tenants (tenant_id, name)
    VALUES ($1, $2)
    ON CONFLICT (name) DO NOTHING
    RETURNING tenant_id
)
INSERT INTO tenant_state (tenant_id)
SELECT tenant_id
FROM made`

const tenantSQL = `
SELECT tenant_id, name, created_at
FROM tenants
WHERE name = $1`

// Find returns the tenant of that name, or [ErrUnknownTenant]. Unlike [Ensure]
// it never makes a tenant.
func Find(ctx context.Context, db audit.Querier, name string) (Tenant, error) {
	return one(ctx, db, pgx.RowToStructByName[Tenant], ErrUnknownTenant, "find tenant "+name, tenantSQL, name)
}

const activeTenantSQL = `
SELECT t.tenant_id, t.name, t.created_at, s.state IN ('active', 'moving'), s.moves_to IS NOT NULL
FROM tenants t
JOIN tenant_state s ON s.tenant_id = t.tenant_id
WHERE t.name = $1`

// FindActive is Find of a tenant that this database serves, and reports whether a
// move to another one has begun.
//
// Errors: ErrUnknownTenant, ErrElsewhere.
func FindActive(ctx context.Context, db audit.Querier, name string) (_ Tenant, leaving bool, err error) {
	type found struct {
		Tenant
		Here, Leaving bool
	}
	f, err := one(ctx, db, func(row pgx.CollectableRow) (f found, err error) {
		return f, row.Scan(&f.TenantID, &f.Name, &f.CreatedAt, &f.Here, &f.Leaving)
	}, ErrUnknownTenant, "find tenant "+name, activeTenantSQL, name)
	if err == nil && !f.Here {
		err = ErrElsewhere
	}
	return f.Tenant, f.Leaving, err
}

// one returns the row of a statement; none is the error if there is no row.
func one[T any](ctx context.Context, db audit.Querier, scan pgx.RowToFunc[T], none error, doing, sql string, args ...any) (found T, err error) {
	rows, _ := db.Query(ctx, sql, args...)
	found, err = pgx.CollectExactlyOneRow(rows, scan)
	if errors.Is(err, pgx.ErrNoRows) {
		err = none
	}
	if err != nil {
		return found, fmt.Errorf("%s: %w", doing, err)
	}
	return found, nil
}

const tenantNameSQL = `
SELECT name
FROM tenants
WHERE tenant_id = $1`

// Name returns the tenant's name, or [ErrUnknownTenant].
func Name(ctx context.Context, db audit.Querier, tenantID uuid.UUID) (string, error) {
	return one(ctx, db, pgx.RowTo[string], ErrUnknownTenant, "read the name of tenant "+tenantID.String(), tenantNameSQL, tenantID)
}

const listTenantsSQL = `
SELECT tenant_id, name, created_at
FROM tenants
WHERE name > $1
ORDER BY name
LIMIT $2`

// List returns up to limit tenants in the order of their names, starting after
// the name after: "" for the first page, then the last name of the page before.
// A page shorter than limit is the last one.
func List(ctx context.Context, db audit.Querier, after string, limit int) ([]Tenant, error) {
	rows, _ := db.Query(ctx, listTenantsSQL, after, limit)
	page, err := pgx.CollectRows(rows, pgx.RowToStructByName[Tenant])
	if err != nil {
		return nil, fmt.Errorf("list tenants: %w", err)
	}
	return page, nil
}
